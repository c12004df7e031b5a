"""An owner's reads and changes of its topic's list, each carried through until its outcome is known (rule 38, rule 46).

Every list that an owner writes has the token that it drew, so a list with this token is the owner's own last one. A change whose
answer was lost, or that met another version, is judged by a `sync` and a read: the target is there, and was applied; or the expected
version is there, and the change is tried again, which also overtakes a first attempt that is still on its way; or the list is
another owner's. A version that has moved on rules out that an attempt is applied later.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from daybook.core.events import CasAnswered, CasOutcome
from daybook.core.machine import RequestIds
from daybook.core.topics.events import CasList, ListRead, ManagedLedgerEffect, ReadList
from daybook.core.topics.ledger_list import LedgerList, check_list_change


class Outcome(Enum):
    """What became of a change."""

    PENDING = "nobody knows yet"
    DONE = "the list is the target"
    SUPERSEDED = "the list is another owner's"


class _Phase(Enum):
    IDLE = "nothing is asked"
    PROPOSED = "a compare-and-set is under way"
    JUDGED = "its outcome is being read"


TRANSITIONS: Final[Mapping[tuple[_Phase, _Phase], str]] = {
    (_Phase.IDLE, _Phase.PROPOSED): "the owner changes the list",
    (_Phase.PROPOSED, _Phase.IDLE): "it is done",
    (_Phase.PROPOSED, _Phase.JUDGED): "it met another version, or has no answer",
    (_Phase.JUDGED, _Phase.PROPOSED): "the expected version is there: once more",
    (_Phase.JUDGED, _Phase.IDLE): "the target is there, or another owner's list",
}


class ListUpdate:
    """The list as its owner knows it, and its one change at a time."""

    __slots__ = ("_ids", "_phase", "_request_id", "_target", "current", "version")

    def __init__(self, current: LedgerList, version: int, ids: RequestIds) -> None:
        self.current = current
        self.version = version
        self._ids = ids
        self._phase = _Phase.IDLE
        self._request_id = 0
        self._target = current

    @property
    def is_pending(self) -> bool:
        """Whether a change was sent whose outcome is not known."""
        return self._phase is not _Phase.IDLE

    def propose(self, target: LedgerList, out: list[ManagedLedgerEffect]) -> None:
        """Replace the list by `target`."""
        check_list_change(self.current, target)
        self._target = target
        self._send(out)

    def _send(self, out: list[ManagedLedgerEffect]) -> None:
        self._go_to(_Phase.PROPOSED)
        self._request_id = self._ids.next()
        out.append(CasList(self._request_id, self._target, self.version))

    def _go_to(self, phase: _Phase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{phase} while {self._phase}: one change at a time"
        self._phase = phase

    def answered(self, event: CasAnswered, out: list[ManagedLedgerEffect]) -> Outcome:
        """What the answer to a change says."""
        if self._phase is not _Phase.PROPOSED or event.request_id != self._request_id:
            return Outcome.PENDING
        if event.outcome is CasOutcome.DONE:
            return self._done(event.version)
        self._go_to(_Phase.JUDGED)
        self.read(out)
        return Outcome.PENDING

    def read(self, out: list[ManagedLedgerEffect]) -> None:
        """Read the list to judge a change; once more if it could not be read."""
        assert self._phase is _Phase.JUDGED
        self._request_id = self._ids.next()
        out.append(ReadList(self._request_id))

    def is_answer(self, request_id: int) -> bool:
        """Whether `request_id` is that of the read that judges a change."""
        return self._phase is _Phase.JUDGED and request_id == self._request_id

    def judge(self, event: ListRead, out: list[ManagedLedgerEffect]) -> Outcome:
        """What the list that was read says of the change."""
        if event.ledger_list == self._target:
            return self._done(event.version)
        if event.version == self.version:
            self._send(out)
            return Outcome.PENDING
        self._go_to(_Phase.IDLE)
        return Outcome.SUPERSEDED

    def _done(self, version: int) -> Outcome:
        assert version > self.version
        self._go_to(_Phase.IDLE)
        self.current = self._target
        self.version = version
        return Outcome.DONE
