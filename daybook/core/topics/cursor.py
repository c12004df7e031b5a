"""The cursor: what a subscription has acknowledged, made durable (rule 40). cursor_phases.py has the theory.

The dispatcher changes `acks`; the machine observes its version at each tick. A request is under way in each phase but RESTING and OPEN,
and what is acknowledged meanwhile is in the next record.
"""

from typing import assert_never

from daybook.core.errors import (
    DaybookError,
    MetadataError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.ids import LedgerId
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursor,
    CreateCursorLedger,
    CursorEffect,
    CursorEnded,
    CursorEvent,
    CursorOpened,
    CursorPersisted,
    CursorRead,
    CursorTick,
    DeleteCursor,
    DeleteRequested,
    FlushRequested,
    HolesDropped,
    LastRecordRead,
    ListMoved,
    ReadCursor,
    ReadLastRecord,
    RecordAppended,
    RecordLost,
)
from daybook.core.topics.cursor_node import CursorNode
from daybook.core.topics.cursor_pace import CursorPace, CursorPolicy
from daybook.core.topics.cursor_phases import TRANSITIONS, CursorPhase
from daybook.core.topics.cursor_record import (
    LEDGER_RANGES_MAX,
    NO_LEDGER,
    NODE_RANGES_MAX,
    CursorRecord,
)
from daybook.core.topics.deletions import Deletions
from daybook.core.topics.events import (
    CloseLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    Retrying,
)
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.judged_change import Outcome
from daybook.core.topics.ledger_list import NO_POSITION, Position


