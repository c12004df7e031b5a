"""A whole bookie in a process of its own, over a metadata store in memory: its memory and its death can be measured.

Usage: python -m tests.process.fuzz.bookie_process DIRECTORY. Ledgers 1 … LEDGERS are open; none names it, or it would have
served before. It ends by SIGTERM; DIRECTORY/ready.json says where it serves.
"""

import sys
from pathlib import Path
from typing import Final

from daybook_bookie.process import run
from daybook_bookie.settings import BookieSettings

from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import MemoryServer, MemoryStore
from daybook.runtime.log_output import configure_logs
from tests.unit.bookie.server_kit import MIB, settings_for
from tests.unit.bookie.stream_kit import KEY

LEDGERS: Final = 3
STREAMS_MAX: Final = 24


def bookie_settings(directory: Path) -> BookieSettings:
    """A bookie that flushes and looks around all the time, so that what it took goes all the way."""
    for name in ("journal", "store"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    return settings_for(
        directory,
        ready_file=directory / "ready.json",
        address="127.0.0.1:0",
        health_address="127.0.0.1:0",
        metrics_address="127.0.0.1:0",
        flush_interval_ms=200,
        flush_bytes=4 * MIB,
        write_cache_bytes=32 * MIB,
        journal_queue_bytes=32 * MIB,
        scrub_interval_ms=2_000,
        stuck_after_ms=10_000,
        streams_max=STREAMS_MAX,
    )


def main() -> int:
    """See the module."""
    server = MemoryServer()

    async def open_store() -> MemoryStore:
        store = MemoryStore(server, operation_timeout_s=1.0)
        await ensure_cluster(store, Layout("test"), created_at_ms=0)
        manager = LedgerManager(store, Layout("test"))
        for _ in range(LEDGERS + 1):
            await manager.create_ledger(
                lambda number: LedgerMetadata(
                    number,
                    Quorum(1, 1, 1),
                    (Fragment(0, 0, ("elsewhere",)),),
                    password_hash=KEY,
                )
            )
        return store

    settings = bookie_settings(Path(sys.argv[1]))
    configure_logs(settings.log_level, settings.log_format)
    return run(settings, open_store)


if __name__ == "__main__":
    sys.exit(main())
