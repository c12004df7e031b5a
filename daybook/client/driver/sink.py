"""Whose frames a stream carries: the part of a ledger's driver that the streams know."""

from typing import Protocol, TypeAlias

from daybook.core.errors import Code
from daybook.core.ids import BookieId, LedgerId
from daybook.wire import bookie_pb2 as pb

AttachKey: TypeAlias = tuple[LedgerId, pb.Purpose]
"""What a stream knows an attachment by: ledger and purpose."""


class FrameSink(Protocol):
    """Sends frames of one ledger and is notified of what becomes of each."""

    ledger_id: LedgerId
    key: str
    """What bookies compare with the ledger's password hash."""
    purpose: pb.Purpose
    """Frames of a recovery pass the fence."""
    attach_key: AttachKey
    """`ledger_id` and `purpose`."""
    is_deferred: bool
    """Whether bookies answer the frames before they sync (rule 22)."""

    def __hash__(self) -> int:
        """Each is itself alone."""

    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        """`bookie`, in its life `boot_id`, has the frame."""

    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        """`bookie` refused the frame."""

    def lac_lost(self, bookie: BookieId) -> None:
        """The row that was last published to `bookie` may have vanished; another one can be published."""

    def bookie_failed(self, bookie: BookieId) -> None:
        """The stream to `bookie` is gone: the outcome of every frame without an answer is unknown."""
