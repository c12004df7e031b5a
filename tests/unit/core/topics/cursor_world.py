"""A subscription in memory, and the brokers that hold its cursor: what the tests of the cursor's machine share."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor import Cursor
from daybook.core.topics.cursor_events import (
    AppendRecord,
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
    HolesDropped,
    LastRecordRead,
    ListMoved,
    PutCursor,
    ReadCursor,
    ReadLastRecord,
    RecordAppended,
    RecordLost,
)
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    Retrying,
)
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from tests.unit.core.topics.lists import extent_of

TIME_OUT = DaybookError("no answer came in time")
RESULTS = (CursorOpened, CursorPersisted, CursorEnded, RecordLost, HolesDropped, Retrying)


@dataclass
class CursorLedger:
    """A ledger of the cursor: its records, and whether its writer may add one."""

    records: list[bytes] = field(default_factory=list)
    is_closed: bool = False


class CursorWorld:
    """What all brokers see."""

    def __init__(self, record: CursorRecord | None = None, extent: TopicExtent | None = None) -> None:
        self.extent = extent or extent_of((1, 20), (2, 0), open_with=(4, 20))
        self.owner = 0
        """The number of the broker that owns the topic."""
        self.list_version = 0
        self.record = record
        self.version = 0 if record else -1
        self.ledgers: dict[int, CursorLedger] = {}
        self.next_id = 100
        self.delayed: list[PutCursor] = []
        """Writes of the node without an answer that may still be applied."""
        self.lost: set[int] = set()
        """Ledgers that exist, and that nobody knows of."""

    def create(self) -> int:
        """A ledger."""
        ledger_id, self.next_id = self.next_id, self.next_id + 1
        self.ledgers[ledger_id] = CursorLedger()
        return ledger_id

    def may_apply(self, put: PutCursor) -> bool:
        """Whether the node and the list are at the versions of this write."""
        found = (self.version, self.list_version)
        return self.record is not None and found == (put.expected_version, put.list_version)

    def apply(self, put: PutCursor) -> bool:
        """Whether the node was written."""
        if not self.may_apply(put):
            return False
        self.record, self.version = CursorRecord.from_json(put.record.to_json()), self.version + 1
        named = self.ledgers.get(put.record.cursor_ledger)
        assert named is None or named.records, f"{put} names a ledger before it has a record"
        return True

    def delete(self, ledger_id: int) -> None:
        """Delete a ledger that no node names, and none will."""
        names = [] if self.record is None else [self.record.cursor_ledger]
        names += [put.record.cursor_ledger for put in self.delayed if self.may_apply(put)]
        assert ledger_id not in names, f"ledger {ledger_id} is named, or may be, and was deleted"
        self.ledgers.pop(ledger_id, None)


class Holder:
    """A broker that holds the cursor, or believes so."""

    def __init__(
        self,
        world: CursorWorld,
        *,
        initial: CursorRecord | None = None,
        policy: CursorPolicy | None = None,
        takes_over: bool = True,
    ) -> None:
        self.world = world
        if takes_over:
            world.owner += 1
            world.list_version += 1
        self.number = world.owner
        self.machine = Cursor(
            "orders, subscription s",
            world.extent,
            list_version=world.list_version,
            initial=initial,
            policy=policy,
        )
        self.now_ms = 0
        self.asked: deque[CursorEffect] = deque()
        self.news: list[CursorEffect] = []
        self.handles: set[int] = set()
        self._take(self.machine.start())

    @property
    def acks(self) -> AckState:
        return self.machine.acks

    @property
    def is_open(self) -> bool:
        return CursorOpened() in self.news

    @property
    def ended(self) -> list[DaybookError | None]:
        """Why the cursor is not held any more, if so."""
        return [effect.error for effect in self.news if isinstance(effect, CursorEnded)]

    def said(self, kind: type) -> list[Any]:
        """The results of one kind."""
        return [effect for effect in self.news if isinstance(effect, kind)]

    def step(self, event: CursorEvent) -> None:
        """Hand an event to the machine."""
        self._take(self.machine.step(event))

    def tick(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.step(CursorTick(self.now_ms))

    def write_list(self, *, says_so: bool = True) -> None:
        """The owner writes the topic's list."""
        self.world.list_version += 1
        if says_so:
            self.step(ListMoved(self.world.list_version))

    def _take(self, effects: Sequence[CursorEffect]) -> None:
        for effect in effects:
            (self.news if isinstance(effect, RESULTS) else self.asked).append(effect)

    # The oldest effect that was not carried out, without a fault and with one.

    def carry_out(self) -> CursorEffect:
        """Carry it out and hand the answer back."""
        effect = self.asked.popleft()
        self.step(self._answer(effect))
        return effect

    def run(self, most: int = 200) -> list[type]:
        """Carry out everything until nothing is left; what that was."""
        done: list[type] = []
        while self.asked:
            done.append(type(self.carry_out()))
            assert len(done) < most, f"this never ends: {done}"
        return done

    def fail(self, *, applied: bool = False, error: DaybookError = TIME_OUT) -> CursorEffect:
        """No answer comes; `applied`: the effect was carried out all the same."""
        effect: Any = self.asked.popleft()
        if applied:
            answer = self._answer(effect)
            if isinstance(answer, LedgerCreated):
                self.world.lost.add(answer.ledger_id)
        if isinstance(effect, ReadCursor):
            self.step(MetadataUnreadable(effect.request_id))
        elif isinstance(effect, (CreateCursor, PutCursor, DeleteCursor)):
            self.step(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))
        else:
            self.handles.discard(getattr(effect, "ledger_id", -1))
            self.step(LedgerRequestFailed(effect.request_id, error))
        return effect  # type: ignore[no-any-return]  # it came out of `asked`

    def _answer(self, effect: Any) -> CursorEvent:
        world = self.world
        match effect:
            case ReadCursor(request_id, judge):
                return CursorRead(
                    request_id,
                    world.record,
                    world.version,
                    not judge or world.owner == self.number,
                    world.list_version if judge else -1,
                )
            case PutCursor(request_id):
                return self._changed(request_id, done=world.apply(effect))
            case CreateCursor(request_id, record, list_version):
                is_new = world.record is None and list_version == world.list_version
                if is_new:
                    world.record, world.version = record, 0
                return self._changed(request_id, done=is_new)
            case DeleteCursor(request_id, list_version):
                is_ours = list_version == world.list_version
                if is_ours:
                    world.record = None
                return self._changed(request_id, done=is_ours)
        return self._answer_of_ledger(effect)

    def _changed(self, request_id: int, *, done: bool) -> CasAnswered:
        return CasAnswered(request_id, CasOutcome.DONE if done else CasOutcome.CONFLICT, self.world.version)

    def _answer_of_ledger(self, effect: Any) -> CursorEvent:
        world = self.world
        match effect:
            case CreateCursorLedger(request_id):
                ledger_id = world.create()
                self.handles.add(ledger_id)
                return LedgerCreated(request_id, ledger_id)
            case DeleteLedger(request_id, ledger_id):
                world.delete(ledger_id)
                return LedgerDeleted(request_id)
        ledger = world.ledgers.get(effect.ledger_id)
        if ledger is None:
            return LedgerRequestFailed(effect.request_id, NoSuchLedgerError("the ledger is gone"))
        match effect:
            case AppendRecord(request_id, ledger_id, data):
                if ledger.is_closed or ledger_id not in self.handles:
                    return LedgerRequestFailed(request_id, TIME_OUT)
                ledger.records.append(data)
                return RecordAppended(request_id)
            case ReadLastRecord(request_id):
                ledger.is_closed = True
                return LastRecordRead(request_id, ledger.records[-1] if ledger.records else None)
            case CloseLedger(request_id):
                ledger.is_closed = True
                return LedgerEnded(request_id, len(ledger.records), 0)
        raise AssertionError(effect)


def holding(
    world: CursorWorld, *, initial: CursorRecord | None = None, policy: CursorPolicy | None = None
) -> Holder:
    """A broker that has taken the topic over and holds the cursor."""
    holder = Holder(world, initial=initial, policy=policy)
    holder.run()
    assert holder.is_open
    return holder


def with_holes(holder: Holder, holes: int) -> None:
    """Every second entry of ledger 1 is acknowledged, behind `holes` holes."""
    for hole in range(holes):
        assert holder.acks.ack(Position(1, 2 * hole + 1))
