"""Whose frames a stream carries: the part of a ledger's driver that the streams know."""

from abc import ABC, abstractmethod
from typing import TypeAlias

from daybook.core.errors import Code
from daybook.core.ids import BookieId, LedgerId
from daybook.wire import bookie_pb2 as pb

AttachKey: TypeAlias = tuple[LedgerId, int]
"""What a stream knows an attachment by: ledger and purpose."""


class FrameSink(ABC):
    """Sends frames of one ledger and is notified of what becomes of each.

    `key` is what bookies compare with the ledger's password hash; `recovery` frames pass the fence.
    """

    def __init__(self, ledger_id: LedgerId, key: str, *, recovery: bool, is_deferred: bool = False) -> None:
        """Name the ledger and what its frames are for. `is_deferred`: bookies answer them before they sync (rule 22)."""
        self.is_deferred = is_deferred
        self.ledger_id = ledger_id
        self.key = key
        self.purpose: pb.Purpose = pb.PURPOSE_RECOVERY if recovery else pb.PURPOSE_WRITE
        self.attach_key: AttachKey = (ledger_id, self.purpose)

    @abstractmethod
    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        """`bookie`, in its life `boot_id`, has the frame."""

    @abstractmethod
    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        """`bookie` refused the frame."""

    @abstractmethod
    def lac_lost(self, bookie: BookieId) -> None:
        """The row that was last published to `bookie` may have vanished; another one can be published."""

    @abstractmethod
    def bookie_failed(self, bookie: BookieId) -> None:
        """The stream to `bookie` is gone: the outcome of every frame without an answer is unknown."""
