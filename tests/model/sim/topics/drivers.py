"""The drivers of a topic as they ship, watched: their machines' effects are carried out one by one, and the owner may die between two.

They decide nothing that the shipped ones do not decide. What they see goes to the checks.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daybook_broker.topics.cursor import SubscriptionCursor
from daybook_broker.topics.managed_ledger import TopicLedgers

from daybook.core.events import CasAnswered, CasOutcome
from daybook.core.topics import cursor_events as ce
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import NO_LEDGER, AckedRange, CursorRecord
from daybook.core.topics.events import ListRead, ManagedLedgerEffect, ManagedLedgerEvent, TopicTick
from daybook.core.topics.extent import TopicExtent
from tests.model.sim.topics.cursor_oracle import CursorOracle, entries_of
from tests.model.sim.trace import describe

if TYPE_CHECKING:
    from tests.model.sim.topics.owner import TopicOwner


class WatchedLedgers(TopicLedgers):
    """The ledgers of a topic on an owner."""

    def __init__(self, owner: "TopicOwner", *args: Any, **named: Any) -> None:
        self._owner = owner
        super().__init__(*args, **named)

    async def deleted(self) -> None:
        """Wait until no deletion is under way."""
        await self._deletions.finished()

    def _step(self, event: ManagedLedgerEvent) -> None:
        owner = self._owner
        if not owner.alive:
            return
        if owner.world.tracing and not isinstance(event, TopicTick):
            owner.note(f"← {describe(event)}")  # type: ignore[arg-type] # a dataclass, as all events are
        if isinstance(event, CasAnswered) and event.outcome is CasOutcome.CONFLICT:
            owner.world.tally.state("list conflict")
        super()._step(event)
        if isinstance(event, ListRead):
            self._check_owner(event)
        owner.check_queues(self._machine)

    def _check_owner(self, event: ListRead) -> None:
        """Who has served, and reads that the topic is another's, is at its end (rule 50)."""
        found, owner = event.ledger_list, self._owner
        if owner.is_serving and found is not None and found.owner_token != owner.name:
            what = f"{owner.name} has read that {found.owner_token} has {self.name} (rule 50)"
            owner.cluster.checkers.fail("an owner stops where another one has the topic", what)

    def _perform(self, effects: Sequence[ManagedLedgerEffect]) -> None:
        for effect in effects:
            if self._owner.alive:
                self._owner.carries_out(effect)
                super()._perform([effect])
                self._owner.may_die()


class WatchedCursor(SubscriptionCursor):
    """A cursor on an owner."""

    def __init__(self, owner: "TopicOwner", *args: Any, **named: Any) -> None:
        self._owner = owner
        self._is_lost = False
        super().__init__(*args, **named)

    @property
    def oracle(self) -> CursorOracle:
        """What is known of the subscription."""
        return self._owner.checks.oracles[str(self.topic)].cursors[self.subscription]

    async def deleted(self) -> None:
        """Wait until no deletion is under way."""
        await self._deletions.finished()

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left to be done."""
        return self._is_over

    def _step(self, event: ce.CursorEvent) -> None:
        if not self._owner.alive:
            return
        if self._owner.world.tracing and not isinstance(event, ce.CursorTick | ce.ListMoved):
            self._owner.note(f"{self.subscription} ← {describe(event)}")  # type: ignore[arg-type] # as above
        super()._step(event)
        self._owner.check_queues(self._machine)

    def _perform(self, effects: Sequence[ce.CursorEffect]) -> None:
        for effect in effects:
            if self._owner.alive:
                self._owner.carries_out(effect)
                self._judge(effect)
                super()._perform([effect])
                self._owner.may_die()

    def _judge(self, effect: ce.CursorEffect) -> None:
        owner = self._owner
        match effect:
            case ce.RecordLost(ledger_id, error):
                self._is_lost = True
                if owner.has_topic:
                    self.oracle.record_lost(owner.name, ledger_id, error)
            case ce.CursorOpened():
                self._opened()
            case ce.AppendRecord(data=data):
                self.oracle.sent(owner.name, CursorRecord.from_json(data))
            case ce.PutCursor(record=record):
                self.oracle.sent(owner.name, record)
            case ce.CursorPersisted(version):
                self.oracle.persisted(owner.name, version)

    def _opened(self) -> None:
        owner = self._owner
        if self.oracle.node.cursor_ledger != NO_LEDGER and not self._is_lost:
            owner.world.tally.state("cursor recovered")
        self.oracle.opened(
            owner.name,
            owner.checks.epoch_of(str(self.topic), owner.name),
            state_of(self.acks, owner.extent),
            owner.extent,
            is_owner=owner.has_topic,
            is_lost=self._is_lost,
        )


def state_of(acks: AckState, extent: TopicExtent) -> CursorRecord:
    """All that is acknowledged now, asked entry by entry."""
    beyond = [position for position in entries_of(extent) if position > acks.mark_delete]
    return CursorRecord(
        acks.mark_delete,
        tuple(AckedRange(*position, position.entry_id) for position in beyond if acks.is_acked(position)),
        tuple((position, words) for position in beyond if (words := acks.ack_set(position))),
    )
