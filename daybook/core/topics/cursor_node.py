"""An owner's changes of a cursor's node, each carried through until its outcome is known (rule 38, rule 46).

Every change checks the version of the topic's list, so no change of an owner that was superseded is ever applied. A change in doubt is
judged by a `sync` and a read of the list and then of the node (judged_change has the theory). The read in this order settles also what
became of the attempts: with another list, or another version of the node, none of them is applied later.
"""

from daybook.core.events import CasAnswered, CasOutcome
from daybook.core.machine import RequestIds
from daybook.core.topics.cursor_events import CursorEffect, CursorRead, PutCursor, ReadCursor
from daybook.core.topics.cursor_record import NO_LEDGER, CursorRecord
from daybook.core.topics.judged_change import JudgedChange, Outcome


class CursorNode:
    """The node as its owner knows it, and its one change at a time."""

    __slots__ = ("_change", "_target", "current", "list_version", "replaced", "version")

    def __init__(self, current: CursorRecord, version: int, list_version: int, ids: RequestIds) -> None:
        self.current = current
        self.version = version
        self.list_version = list_version
        """Of the topic's list, as its owner last wrote it."""
        self._change = JudgedChange(ids)
        self._target = current
        self.replaced = NO_LEDGER
        """The ledger that the last change took out of the node."""

    @property
    def is_pending(self) -> bool:
        """Whether a change was sent whose outcome is not known."""
        return self._change.is_pending

    def propose(self, target: CursorRecord, out: list[CursorEffect]) -> None:
        """Replace the record by `target`."""
        self._target = target
        self._send(out)

    def _send(self, out: list[CursorEffect]) -> None:
        out.append(PutCursor(self._change.write(), self._target, self.version, self.list_version))

    def answered(self, event: CasAnswered, out: list[CursorEffect]) -> Outcome:
        """What the answer to a change says."""
        if not self._change.is_written(event.request_id):
            return Outcome.PENDING
        if event.outcome is CasOutcome.DONE:
            return self._done(event.version)
        self._change.doubt()
        self.read(out)
        return Outcome.PENDING

    def read(self, out: list[CursorEffect]) -> None:
        """Read list and node to judge a change; once more if they could not be read."""
        out.append(ReadCursor(self._change.read(), judge=True))

    def unreadable(self) -> None:
        """The read had no answer: one that comes late is dropped."""
        self._change.drop_read()

    def is_answer(self, request_id: int) -> bool:
        """Whether `request_id` is that of the read that judges a change."""
        return self._change.is_answer(request_id)

    def judge(self, event: CursorRead, out: list[CursorEffect]) -> Outcome:
        """What was read says of the change."""
        if event.is_owner:
            self.list_version = max(self.list_version, event.list_version)
            if event.record == self._target and event.version > self.version:
                return self._done(event.version)
            if event.record is not None and event.version == self.version:
                self._send(out)
                return Outcome.PENDING
        self._change.settle()
        return Outcome.SUPERSEDED

    def _done(self, version: int) -> Outcome:
        assert version > self.version
        self._change.settle()
        self.replaced = self.current.cursor_ledger
        self.current = self._target
        self.version = version
        return Outcome.DONE
