"""The managed ledger: a topic's ledgers as one log, under one owner. phases.py has the theory.

A request is under way in each phase but those in which messages are written or awaited, and an answer leads to the next phase. What is
published meanwhile waits, in order, and leaves with the next `Append`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, assert_never

from daybook.core.errors import DaybookError, NoSuchTopicError, NotOwnerError, TopicTerminatedError
from daybook.core.events import CasAnswered, MetadataUnreadable
from daybook.core.format.frame import Buffer
from daybook.core.ids import EntryId, LedgerId
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.topics.deletions import Deletions
from daybook.core.topics.events import (
    Append,
    Appended,
    CloseLedger,
    CompactionWritten,
    CreateLedger,
    HandleFailed,
    LedgerAnswer,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    ListKnown,
    ListRead,
    ManagedLedgerEffect,
    ManagedLedgerEvent,
    OwnerOrder,
    Published,
    PublishRequested,
    ReadList,
    RecoverLedger,
    Retrying,
    RollRequested,
    TerminateRequested,
    TopicEnded,
    TopicTick,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.judged_change import Outcome
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState
from daybook.core.topics.list_orders import ListOrders
from daybook.core.topics.list_room import Room, limits, topic_full
from daybook.core.topics.list_update import ListUpdate
from daybook.core.topics.offload.changes import OffloadBegun, OffloadsWritten, ReplicasUnneeded
from daybook.core.topics.offload.restore import LedgersRestored
from daybook.core.topics.open_ledger import ManagedLedgerPolicy, OpenLedger
from daybook.core.topics.pending import PendingPublishes
from daybook.core.topics.phases import CHANGING, TRANSITIONS, Phase

_OPEN: Final = Phase.OPEN
"""Every entry asks for it, and a global name costs less than an enum's member."""


