"""A ledger's attachment to an append stream: the key that it presents once, and what waits for the answer (rule 20).

A bookie remembers an attachment until the stream ends, the ledger is deleted, or the client says that it is done with the ledger: a
stream of a broker lives for weeks, and writes a ledger for each topic every few minutes.
"""

from typing import Final, TypeAlias

from daybook.client.driver.sink import AttachKey, FrameSink
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import encode_client_control

ATTACH_TIMEOUT_S: Final = 30.0
"""How long one ledger waits for the answer to its attachment. Above the time-out of the bookie, which asks ZooKeeper and
answers UNAVAILABLE if ZooKeeper is unavailable: meanwhile the bookie serves all other ledgers (rule 46)."""
ATTACH_PATIENCE_S: Final = 30.0
"""How long a ledger repeats its request to a bookie that has too many attachments waiting, before its frames fail there: the
bookie works and answers, and tens of thousands of ledgers that change to another bookie would only move the queue."""
ATTACH_PAUSE_S: Final = 0.05
"""The first pause of that; the next ones are longer, and none is the same for all ledgers."""
ATTACH_PAUSE_MAX_S: Final = 1.0

Queued: TypeAlias = tuple[FrameSink, int, bytes]
"""A frame on its way: whose it is, its send id, its bytes. A plain tuple, because one is made for every frame."""


class Attaching:
    """A ledger that waits for its attachment, and the frames that wait for it."""

    __slots__ = ("asked_again", "asked_s", "control", "frames", "is_unused", "row", "since_s")

    def __init__(self, sink: FrameSink, since_s: float) -> None:
        """`sink` presents its key at `since_s`."""
        attach = pb.Attach(ledger_id=sink.ledger_id, key=sink.key, purpose=sink.purpose)
        self.control = encode_client_control(pb.ClientControl(attach=attach))
        self.since_s = since_s
        self.asked_s = since_s
        self.frames: list[Queued] = []
        self.row: tuple[FrameSink, bytes] | None = None
        """The LAC that was last published, if any was."""
        self.asked_again = 0
        self.is_unused = False
        """Whether all that would have used it have ended."""


def detach_control(key: AttachKey) -> bytes:
    """The message that ends an attachment."""
    ledger_id, purpose = key
    return encode_client_control(pb.ClientControl(detach=pb.Detach(ledger_id=ledger_id, purpose=purpose)))
