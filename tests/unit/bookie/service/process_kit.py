"""A bookie as a process of its own, with a real ZooKeeper, for what only a process can show: kills, exits, probes."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.wire.channel import open_channel
from daybook.wire.service import BookieStub
from tests.fixtures.forked import Forked, spawn_bookie
from tests.unit.bookie.server_kit import eventually
from tests.unit.bookie.stream_kit import KEY, WAIT_S, GrpcPipe, Stream

T = TypeVar("T")
LAYOUT = Layout("daybook")
PROCESS_S = 60.0
"""How long a process may take to start or to end: on a machine that is busy with other things, an interpreter's start alone
takes many seconds."""


def with_store(zookeeper: str, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Run `work` on a store of its own."""

    async def run() -> T:
        store = await ZooKeeperStore.open(zookeeper)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def format_cluster(zookeeper: str) -> None:
    """Make the cluster."""
    with_store(zookeeper, lambda store: ensure_cluster(store, LAYOUT, created_at_ms=0))


def create_ledger(zookeeper: str) -> int:
    """An open ledger on bookie b0; its id."""

    async def create(store: MetadataStore) -> int:
        made = await LedgerManager(store, LAYOUT).create_ledger(
            lambda number: LedgerMetadata(
                number, Quorum(1, 1, 1), (Fragment(0, 0, ("b0",)),), password_hash=KEY
            )
        )
        return made.value.ledger_id

    return with_store(zookeeper, create)


class BookieProcess:
    """The process; `start` it as often as it was killed."""

    def __init__(self, directory: Path, zookeeper: str, **settings: Any) -> None:
        """Its files are under `directory`."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        self._ready = directory / "ready.json"
        values = {
            "bookie_id": "b0",
            "zookeeper": zookeeper,
            "journal_dir": str(directory / "journal"),
            "store_dir": str(directory / "store"),
            "ready_file": str(self._ready),
            "journal_file_bytes": 32 << 20,
            "store_map_bytes": 256 << 20,
            "log_format": "json",
            **settings,
        }
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in values.items()]
        (directory / "bookie.toml").write_text("".join(lines), encoding="utf-8")
        self.process: Forked | None = None

    def spawn(self) -> Forked:
        """Start the process, and do not wait until it serves."""
        self._ready.unlink(missing_ok=True)
        self.log.touch()
        settings = str(self.directory / "bookie.toml")
        self.process = spawn_bookie(["start", "--config", settings], self.log)
        return self.process

    def start(self) -> None:
        """Start it and wait until it serves and is registered."""
        self.spawn()
        self.wait()

    def wait(self) -> None:
        """Wait until the process that was spawned serves and is registered."""
        process = self.process
        assert process is not None
        assert eventually(lambda: self._ready.exists() or process.poll() is not None, PROCESS_S), self.tail()
        assert process.poll() is None, self.tail()
        self.addresses = json.loads(self._ready.read_text(encoding="utf-8"))
        self.channel = open_channel(self.addresses["address"])
        self.stub = BookieStub(self.channel)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(PROCESS_S)

    def open_stream(self) -> Stream:
        """A new append stream."""
        return Stream(GrpcPipe(self.stub))

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines with this event."""
        lines = [line for line in self.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def health(self, service: str) -> str:
        """What the probe hears."""
        with grpc.insecure_channel(self.addresses["health_address"]) as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_S)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