class ManagedLedger:
    """The machine of one topic on its owner. `owner_token` is drawn anew for each machine."""

    def __init__(
        self,
        topic: str,
        owner_token: str,
        *,
        policy: ManagedLedgerPolicy | None = None,
        now_ms: int = 0,
        unix_ms: int = 0,
    ) -> None:
        self._topic = topic
        self._token = owner_token
        self._policy = policy or ManagedLedgerPolicy()
        self._limits = self._policy
        """The same, as the room in the list allows it."""
        self._now_ms, self._unix_ms = now_ms, unix_ms
        self.phase = Phase.READING
        """What it does; only it changes this."""
        self._ids = RequestIds()
        self._request_id = 0
        self._retry = RetryTimer(self._policy.retry_ms)
        self._update: ListUpdate | None = None
        self._pending = PendingPublishes()
        self._ledger: OpenLedger | None = None
        """The ledger that is written or recovered, or was last."""
        self._unnamed: LedgerId | None = None
        """A ledger that was created, and that no list names yet."""
        self._unloading = self._terminating = False
        self.orders = ListOrders()
        """Only it changes them."""
        self._deletions = Deletions(self._ids, self._policy.retry_ms)

    @property
    def is_done(self) -> bool:
        """Whether the topic is not served by this machine any more; `TopicEnded` says why."""
        return self.phase is Phase.ENDED

    @property
    def has_room(self) -> bool:
        """Whether more may be published now: what waits is bounded."""
        return self._pending.pending_bytes < self._policy.pending_bytes_max

    @property
    def refusal(self) -> DaybookError | None:
        """Why nothing may be published now; a driver asks before each `PublishRequested`."""
        if self.phase is _OPEN and not self._unloading and not self._terminating:  # what every entry asks
            return None
        if self._unloading or self.phase is Phase.ENDED:
            return self._not_owner()
        if self._terminating or self._is(ListState.TERMINATED):
            return TopicTerminatedError(f"topic {self._topic} was terminated: publish to another topic")
        if self.phase is Phase.IDLE and self._is_full:  # else what comes goes behind what waits
            return topic_full(self._topic)
        return None

    def start(self) -> list[ManagedLedgerEffect]:
        """The first effects."""
        out: list[ManagedLedgerEffect] = []
        self._ask(out)
        return out

    def step(self, event: ManagedLedgerEvent) -> list[ManagedLedgerEffect]:
        """The effects of an event."""
        out: list[ManagedLedgerEffect] = []
        match event:
            case PublishRequested(payloads):
                return self.publish(payloads)
            case Appended(ledger_id, through):
                return self.appended(ledger_id, through)
            case TopicTick():
                self._tick(event, out)
            case TrimRequested() | CompactionWritten():
                self._ordered(event, out)
            case RollRequested() | TerminateRequested() | UnloadRequested():
                self._ordered(event, out)
            case OffloadBegun() | OffloadsWritten() | ReplicasUnneeded() | LedgersRestored():
                self._ordered(event, out)
            case ListRead():
                self._list_read(event, out)
            case MetadataUnreadable():
                self._list_unreadable(event.request_id)
            case CasAnswered():
                self._cas_answered(event, out)
            case LedgerCreated() | LedgerEnded() | LedgerRequestFailed() | LedgerDeleted():
                self._ledger_answered(event, out)
            case HandleFailed():
                self._handle_failed(event, out)
            case _:
                assert_never(event)
        return out

    def _ordered(self, event: OwnerOrder, out: list[ManagedLedgerEffect]) -> None:
        if isinstance(event, TerminateRequested):
            self._terminating = True
        elif isinstance(event, UnloadRequested):
            self._unloading = True
        elif not isinstance(event, RollRequested):
            self.orders.take(event)
        elif self._ledger is not None and not self._is_full:
            self._ledger.is_superseded = True
        self._go_on(out)
        self.orders.drop_trim()

    # Publishing: the two events that every entry causes, without an object for each; otherwise each is `step` of its event.

    def publish(self, payloads: Sequence[Buffer]) -> list[ManagedLedgerEffect]:
        """`PublishRequested`."""
        assert self.refusal is None, "a driver asks before it publishes"
        out: list[ManagedLedgerEffect] = []
        self._pending.add(payloads)
        self._go_on(out)
        return out

    def appended(self, ledger_id: LedgerId, through: EntryId) -> list[ManagedLedgerEffect]:
        """`Appended`."""
        out: list[ManagedLedgerEffect] = []
        if self._is_current(ledger_id):
            self._acknowledge(ledger_id, through, out)
            self._go_on(out)
        return out

    def _send(self, out: list[ManagedLedgerEffect]) -> None:
        ledger = self._ledger
        assert ledger is not None
        if self._pending.is_waiting and not ledger.failed:
            ledger.sent(self._now_ms, self._unix_ms)
            out.append(Append(ledger.id, self._pending.send()))

    def _acknowledge(self, ledger_id: LedgerId, through: EntryId, out: list[ManagedLedgerEffect]) -> None:
        first, count = self._pending.acknowledge(through)
        if count:
            out.append(Published(ledger_id, first, count))

    def _handle_failed(self, event: HandleFailed, out: list[ManagedLedgerEffect]) -> None:
        if self._ledger is not None and self._is_current(event.ledger_id):
            self._ledger.failed = True
            if self.phase is Phase.CLOSING:
                self._enter(Phase.ASKING, out)
            self._go_on(out)

    def _is_current(self, ledger_id: LedgerId) -> bool:
        """Whether an event is about the ledger that is written, or was last: one of an earlier ledger came late."""
        return self._ledger is not None and self._ledger.id == ledger_id

    # What comes next

    def _enter(self, phase: Phase, out: list[ManagedLedgerEffect]) -> None:
        """Begin a phase that begins with a request."""
        self._go_to(phase)
        self._ask(out)

    def _go_to(self, phase: Phase) -> None:
        assert (self.phase, phase) in TRANSITIONS, f"{self._topic}: {phase} while {self.phase}"
        self.phase = phase
        self._request_id = 0
        self._retry.stop()

    def _ask(self, out: list[ManagedLedgerEffect]) -> None:
        """The request of the phase; again, after one that failed."""
        self._request_id = self._ids.next()
        if self.phase in (Phase.READING, Phase.ASKING):
            out.append(ReadList(self._request_id))
        elif self.phase is Phase.CREATING:
            assert self._update is not None
            out.append(CreateLedger(self._request_id, self._update.current.newest))
        else:
            assert self._ledger is not None
            request = CloseLedger if self.phase is Phase.CLOSING else RecoverLedger
            out.append(request(self._request_id, self._ledger.id))

    def _go_on(self, out: list[ManagedLedgerEffect]) -> None:
        """Do what the phase allows."""
        if self.phase is _OPEN:
            self._use_ledger(out)
        elif self.phase is Phase.IDLE or (self.phase is Phase.CREATING and self._retry.is_running):
            self._go_on_without_ledger(out)
        elif self.phase in CHANGING and self._is_open:
            self._send(out)
        if self.phase is Phase.CLOSING and not self._pending.is_sent and not self._request_id:
            self._ask(out)

    def _go_on_without_ledger(self, out: list[ManagedLedgerEffect]) -> None:
        """While none can be created the list changes as well: perhaps bookies have room only once ledgers were trimmed."""
        self._begin_change(out)
        if self.phase is Phase.IDLE:
            if self._is_full:
                self._pending.fail(topic_full(self._topic), out)
            if self._pending.is_waiting:
                self._enter(Phase.CREATING, out)
            elif self._terminating and self._is(ListState.CLOSED):
                self._propose(Phase.RECORDING, replace(self._with_end(), state=ListState.TERMINATED), out)
            elif self._unloading:
                self._end(None, out)

    def _use_ledger(self, out: list[ManagedLedgerEffect]) -> None:
        ledger = self._ledger
        assert ledger is not None
        if ledger.failed:
            self._enter(Phase.ASKING, out)
        elif ledger.is_full(self._limits, self._pending, self._now_ms):
            self._go_to(Phase.CLOSING)
        else:
            if self._pending.is_waiting:
                self._send(out)
            is_idle = ledger.is_idle(self._limits, self._pending, self._now_ms)
            if is_idle or self._unloading or self._terminating:
                self._go_to(Phase.CLOSING)
            elif self.orders.are_waiting:
                self._begin_change(out)

    @property
    def _is_open(self) -> bool:
        """Whether the list names a ledger that is written."""
        return self._is(ListState.OPEN)

    @property
    def _is_full(self) -> bool:
        """Whether no other ledger can begin."""
        return self._update is not None and self._update.room is Room.NONE

    def _is(self, state: ListState) -> bool:
        """Whether the list is known, and is in this state."""
        return self._update is not None and self._update.current.state is state

    def _tick(self, event: TopicTick, out: list[ManagedLedgerEffect]) -> None:
        if self.is_done:
            return
        self._now_ms, self._unix_ms = event.now_ms, event.unix_ms
        if self._retry.fires(event.now_ms):
            if self._update is not None and self._update.is_pending:
                self._update.read(out)
            else:
                self._ask(out)
        self._deletions.tick(event.now_ms, out)
        self._go_on(out)

    # The list

    def _cas_answered(self, event: CasAnswered, out: list[ManagedLedgerEffect]) -> None:
        if self._update is not None:
            self._changed(self._update.answered(event, out), out)

    def _list_unreadable(self, request_id: int) -> None:
        is_judged = self._update is not None and self._update.is_answer(request_id)
        if is_judged or request_id == self._request_id:
            self._retry.start(self._now_ms)

    def _list_read(self, event: ListRead, out: list[ManagedLedgerEffect]) -> None:
        update = self._update
        if update is not None and update.is_answer(event.request_id):
            outcome = update.judge(event, out)
            if outcome is Outcome.SUPERSEDED:
                self._superseded(event.ledger_list, out)
            self._changed(outcome, out)
        elif event.request_id != self._request_id:
            return
        elif update is not None:
            assert self.phase is Phase.ASKING
            if event.ledger_list == update.current:
                self._enter(Phase.RESCUING, out)
            else:
                self._end(self._not_owner(), out)
        elif event.ledger_list is None:
            self._end(NoSuchTopicError(f"topic {self._topic} does not exist, or was deleted"), out)
        else:
            self._update = ListUpdate(event.ledger_list, event.version, self._ids)
            if event.ledger_list.state is ListState.OPEN:
                self._ledger = OpenLedger(event.ledger_list.ledgers[-1])
                self._enter(Phase.RECOVERING, out)
            else:
                self._take_over(out)

    def _propose(self, phase: Phase, target: LedgerList, out: list[ManagedLedgerEffect]) -> None:
        assert self._update is not None
        self._go_to(phase)
        self._update.propose(target, out)

    def _take_over(self, out: list[ManagedLedgerEffect]) -> None:
        self._propose(Phase.TAKING_OVER, replace(self._with_end(), owner_token=self._token), out)

    def _with_end(self) -> LedgerList:
        """The list with the end of its open ledger, if it has one."""
        assert self._update is not None
        current = self._update.current
        return current if self._ledger is None else self._ledger.recorded_in(current)

    def _changed(self, outcome: Outcome, out: list[ManagedLedgerEffect]) -> None:
        assert self._update is not None
        if outcome is Outcome.DONE:
            out.append(ListKnown(self._update.current, self._update.version, self._update.size_bytes))
            self._limits = limits(self._policy, self._update.room)
            if self.phase is Phase.NAMING:
                self._begin_ledger()
            else:
                self._go_to(Phase.OPEN if self._is_open else Phase.IDLE)
            self._deletions.begin(self.orders.done(), out)
            self._go_on(out)

    def _superseded(self, found: LedgerList | None, out: list[ManagedLedgerEffect]) -> None:
        """Another owner has the topic, and every attempt of ours is settled by its list: what that lacks, none will name again.

        That is our last ledger, unless an attempt to name it came through before, and what left by a change whose answer was lost.
        """
        named = frozenset() if found is None else found.named_ids
        leaving = self.orders.done()
        ours = leaving if self._unnamed is None else (*leaving, self._unnamed)
        self._end(self._not_owner(), out)
        self._deletions.begin([ledger_id for ledger_id in ours if ledger_id not in named], out)

    def _begin_change(self, out: list[ManagedLedgerEffect]) -> None:
        """Carry out an order; ledgers that the list gives up by it go after that (rule 41, rule 51, rule 70)."""
        assert self._update is not None
        if (change := self.orders.begin(self._update.current, self._unix_ms)) is not None:
            self._propose(*change, out)

    # Ledgers

    def _ledger_answered(self, event: LedgerAnswer, out: list[ManagedLedgerEffect]) -> None:
        if isinstance(event, LedgerDeleted):
            self._deletions.done(event.request_id, out)
        elif isinstance(event, LedgerRequestFailed) and self._deletions.failed(
            event.request_id, self._now_ms
        ):
            out.append(Retrying(event.error))
        elif event.request_id != self._request_id:
            return
        elif isinstance(event, LedgerCreated):
            self._created(event.ledger_id, out)
        elif isinstance(event, LedgerEnded):
            self._ended(event, out)
        else:
            out.append(Retrying(event.error))
            if self.phase is Phase.CLOSING:
                self._enter(Phase.ASKING, out)
            elif self.phase is Phase.CREATING and self._is_open:
                self._propose(Phase.RECORDING, self._with_end(), out)
            else:
                self._read_again()
                self._retry.start(self._now_ms)
                self._go_on(out)

    def _read_again(self) -> None:
        """What was to be recovered may be gone, because another owner has trimmed it: after the pause the list says so."""
        if self.phase is Phase.RECOVERING:
            self._go_to(Phase.READING)
            self._update = self._ledger = None
        elif self.phase is Phase.RESCUING:
            self._go_to(Phase.ASKING)

    def _created(self, ledger_id: LedgerId, out: list[ManagedLedgerEffect]) -> None:
        """Name the ledger, and in the same change the end of the one before it, if the list lacks it."""
        before = self._with_end()
        self._unnamed = ledger_id
        self._ledger = OpenLedger(ListedLedger(ledger_id, self._unix_ms, follows=before.last_confirmed))
        self._propose(Phase.NAMING, self._ledger.named_in(before), out)

    def _begin_ledger(self) -> None:
        assert self._ledger is not None
        self._go_to(Phase.OPEN)
        self._unnamed = None
        self._ledger.open(self._now_ms)
        self._pending.begin_ledger()

    def _ended(self, event: LedgerEnded, out: list[ManagedLedgerEffect]) -> None:
        assert self._ledger is not None
        self._ledger.ended(event.entries, event.size_bytes, self._unix_ms)
        if self.phase is Phase.RECOVERING:
            self._take_over(out)
        elif event.entries < self._pending.acknowledged:  # a person gave up its end (rule 61)
            self._end(self._not_owner(), out)
        else:
            self._acknowledge(self._ledger.id, event.entries - 1, out)
            self._pending.take_back()
            if self._pending.is_waiting and not self._is_full:
                self._enter(Phase.CREATING, out)
            else:
                self._propose(Phase.RECORDING, self._with_end(), out)

    # The end

    def _end(self, error: DaybookError | None, out: list[ManagedLedgerEffect]) -> None:
        self._go_to(Phase.ENDED)
        if error is not None:
            self._pending.fail(error, out)
        out.append(TopicEnded(error))

    def _not_owner(self) -> NotOwnerError:
        return NotOwnerError(f"topic {self._topic} moves to, or has, another owner: look it up again")
