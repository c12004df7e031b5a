"""Opens a store with one flipped bit after another and says what each did; killed by LMDB now and then, and started again.

Usage: python -m tests.unit.bookie.store.flip_worker DIRECTORY BIT...; prints a line "BIT VERDICT" per bit.
"""

import shutil
import signal
import sys
from pathlib import Path

from daybook_bookie.disk.disk import RealDisk
from daybook_bookie.disk.errors import CorruptStoreError, StoreNotOpenedError, StoreRefusedError
from daybook_bookie.store.store import Store

from daybook.core.format.frame import decode_entries, decode_header
from tests.unit.bookie.store.kit import SMALL, payload

LEDGERS = range(1, 13)
ENTRIES = 30
HANG_S = 5


def verdict(directory: Path) -> str:
    """`refused`, `io-error`, `harmless`, or what is wrong."""
    try:
        store = Store(directory, RealDisk(directory), SMALL)
    except (StoreRefusedError, StoreNotOpenedError):  # a flipped version number is another release's
        return "refused"
    found = "harmless"
    with store:
        for ledger in LEDGERS:
            record = store.ledger(ledger)
            if record is None or record.intervals.count != ENTRIES or not record.fenced:
                return f"VANISHED ledger {ledger}"
            at = 0
            while at < ENTRIES:
                try:
                    frames = store.read_blocks(ledger, at, ENTRIES - 1, 700)
                except CorruptStoreError:
                    found = "io-error"
                    at += 1
                    continue
                if not frames:
                    return f"VANISHED entry {at} of ledger {ledger}"
                for frame in frames:
                    good, bad = decode_entries(frame, decode_header(frame))
                    if bad or any(entry.data != payload(entry.entry_id) for entry in good):
                        return f"WRONG bytes in ledger {ledger}"
                    if not good[0].entry_id <= at <= good[-1].entry_id:
                        return f"SKIPPED entry {at} of ledger {ledger}"
                    at = good[-1].entry_id + 1
    return found


def main() -> None:
    """See the module."""
    source = Path(sys.argv[1])
    directory = source / "flipped"
    sound = (source / "data.mdb").read_bytes()
    for bit in map(int, sys.argv[2:]):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        shutil.copy(source / "checkpoint", directory / "checkpoint")
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        (directory / "data.mdb").write_bytes(data)
        signal.alarm(HANG_S)
        print(bit, verdict(directory), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
