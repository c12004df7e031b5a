"""An owner's reads and changes of its topic's list, each carried through until its outcome is known (rule 38, rule 46).

Every list that an owner writes has the token that it drew, so a list with this token is the owner's own last one. judged_change has the
theory of what becomes of a change.
"""

from daybook.core.events import CasAnswered, CasOutcome
from daybook.core.machine import RequestIds
from daybook.core.topics.events import CasList, ListRead, ManagedLedgerEffect, ReadList
from daybook.core.topics.judged_change import JudgedChange, Outcome
from daybook.core.topics.ledger_list import LedgerList, check_list_change
from daybook.core.topics.list_room import Room, measured_bytes, room_in


class ListUpdate:
    """The list as its owner knows it, and its one change at a time."""

    __slots__ = ("_change", "_target", "current", "size_bytes", "version")

    def __init__(self, current: LedgerList, version: int, ids: RequestIds) -> None:
        self.current = current
        self.version = version
        self.size_bytes = measured_bytes(current)
        """Of `current`."""
        self._change = JudgedChange(ids)
        self._target = current

    @property
    def room(self) -> Room:
        """What is left in `current`."""
        return room_in(self.size_bytes)

    @property
    def is_pending(self) -> bool:
        """Whether a change was sent whose outcome is not known."""
        return self._change.is_pending

    def propose(self, target: LedgerList, out: list[ManagedLedgerEffect]) -> None:
        """Replace the list by `target`."""
        check_list_change(self.current, target)
        self._target = target
        self._send(out)

    def _send(self, out: list[ManagedLedgerEffect]) -> None:
        out.append(CasList(self._change.write(), self._target, self.version))

    def answered(self, event: CasAnswered, out: list[ManagedLedgerEffect]) -> Outcome:
        """What the answer to a change says."""
        if not self._change.is_written(event.request_id):
            return Outcome.PENDING
        if event.outcome is CasOutcome.DONE:
            return self._done(event.version)
        self._change.doubt()
        self.read(out)
        return Outcome.PENDING

    def read(self, out: list[ManagedLedgerEffect]) -> None:
        """Read the list to judge a change; once more if it could not be read."""
        out.append(ReadList(self._change.read()))

    def is_answer(self, request_id: int) -> bool:
        """Whether `request_id` is that of the read that judges a change."""
        return self._change.is_answer(request_id)

    def judge(self, event: ListRead, out: list[ManagedLedgerEffect]) -> Outcome:
        """What the list that was read says of the change."""
        if event.ledger_list == self._target:
            return self._done(event.version)
        if event.version == self.version:
            self._send(out)
            return Outcome.PENDING
        self._change.settle()
        return Outcome.SUPERSEDED

    def _done(self, version: int) -> Outcome:
        assert version > self.version
        self._change.settle()
        self.current = self._target
        self.version = version
        self.size_bytes = measured_bytes(self._target)
        return Outcome.DONE
