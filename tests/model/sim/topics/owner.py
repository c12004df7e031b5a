"""A broker that owns a topic, or believes so, and those who publish to it.

The machine is the one that ships; this is its driver. It creates ledgers once for each request however many answers get lost, unless
it gives the request up, and dies between any two effects.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from daybook.core.errors import MetadataUnavailableError, NotEnoughBookiesError
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, Fragment, LedgerMetadata
from daybook.core.topics import events as tv
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.managed_ledger import ManagedLedger
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from tests.model.sim.client_process import ClientProcess
from tests.model.sim.clients import TICK_US, Driver
from tests.model.sim.metadata_model import Session, Steps
from tests.model.sim.placement_checks import check_new_ledger
from tests.model.sim.queues import over_limit
from tests.model.sim.topics.parts import KEY, TopicDeletion, TopicRecovery, TopicWriter
from tests.model.sim.topics.swarm import TopicSwarm
from tests.model.sim.trace import describe
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster
    from tests.model.sim.topics.life import TopicLife

_TRIES_MAX: Final = 100
_UNKNOWN: Final = MetadataUnavailableError("no answer came; perhaps it was carried out")


class TopicOwner(ClientProcess):
    """One broker, for one topic, from its take-over to its end."""

    ledger_id: LedgerId = -1

    def __init__(self, cluster: "Cluster", name: str, life: "TopicLife", publishes: int) -> None:
        super().__init__(cluster.world, name)
        self.cluster = cluster
        self.topic = life.topic
        self.done = False
        self.session = cluster.store.connect(self)
        self.extent = TopicExtent()
        """What those who read the topic here may see."""
        self.is_serving = False
        self._life = life
        self._checks = life.checks
        self._rng = self.world.rng(name)
        self._chance = self.world.rng(f"{name}/chance")
        self._left = publishes
        self._messages = 0
        self.unanswered: deque[bytes] = deque()
        self._handles: dict[LedgerId, TopicWriter] = {}
        self._parts: list[Driver] = []
        self._deleting: dict[int, LedgerId] = {}
        self._numbers = 0
        self._pace_us = self._rng.choice((4, 15, 40)) * MS
        self._carry_out: dict[type, Callable[[Any], None]] = {
            tv.ReadList: self._read_list,
            tv.CasList: self._cas_list,
            tv.CreateLedger: self._create,
            tv.CloseLedger: self._close,
            tv.RecoverLedger: self._recover,
            tv.DeleteLedger: self._delete,
            tv.Append: self._append,
            tv.Published: self._published,
            tv.PublishFailed: self._publish_failed,
            tv.ListKnown: self._list_known,
            tv.Retrying: lambda _: None,
            tv.TopicEnded: self._ended,
        }
        self.machine = ManagedLedger(
            self.topic, name, policy=life.policy, now_ms=self.world.now_ms, unix_ms=self.world.now_ms
        )
        cluster.add_client(self)
        self.note(f"takes {self.topic} over")
        self.later(TICK_US, self._tick)
        self._publish_later()
        self.perform(self.machine.start())

    # The machine

    def report(self, event: tv.ManagedLedgerEvent) -> None:
        """A part of this process reports; the machine takes it in the next turn."""
        if self.alive and not self.done:
            self.later(0, self.feed, event)

    def feed(self, event: tv.ManagedLedgerEvent) -> None:
        """Give the machine an event and carry out what it asks for."""
        if self.done:
            return
        if self.world.tracing and not isinstance(event, tv.TopicTick):
            self.note(f"← {describe(event)}")  # type: ignore[arg-type] # a dataclass, as all events are
        self._forget_deletion(event)
        effects = self.machine.step(event)
        if isinstance(event, tv.ListRead) and self.is_serving:
            self._check_owner(event)
        self.perform(effects)
        if not self.done:
            self.after_step()

    def _check_owner(self, event: tv.ListRead) -> None:
        """Who has served, and reads that the topic is another's, is at its end (rule 50)."""
        found = event.ledger_list
        if found is not None and found.owner_token != self.name and not self.machine.is_done:
            what = f"{self.name} has read that {found.owner_token} has {self.topic} (rule 50)"
            self.cluster.checkers.fail("an owner stops where another one has the topic", what)

    def perform(self, effects: Iterable[tv.ManagedLedgerEffect]) -> None:
        """Carry out effects, in order; the process may die between any two of them."""
        for effect in effects:
            if self.done:
                return
            if self.world.tracing:
                self.note(f"→ {describe(effect)}")  # type: ignore[arg-type] # a dataclass, as all effects are
            self._carry_out[type(effect)](effect)
            if self.cluster.is_faulty and self._chance.random() < self._life.swarm.crash:
                self.world.tally.fault("client crash")
                self.crash()

    def after_step(self) -> None:
        """Check the machine after a step, and end with it."""
        crowded = over_limit(self.machine) or over_limit(self.extent)
        if crowded:
            self.cluster.checkers.fail("bounded queues", f"{self.name}: {crowded}")
        if self.machine.is_done and not self._deleting:
            self.finish()

    def _tick(self) -> None:
        if self.done:
            return
        self.later(TICK_US, self._tick)
        swarm = self._life.swarm
        if self._chance.random() < swarm.trim:
            retention = Retention(self._chance.choice((0, 0, 100)), self._chance.choice((0, 0, 20)))
            self.feed(tv.TrimRequested(tuple(self._life.marks), retention))
        if self.cluster.is_faulty and self._chance.random() < swarm.unload:
            self.unload()
        self.feed(tv.TopicTick(self.world.now_ms, self.world.now_ms))

    def unload(self) -> None:
        """Ask for the topic to be given up."""
        self.feed(tv.UnloadRequested())

    # Its end

    def finish(self) -> None:
        """Nothing is left to do."""
        self.note("ends in order")
        self.done = True
        if self.unanswered:
            self.cluster.checkers.fail("every message is answered", f"{self.name}: {list(self.unanswered)}")
        for part in self._parts:
            if isinstance(part, TopicWriter):
                part.abandon()
        self.cluster.close_session(self.session)

    def crash(self) -> None:
        """The process dies, with all that it had under way."""
        if self.done:
            return
        self.note("crashes")
        self.done = True
        self._checks.died(self.name, self._deleting.values())
        self.cluster.expire_later(self.session)
        for part in self._parts:
            if not part.done:
                part.die()  # type: ignore[attr-defined] # they are all parts of this process
        self.stop()

    def session_now(self) -> Session:
        """Its present session at ZooKeeper."""
        return self.session

    def session_expired(self) -> None:
        """Connect again: an owner that does not know that its lease is gone continues."""
        self.session = self.cluster.store.connect(self)

    # Publishers

    def _publish_later(self) -> None:
        self.later(int(self._pace_us * 2 * self._rng.random()), self._publish)

    def _publish(self) -> None:
        if self.done or not self._left:
            return
        self._publish_later()
        if self.machine.refusal is None and self.machine.has_room:
            self._left -= 1
            self.publish(self._rng.choice((1, 1, 2, 3)))

    def publish(self, count: int) -> None:
        """So many messages, which are like no others."""
        payloads = [f"{self.name}:{self._messages + number}".encode() for number in range(count)]
        self._messages += count
        self.unanswered += payloads
        self._checks.published(self.topic, self.name, payloads)
        self.feed(tv.PublishRequested(payloads))

    def stop_publishing(self) -> None:
        """Publish no more."""
        self._left = 0

    def _published(self, effect: tv.Published) -> None:
        messages = [self.unanswered.popleft() for _ in range(effect.count)]
        self._checks.acknowledged(self.topic, self.name, effect.ledger_id, effect.first_entry, messages)
        last = Position(effect.ledger_id, effect.first_entry + effect.count - 1)
        self.extent.confirm(last)
        self._checks.visible(self.topic, last)
        self._life.move_marks(self.extent)

    def _publish_failed(self, effect: tv.PublishFailed) -> None:
        for _ in range(effect.count):
            self.unanswered.popleft()

    # The list

    def _read_list(self, effect: tv.ReadList) -> None:
        def read(answer: object) -> None:
            if isinstance(answer, tuple):
                self.feed(tv.ListRead(effect.request_id, *answer))
            else:
                self.feed(MetadataUnreadable(effect.request_id))

        store = self.cluster.store
        store.request(self.session, read, self._life.lists.read, self.topic)

    def _cas_list(self, effect: tv.CasList) -> None:
        def answered(answer: object) -> None:
            if isinstance(answer, tuple):
                self.feed(CasAnswered(effect.request_id, *answer))
            else:
                self.feed(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))

        store, lists = self.cluster.store, self._life.lists
        arguments = self.topic, self.name, effect.ledger_list, effect.expected_version
        store.request(self.session, answered, lists.cas, *arguments)

    def _list_known(self, effect: tv.ListKnown) -> None:
        if not self.is_serving:
            self._life.served(self)
        self.is_serving = True
        self.extent.update(effect.ledger_list)
        self._checks.visible(self.topic, self.extent.last_confirmed)

    def _ended(self, effect: tv.TopicEnded) -> None:
        self.note(f"serves {self.topic} no more: {effect.error or 'unloaded'}")
        self.is_serving = False
        if effect.error is None:
            self.world.tally.state("topic unloaded")

    # Ledgers

    def _part_name(self, what: str) -> str:
        self._numbers += 1
        return f"{self.name}/{what}-{self._numbers}"

    def _create(self, effect: tv.CreateLedger) -> None:
        self.cluster.store.converse(self._creation(effect))

    def _creation(self, effect: tv.CreateLedger) -> Steps:
        cluster, quorum = self.cluster, self.cluster.swarm.quorum
        bookies = cluster.store.bookies()
        try:
            ensemble = cluster.placement.choose(quorum, bookies, self._rng)
        except NotEnoughBookiesError as error:
            self.report(tv.LedgerRequestFailed(effect.request_id, error))
            return

        def make(ledger_id: LedgerId) -> LedgerMetadata:
            metadata = LedgerMetadata(
                ledger_id,
                quorum,
                (Fragment(0, 0, ensemble),),
                password_hash=KEY,
                writer_token=self.name,
                custom_metadata={TOPIC_KEY: self.topic.encode()},
            )
            check_new_ledger(cluster.checkers, cluster.placement, metadata, bookies)
            return metadata

        lists, request = self._life.lists, (self.name, effect.request_id)
        for _ in range(_TRIES_MAX):
            answer = yield self.session, lists.create_ledger, request, self.topic, make
            if isinstance(answer, LedgerMetadata):
                self._created(effect, answer)
                return
            if self._chance.random() < self._life.swarm.unknown:
                break
        self._checks.unknown(request)
        self.report(tv.LedgerRequestFailed(effect.request_id, _UNKNOWN))

    def _created(self, effect: tv.CreateLedger, metadata: LedgerMetadata) -> None:
        ledger_id = metadata.ledger_id
        if self.done:
            return
        writer = TopicWriter(self, f"{self.name}/ledger-{ledger_id}", metadata, 0)
        self._handles[ledger_id] = writer
        self._parts.append(writer)
        self.feed(tv.LedgerCreated(effect.request_id, ledger_id))

    def _append(self, effect: tv.Append) -> None:
        self._checks.written(self.topic, effect.ledger_id)
        writer = self._handles.get(effect.ledger_id)
        if writer is not None:
            writer.append(effect.payloads)

    def _close(self, effect: tv.CloseLedger) -> None:
        self._handles[effect.ledger_id].close_for(effect.request_id)

    def _drop(self, ledger_id: LedgerId) -> None:
        writer = self._handles.pop(ledger_id, None)
        if writer is not None:
            writer.abandon()

    def _recover(self, effect: tv.RecoverLedger) -> None:
        self._drop(effect.ledger_id)
        name = self._part_name("recovery")
        self._parts.append(TopicRecovery(self, name, effect.ledger_id, effect.request_id))

    def _delete(self, effect: tv.DeleteLedger) -> None:
        self._drop(effect.ledger_id)
        self._checks.deleting(effect.ledger_id)
        self._deleting[effect.request_id] = effect.ledger_id
        if self._chance.random() < self._life.swarm.unknown:
            self.report(tv.LedgerRequestFailed(effect.request_id, _UNKNOWN))
            return
        name = self._part_name("deletion")
        self._parts.append(TopicDeletion(self, name, effect.ledger_id, effect.request_id))

    def _forget_deletion(self, event: tv.ManagedLedgerEvent) -> None:
        """A deletion was answered; an owner that ends leaves behind what it could not delete."""
        if isinstance(event, tv.LedgerDeleted | tv.LedgerRequestFailed):
            ledger_id = self._deleting.pop(event.request_id, None)
            if ledger_id is not None and isinstance(event, tv.LedgerRequestFailed):
                self._checks.gave_up(ledger_id)


def draw_policy(swarm: TopicSwarm) -> ManagedLedgerPolicy:
    """The limits of a ledger."""
    return ManagedLedgerPolicy(
        entries_max=swarm.entries_max,
        age_ms_min=0,
        age_ms_max=swarm.age_ms_max,
        idle_ms_max=swarm.idle_ms_max,
        retry_ms=20,
    )
