"""A machine's requests to the metadata store, one at a time, each carried through until its outcome is known (rule 46).

A compare-and-set may be applied without its answer arriving. Until a `sync` and a read have shown what is stored, nothing that
depends on it may happen (rule 15), so `is_pending` stays true meanwhile. Even then an attempt may still be on its way if
the read found the version that it expected; only a later version rules that out, so `must_settle` asks for one
more attempt. A read that gets no answer is repeated after a pause.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol

from daybook.core.effects import CasMetadata, MetadataRequest, ReadMetadata
from daybook.core.events import CasAnswered, CasOutcome, MetadataRead, MetadataUnreadable
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer


class Outbox(Protocol):
    """Where requests go: the list of the effects of a machine, whatever else it holds."""

    def append(self, effect: MetadataRequest, /) -> None:
        """Take a request."""


class _Phase(Enum):
    IDLE = "nothing is asked"
    PROPOSED = "a compare-and-set is under way"
    READING = "the metadata is being read"
    PAUSED = "the read failed"


_IDLE: Final = _Phase.IDLE
"""For the code that every answer runs: Python 3.11 calls a function to find a member in its enum."""

TRANSITIONS: Final[Mapping[tuple[_Phase, _Phase], str]] = {
    (_Phase.IDLE, _Phase.PROPOSED): "a change is proposed",
    (_Phase.IDLE, _Phase.READING): "a read is asked for",
    (_Phase.PROPOSED, _Phase.IDLE): "it is done",
    (_Phase.PROPOSED, _Phase.READING): "it lost, or nobody knows",
    (_Phase.READING, _Phase.IDLE): "the metadata is known",
    (_Phase.READING, _Phase.PAUSED): "it is unreadable",
    (_Phase.PAUSED, _Phase.READING): "the pause is over, or the store answers again",
}


class MetadataUpdate:
    """Reads and changes one ledger's metadata for one machine."""

    __slots__ = ("_expected", "_ids", "_phase", "_request_id", "_retry", "_target", "_unknown_at")

    def __init__(self, retry_ms: int, ids: RequestIds) -> None:
        self._ids = ids
        self._retry = RetryTimer(retry_ms)
        self._phase = _Phase.IDLE
        self._request_id = 0
        self._target: LedgerMetadata | None = None
        self._expected = -1
        self._unknown_at: int | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a request was sent whose outcome is not known."""
        return self._phase is not _IDLE

    @property
    def must_settle(self) -> bool:
        """Whether an attempt without an answer could still be applied: another one has to overtake it."""
        return self._unknown_at is not None

    def propose(self, target: LedgerMetadata, expected_version: int, out: Outbox) -> None:
        """Try to write `target` over `expected_version`."""
        self._go_to(_Phase.PROPOSED)
        self._target = target
        self._expected = expected_version
        self._request_id = self._ids.next()
        out.append(CasMetadata(self._request_id, target, expected_version))

    def read(self, out: Outbox) -> None:
        """Read what is stored."""
        self._go_to(_Phase.READING)
        self._request_id = self._ids.next()
        out.append(ReadMetadata(self._request_id))

    def _go_to(self, phase: _Phase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{phase} while {self._phase}: one request at a time"
        self._phase = phase

    def cas_answered(self, event: CasAnswered, out: Outbox) -> LedgerMetadata | None:
        """The metadata that is now stored, if this answer says so; otherwise it is read next."""
        if self._phase is not _Phase.PROPOSED or event.request_id != self._request_id:
            return None
        if event.outcome is CasOutcome.DONE:
            assert event.version > self._expected
            assert self._target is not None
            self._go_to(_Phase.IDLE)
            self._unknown_at = None
            return self._target
        if event.outcome is CasOutcome.UNKNOWN:
            self._unknown_at = self._expected
        self.read(out)
        return None

    def was_read(self, event: MetadataRead) -> bool:
        """Whether `event` answers our read; then the outcome is known."""
        if not self._is_reading(event.request_id):
            return False
        self._go_to(_Phase.IDLE)
        if self._unknown_at is not None and (event.metadata is None or event.version > self._unknown_at):
            self._unknown_at = None
        return True

    def unreadable(self, event: MetadataUnreadable, now_ms: int) -> bool:
        """Whether our read got no answer; then it is repeated after a pause."""
        if not self._is_reading(event.request_id):
            return False
        self._go_to(_Phase.PAUSED)
        self._retry.start(now_ms)
        return True

    def _is_reading(self, request_id: int) -> bool:
        return self._phase is _Phase.READING and request_id == self._request_id

    def tick(self, now_ms: int, out: Outbox) -> None:
        """Repeat the read when its pause is over."""
        if self._retry.fires(now_ms):
            self.read(out)

    def reconnected(self, out: Outbox) -> None:
        """The metadata store answers again: read at once."""
        if self._phase is _Phase.PAUSED:
            self._retry.stop()
            self.read(out)
