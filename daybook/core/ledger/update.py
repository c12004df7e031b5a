"""One change of a ledger's metadata, carried through until its outcome is known (rule 15, rule 46).

A compare-and-set may land without its answer arriving. Until a `sync` and a read have told, nothing that depends on it
may happen, so `is_pending` stays true meanwhile. Even then an attempt of ours may still be on its way if the read
found the version it expected; only a later version rules that out, so `must_settle` asks for one more attempt.
"""

from enum import Enum

from daybook.core.effects import CasMetadata, Effect, ReadMetadata
from daybook.core.events import CasAnswered, CasOutcome, MetadataRead
from daybook.core.ledger.metadata import LedgerMetadata


class _Phase(Enum):
    IDLE = "nothing is asked"
    PROPOSED = "a compare-and-set is out"
    READING = "its outcome is being read"
    PAUSED = "the read failed; it is repeated after a pause"


class MetadataUpdate:
    """Drives proposals one at a time."""

    __slots__ = (
        "_expected",
        "_last_request_id",
        "_phase",
        "_request_id",
        "_retry_at_ms",
        "_retry_ms",
        "_target",
        "_unknown_at",
    )

    def __init__(self, retry_ms: int) -> None:
        self._retry_ms = retry_ms
        self._phase = _Phase.IDLE
        self._last_request_id = 0
        self._request_id = 0
        self._target: LedgerMetadata | None = None
        self._expected = -1
        self._unknown_at: int | None = None
        self._retry_at_ms = 0

    @property
    def is_pending(self) -> bool:
        """Whether a change has been sent whose outcome is not known."""
        return self._phase is not _Phase.IDLE

    @property
    def must_settle(self) -> bool:
        """Whether an attempt without an answer could still land: another one has to overtake it."""
        return self._unknown_at is not None

    def new_request_id(self) -> int:
        """An id no other request of this machine has."""
        self._last_request_id += 1
        return self._last_request_id

    def propose(self, target: LedgerMetadata, expected_version: int, out: list[Effect]) -> None:
        """Try to write `target` over `expected_version`."""
        assert self._phase is _Phase.IDLE, "one change at a time"
        self._phase = _Phase.PROPOSED
        self._target = target
        self._expected = expected_version
        self._request_id = self.new_request_id()
        out.append(CasMetadata(self._request_id, target, expected_version))

    def cas_answered(self, event: CasAnswered, out: list[Effect]) -> LedgerMetadata | None:
        """The metadata that is now stored, if this answer says so; otherwise it is read next."""
        if self._phase is not _Phase.PROPOSED or event.request_id != self._request_id:
            return None
        if event.outcome is CasOutcome.DONE:
            assert event.version > self._expected
            assert self._target is not None
            self._phase = _Phase.IDLE
            self._unknown_at = None
            return self._target
        if event.outcome is CasOutcome.UNKNOWN:
            self._unknown_at = self._expected
        self._read(out)
        return None

    def _read(self, out: list[Effect]) -> None:
        self._phase = _Phase.READING
        self._request_id = self.new_request_id()
        out.append(ReadMetadata(self._request_id))

    def was_read(self, event: MetadataRead) -> bool:
        """Whether `event` answers our read; then the outcome is known."""
        if self._phase is not _Phase.READING or event.request_id != self._request_id:
            return False
        self._phase = _Phase.IDLE
        if self._unknown_at is not None and (event.metadata is None or event.version > self._unknown_at):
            self._unknown_at = None
        return True

    def unreadable(self, request_id: int, now_ms: int) -> None:
        """Our read got no answer: repeat it after a pause."""
        if self._phase is _Phase.READING and request_id == self._request_id:
            self._phase = _Phase.PAUSED
            self._retry_at_ms = now_ms + self._retry_ms

    def tick(self, now_ms: int, out: list[Effect]) -> None:
        """Repeat the read when its pause is over."""
        if self._phase is _Phase.PAUSED and now_ms >= self._retry_at_ms:
            self._read(out)

    def reconnected(self, out: list[Effect]) -> None:
        """The metadata store answers again: read at once."""
        if self._phase is _Phase.PAUSED:
            self._read(out)
