"""Ledgers' sides of an append stream."""

import asyncio

from daybook.client.driver.sink import AttachKey
from daybook.core.errors import Code
from daybook.core.ids import BookieId
from daybook.wire import bookie_pb2 as pb


class LedgerSink:
    """What a stream asks about a ledger; the rest of a FrameSink is its subclasses'."""

    def __init__(self, ledger_id: int = 1, key: str = "h", *, is_deferred: bool = False) -> None:
        self.ledger_id = ledger_id
        self.key = key
        self.purpose: pb.Purpose = pb.PURPOSE_WRITE
        self.attach_key: AttachKey = ledger_id, self.purpose
        self.is_deferred = is_deferred


class RecordingSink(LedgerSink):
    """Its events: (send id, boot id) for an acknowledgement, (send id, code) for a failure, ("gone",) for a lost stream,
    ("lac lost",) for a row that may have vanished."""

    def __init__(self, ledger_id: int = 1, key: str = "h", *, is_deferred: bool = False) -> None:
        super().__init__(ledger_id, key, is_deferred=is_deferred)
        self.events: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()

    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        self.events.put_nowait((send_id, boot_id))

    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        self.events.put_nowait((send_id, code))

    def lac_lost(self, bookie: BookieId) -> None:
        self.events.put_nowait(("lac lost",))

    def bookie_failed(self, bookie: BookieId) -> None:
        self.events.put_nowait(("gone",))