class Cursor:
    """The machine of one subscription on the topic's owner; make it once the owner knows the list."""

    def __init__(
        self,
        name: str,
        extent: TopicExtent,
        *,
        list_version: int,
        initial: CursorRecord | None = None,
        policy: CursorPolicy | None = None,
        now_ms: int = 0,
    ) -> None:
        """`name` is for errors. `initial`: the subscription begins there if it does not exist yet."""
        self._name = name
        self._extent = extent
        self._initial = initial
        self._policy = policy or CursorPolicy()
        self._pace = CursorPace(self._policy, now_ms)
        self._phase = CursorPhase.READING
        self._ids = RequestIds()
        self._request_id = 0
        self._retry = RetryTimer(self._policy.retry_ms)
        self._recoveries = 0
        self._node = CursorNode(CursorRecord(), -1, list_version, self._ids)
        self._acks: AckState | None = None
        self._target = CursorRecord()
        """The node's record once the new ledger has its first record."""
        self._new = NO_LEDGER
        """A ledger that was created, and that no node names yet."""
        self._is_deleting = False
        self._drops_holes = False
        self._deletions = Deletions(self._ids, self._policy.retry_ms)

    @property
    def acks(self) -> AckState:
        """What is acknowledged; there once `CursorOpened` was given."""
        assert self._acks is not None, f"{self._name} is not open yet"
        return self._acks

    @property
    def persisted(self) -> Position:
        """What trimming may rely on: durable, and not taken back by a seek (rule 40, rule 51)."""
        return NO_POSITION if self._acks is None else self._pace.safe_mark(self._acks)

    @property
    def is_done(self) -> bool:
        """Whether this machine does nothing more for the subscription; `CursorEnded` says why."""
        return self._phase is CursorPhase.ENDED

    @property
    def rests(self) -> bool:
        """Whether ticks change nothing until `acks` does; thousands of cursors are asked at each tick."""
        if self._deletions.is_pending:
            return False
        if self._phase is not CursorPhase.RESTING:
            return self._phase is CursorPhase.ENDED
        is_stored = self.acks.version == self._pace.stored.version
        return is_stored and self._node.current.cursor_ledger == NO_LEDGER

    @property
    def is_dirty(self) -> bool:
        """Whether `acks` has changed since what is durable."""
        return self.acks.version != self._pace.stored.version

    def start(self) -> list[CursorEffect]:
        """The first effects."""
        out: list[CursorEffect] = []
        self._read(out, judge=False)
        return out

    def step(self, event: CursorEvent) -> list[CursorEffect]:
        """The effects of an event."""
        out: list[CursorEffect] = []
        match event:
            case CursorTick():
                self._tick(event.now_ms, out)
            case ListMoved():
                self._node.list_version = max(self._node.list_version, event.list_version)
            case FlushRequested() | CloseRequested() | DeleteRequested():
                self._requested(event)
            case CursorRead():
                self._cursor_read(event, out)
            case MetadataUnreadable():
                self._unreadable(event.request_id)
            case CasAnswered():
                self._cas_answered(event, out)
            case LastRecordRead() | RecordAppended() | LedgerCreated() | LedgerEnded():
                if event.request_id == self._request_id:
                    self._ledger_answered(event, out)
            case LedgerDeleted():
                self._deletions.done(event.request_id, out)
            case LedgerRequestFailed():
                self._ledger_failed(event, out)
            case _:
                assert_never(event)
        self._go_on(out)
        return out

    def _requested(self, event: FlushRequested | CloseRequested | DeleteRequested) -> None:
        match event:
            case FlushRequested():
                self._pace.is_flushing = True
            case CloseRequested():
                self._pace.is_closing = True
            case DeleteRequested():
                self._is_deleting = True
            case _:
                assert_never(event)

    # Phases

    def _go_to(self, phase: CursorPhase) -> None:
        assert (self._phase, phase) in TRANSITIONS, f"{self._name}: {phase} while {self._phase}"
        self._phase = phase
        self._request_id = 0

    def _ask(self) -> int:
        self._request_id = self._ids.next()
        return self._request_id

    def _tick(self, now_ms: int, out: list[CursorEffect]) -> None:
        self._pace.tick(now_ms)
        self._deletions.tick(now_ms, out)
        if self.is_done or not self._retry.fires(now_ms):
            return
        if self._node.is_pending:
            self._node.read(out)
        elif self._phase in (CursorPhase.READING, CursorPhase.DELETING):
            self._read(out, judge=True)
        else:
            self._recover(out)

    def _go_on(self, out: list[CursorEffect]) -> None:
        """Begin what is to be done, if nothing is under way."""
        if self._phase not in (CursorPhase.RESTING, CursorPhase.OPEN):
            return
        if self._is_deleting:
            self._go_to(CursorPhase.DELETING)
            out.append(DeleteCursor(self._ask(), self._node.list_version))
            return
        is_named = self._node.current.cursor_ledger != NO_LEDGER
        phase = self._pace.next_phase(self.acks, is_named=is_named)
        if phase is CursorPhase.STORING:
            self._store(out)
        elif phase is CursorPhase.APPENDING:
            self._append(self._node.current.cursor_ledger, out)
        elif phase is CursorPhase.CREATING:
            self._go_to(phase)
            out.append(CreateCursorLedger(self._ask()))
        elif phase is CursorPhase.CLOSING:
            self._go_to(phase)
            out.append(CloseLedger(self._ask(), self._node.current.cursor_ledger))
        elif phase is CursorPhase.ENDED:
            self._end(None, out)

    # Opening

    def _read(self, out: list[CursorEffect], *, judge: bool) -> None:
        out.append(ReadCursor(self._ask(), judge))

    def _cursor_read(self, event: CursorRead, out: list[CursorEffect]) -> None:
        if self._node.is_answer(event.request_id):
            self._changed(self._node.judge(event, out), event.record, out)
            return
        if event.request_id != self._request_id:
            return
        self._node.list_version = max(self._node.list_version, event.list_version)
        if self._phase is CursorPhase.DELETING:
            self._judge_deletion(event, out)
        elif event.is_owner:
            self._found(event.record, event.version, out)
        else:
            self._end(self._not_owner(), out)

    def _unreadable(self, request_id: int) -> None:
        if self._node.is_answer(request_id):
            self._node.unreadable()
            self._retry.start(self._pace.now_ms)
        elif request_id == self._request_id:
            self._request_again()

    def _request_again(self) -> None:
        """The request of the phase has failed: again after a pause, unless the phase ends before."""
        self._request_id = 0
        self._retry.start(self._pace.now_ms)

    def _found(self, record: CursorRecord | None, version: int, out: list[CursorEffect]) -> None:
        if record is None and self._initial is None:
            msg = f"{self._name} does not exist: it was never created, or it was deleted"
            self._end(NoSuchTopicError(msg), out)
        elif record is None:
            assert self._initial is not None
            self._go_to(CursorPhase.BEGINNING)
            out.append(CreateCursor(self._ask(), self._initial, self._node.list_version))
        else:
            self._node = CursorNode(record, version, self._node.list_version, self._ids)
            if record.cursor_ledger == NO_LEDGER:
                self._open(record, out)
            else:
                self._go_to(CursorPhase.RECOVERING)
                self._recover(out)

    def _recover(self, out: list[CursorEffect]) -> None:
        self._recoveries += 1
        out.append(ReadLastRecord(self._ask(), self._node.current.cursor_ledger))

    def _take_last(self, data: bytes | None, out: list[CursorEffect]) -> None:
        try:
            if data is None:
                msg = "it has no entries"
                raise MetadataError(msg)
            record = CursorRecord.from_json(data)
        except MetadataError as error:
            self._lose_record(error, out)
        else:
            self._open(record, out)

    def _lose_record(self, error: DaybookError, out: list[CursorEffect]) -> None:
        out.append(RecordLost(self._node.current.cursor_ledger, error))
        self._open(self._node.current, out)

    def _open(self, record: CursorRecord, out: list[CursorEffect]) -> None:
        self._go_to(CursorPhase.RESTING)
        self._acks = AckState(self._extent, record)
        self._pace.opened(self._acks)
        out.append(CursorOpened())

    # Persisting

    def _take(self, ranges_max: int, out: list[CursorEffect]) -> CursorRecord:
        """The state as it is now, for one record."""
        acks = self.acks
        self._pace.take(acks)
        dropped = max(0, acks.range_count - ranges_max)
        if dropped and not self._drops_holes:
            out.append(HolesDropped(dropped))
        self._drops_holes = bool(dropped)
        return acks.record(ranges_max)

    def _store(self, out: list[CursorEffect]) -> None:
        self._go_to(CursorPhase.STORING)
        self._node.propose(self._take(NODE_RANGES_MAX, out), out)

    def _append(self, ledger_id: LedgerId, out: list[CursorEffect]) -> None:
        is_first = ledger_id == self._new
        self._go_to(CursorPhase.FILLING if is_first else CursorPhase.APPENDING)
        record = self._take(LEDGER_RANGES_MAX, out)
        if is_first:
            self._target = self.acks.record(NODE_RANGES_MAX, cursor_ledger=ledger_id)
        out.append(AppendRecord(self._ask(), ledger_id, record.to_json()))

    def _ledger_answered(
        self,
        event: LastRecordRead | RecordAppended | LedgerCreated | LedgerEnded,
        out: list[CursorEffect],
    ) -> None:
        match event:
            case LastRecordRead():
                self._take_last(event.data, out)
            case LedgerCreated():
                self._new = event.ledger_id
                self._append(self._new, out)
            case LedgerEnded():
                self._end(None, out)
            case RecordAppended():
                if self._phase is CursorPhase.FILLING:
                    self._go_to(CursorPhase.NAMING)
                    self._node.propose(self._target, out)
                else:
                    self._go_to(CursorPhase.OPEN)
                    self._pace.appended()
                    out.append(CursorPersisted(self._pace.stored.version))
            case _:
                assert_never(event)

    def _ledger_failed(self, event: LedgerRequestFailed, out: list[CursorEffect]) -> None:
        if self._deletions.failed(event.request_id, self._pace.now_ms):
            out.append(Retrying(event.error))
        elif event.request_id != self._request_id:
            return
        elif self._phase is CursorPhase.CLOSING:
            self._end(None, out)
        elif self._phase is CursorPhase.RECOVERING:
            if isinstance(event.error, NoSuchLedgerError) or self._recoveries >= self._policy.recoveries_max:
                self._lose_record(event.error, out)
            else:
                out.append(Retrying(event.error))
                self._request_again()
        else:
            if self._phase is CursorPhase.APPENDING:
                self._pace.is_writable = False
            elif self._phase is CursorPhase.FILLING:
                new, self._new = self._new, NO_LEDGER
                self._deletions.begin([new], out)
            out.append(Retrying(event.error))
            self._pace.ledger_failed()
            self._go_to(CursorPhase.OPEN if self._pace.is_writable else CursorPhase.RESTING)

    # The node

    def _cas_answered(self, event: CasAnswered, out: list[CursorEffect]) -> None:
        if event.request_id != self._request_id:
            self._changed(self._node.answered(event, out), None, out)
        elif self._phase is CursorPhase.BEGINNING:
            if event.outcome is CasOutcome.DONE:
                self._found(self._initial, event.version, out)
            else:
                self._go_to(CursorPhase.READING)
                self._read(out, judge=True)
        elif event.outcome is CasOutcome.DONE:
            self._deleted(out)
        else:
            self._read(out, judge=True)

    def _changed(self, outcome: Outcome, found: CursorRecord | None, out: list[CursorEffect]) -> None:
        """The node is as it was to be, or another owner's, with `found` as its record."""
        if outcome is Outcome.SUPERSEDED:
            named = NO_LEDGER if found is None else found.cursor_ledger
            own = {self._node.current.cursor_ledger, self._new}
            self._end(self._not_owner(), out)
            self._deletions.begin(sorted(own - {NO_LEDGER, named}), out)
        elif outcome is Outcome.DONE:
            is_named = self._phase is CursorPhase.NAMING
            self._go_to(CursorPhase.OPEN if is_named else CursorPhase.RESTING)
            self._pace.node_written(names_ledger=is_named)
            self._new = NO_LEDGER
            out.append(CursorPersisted(self._pace.stored.version))
            if self._node.replaced != NO_LEDGER:
                self._deletions.begin([self._node.replaced], out)

    # The end

    def _judge_deletion(self, event: CursorRead, out: list[CursorEffect]) -> None:
        if event.record is None:
            self._deleted(out)
        elif event.is_owner:
            out.append(DeleteCursor(self._ask(), self._node.list_version))
        else:
            self._end(self._not_owner(), out)

    def _deleted(self, out: list[CursorEffect]) -> None:
        named = self._node.current.cursor_ledger
        self._end(None, out)
        if named != NO_LEDGER:
            self._deletions.begin([named], out)

    def _end(self, error: DaybookError | None, out: list[CursorEffect]) -> None:
        self._go_to(CursorPhase.ENDED)
        out.append(CursorEnded(error))

    def _not_owner(self) -> NotOwnerError:
        return NotOwnerError(f"{self._name}: its topic has another owner; look the topic up again")
