"""The driver: carries out the effects of one machine and feeds it the answers. It decides nothing.

One client process per machine, with its own ZooKeeper session and its own streams. An answer that does not come in time
is turned into a failure here, as the contract says; one that comes later still is fed to the machine all the same,
which has to drop it (rule 18).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import Code
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from tests.fixtures.sends import one_by_one
from tests.model.sim.bookie_calls import ANSWERS, Call, CallAnswer, refusal
from tests.model.sim.checkers import PENDING_BYTES_MAX, REQUESTS_MAX
from tests.model.sim.client_process import Activity
from tests.model.sim.metadata_model import LOST, Session, Versioned
from tests.model.sim.queues import over_limit
from tests.model.sim.streams import REQUEST_TIMEOUT_US, StreamClient
from tests.model.sim.trace import describe
from tests.model.sim.transitions import Party
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

TICK_US: Final = 20 * MS
_QUIET: Final = (ev.Tick, ev.FlushRequested)
"""If nothing comes of these, no queue has grown."""


class Machine(Protocol):
    """What the driver needs of a machine."""

    def step(self, event: Any) -> Iterable[fx.Effect]:
        """Take an event, return effects."""


class Driver(StreamClient):
    """A client process that runs one machine on one ledger."""

    party = Party.RECOVERY
    times_out = True

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        super().__init__(cluster, name, ledger_id, cluster.key_of(ledger_id))
        self.session = cluster.store.connect(self)
        self.machine: Machine | None = None
        self.done = False
        self._activity = Activity.NONE
        self._generation = 0
        self._calls: dict[int, tuple[int, Call]] = {}
        self._confirmed: set[BookieId] = set()
        """Those whose registration was read since the ledger was marked."""
        self.last_named: set[BookieId] | None = None
        """The bookies of the ledger's last fragment, as this client knows it."""
        self._carry_out: dict[type, Callable[..., None]] = {
            fx.SendFrame: self._send_frame,
            fx.PublishLac: self._publish_lac,
            **dict.fromkeys(ANSWERS, self._send_call),
            fx.CasMetadata: self._cas,
            fx.ReadMetadata: self._read_metadata,
        }
        cluster.add_client(self)
        if ledger_id >= 0:
            self.note(f"starts on ledger {ledger_id}")

    # The machine

    def adopt(self, machine: Machine) -> None:
        """Run `machine` from now on; what the one before it still waits for is none of its business."""
        self._generation += 1
        self.machine = machine
        self._end_streams()
        self._frames.clear()
        self._calls.clear()

    @property
    def activity(self) -> Activity:
        """What it does."""
        return self._activity

    @activity.setter
    def activity(self, activity: Activity) -> None:
        """Begin to do something; who else is at it gives a named state."""
        others = self.company()
        if activity is Activity.RECOVERY and Activity.RECOVERY in others:
            self.world.tally.state("second recoverer")
        if {activity, *others} >= {Activity.RECOVERY, Activity.REPAIR} and activity is not Activity.NONE:
            self.world.tally.state("recovery against repair")
        self._activity = activity

    def company(self) -> set[Activity]:
        """What others do with the same ledger now."""
        clients = self.cluster.live_clients()
        return {
            other.activity for other in clients if other is not self and other.ledger_id == self.ledger_id
        }

    def feed(self, event: ev.Event) -> None:
        """Give the machine an event and carry out what it asks for."""
        if self.done or self.machine is None:
            return
        if self.world.tracing and not isinstance(event, ev.Tick):
            self.note(f"← {describe(event)}")
        effects = one_by_one(self.run_machine(event))
        self.stepped(event, effects)
        self.perform(effects)
        if effects or not isinstance(event, _QUIET):
            self._check_queues()

    def run_machine(self, event: ev.Event) -> Iterable[fx.Effect]:
        """Let the machine take `event`, in the way in which a client does."""
        assert self.machine is not None
        return self.machine.step(event)

    def stepped(self, event: ev.Event, effects: list[fx.Effect]) -> None:
        """The machine took `event` and asks for `effects`: checks see both, before any is carried out."""

    def perform(self, effects: Iterable[fx.Effect]) -> None:
        """Carry out effects, in order."""
        for effect in effects:
            if self.world.tracing:
                self.note(f"→ {describe(effect)}")
            self._carry_out[type(effect)](effect)
        self.after_step()

    def after_step(self) -> None:
        """Check the machine after a step."""

    def _check_queues(self) -> None:
        """They are bounded."""
        if len(self._frames) + len(self._calls) > REQUESTS_MAX:
            self.cluster.checkers.fail("bounded queues", f"{self.name} has over {REQUESTS_MAX} requests")
        crowded = over_limit(self.machine)
        if crowded:
            self.cluster.checkers.fail("bounded queues", f"{self.name}: {crowded}")
        if getattr(self.machine, "pending_bytes", 0) > PENDING_BYTES_MAX:
            self.cluster.checkers.fail("bounded queues", f"{self.name} has over {PENDING_BYTES_MAX} bytes")

    def start_ticking(self) -> None:
        """Let time pass for the machine."""
        self.later(TICK_US, self._tick)

    def _tick(self) -> None:
        if self.done:
            return
        self.later(TICK_US, self._tick)
        self._time_out()
        self.feed(ev.Tick(self.world.now_ms))

    def finish(self) -> None:
        """The machine has nothing more to do: the process ends in order and gives its session back."""
        self.done = True
        self._end_streams()
        self.cluster.close_session(self.session)

    def crash(self) -> None:
        """The process dies; its session expires by itself some time later."""
        self.note("crashes")
        self.done = True
        self.cluster.expire_later(self.session)
        self._end_streams()
        self.stop()

    def session_now(self) -> Session:
        """Its present session at ZooKeeper."""
        return self.session

    def session_expired(self) -> None:
        """Connect again; what was asked in the old session has no answer or LOST."""
        self.session = self.cluster.store.connect(self)

    def bookie_lost(self, bookie: BookieId) -> None:
        """Everything that `bookie` was asked and has not answered is unknown."""
        for request_id in [name for name, (_, call) in self._calls.items() if call.bookie == bookie]:
            del self._calls[request_id]
        self.feed(ev.BookieFailed(bookie, Code.CONNECTION_LOST))

    # Calls

    def _send_call(self, effect: Call) -> None:
        """A fence, and a read that fences, asks only who is registered after the ledger was marked, or later (rule 57)."""
        bookie, fences = effect.bookie, isinstance(effect, fx.SendFence) or getattr(effect, "fence", False)
        if not fences or bookie not in self.cluster.twins.split or bookie in self._confirmed:
            self._send_now(effect)
            return
        generation = self._generation

        def confirmed(is_registered: bool) -> None:
            if generation != self._generation:
                return
            if is_registered:
                self._confirmed.add(bookie)
                self._send_now(effect)
            else:
                self.world.tally.state("no witness")
                self.feed(refusal(effect, Code.CONNECTION_LOST))

        self._confirm(bookie, confirmed)

    def _send_now(self, effect: Call) -> None:
        bookie, network = effect.bookie, self.cluster.network
        self._calls[effect.request_id] = (self.world.now_us + REQUEST_TIMEOUT_US, effect)
        if isinstance(effect, fx.SendFence) and network.loses_fence():
            return
        target = self.process_of(bookie)
        if self._is_the_bookie(target):
            source = self.cluster.bookies[bookie]  # the answer travels back as a message of its own
            reply = partial(network.call, source, self, self._replied, self._generation)
            network.call(self, target, target.serve, effect, self.ledger_id, self.key, reply)

    def _replied(self, generation: int, answer: CallAnswer) -> None:
        if generation != self._generation:
            return
        self._calls.pop(answer.request_id, None)
        self.feed(answer)

    def _time_out(self) -> None:
        """Turn answers that did not come into failures. Requests are in the order of their deadlines."""
        if not self.times_out:
            return
        self._watch_stalls()
        now = self.world.now_us
        for send_id, (deadline, bookie) in list(self._frames.items()):
            if deadline > now:
                break
            if self._frames.pop(send_id, None) is not None:
                self.feed(ev.FrameFailed(bookie, send_id, Code.TIMEOUT))
        for request_id, (deadline, call) in list(self._calls.items()):
            if deadline > now:
                break
            if self._calls.pop(request_id, None) is not None:
                self.feed(refusal(call, Code.TIMEOUT))

    # Metadata

    def _cas(self, effect: fx.CasMetadata) -> None:
        store = self.cluster.store
        answer = partial(self._cas_answered, self._generation, effect.request_id, effect.metadata)
        store.request(self.session, answer, store.cas, effect.metadata, effect.expected_version, self.party)

    def _cas_answered(
        self, generation: int, request_id: int, metadata: LedgerMetadata, answer: object
    ) -> None:
        if generation != self._generation:
            return
        if isinstance(answer, tuple):
            outcome, version = answer
            event = ev.CasAnswered(request_id, outcome, version)
            if outcome is ev.CasOutcome.DONE:
                self._adopted(metadata, event)
            else:
                self.feed(event)
        else:
            self.world.tally.state("unknown cas")
            self.feed(ev.CasAnswered(request_id, ev.CasOutcome.UNKNOWN))

    def _read_metadata(self, effect: fx.ReadMetadata) -> None:
        store = self.cluster.store
        answer = partial(self._metadata_read, self._generation, effect.request_id)
        store.request(self.session, answer, store.read, self.ledger_id)

    def _metadata_read(self, generation: int, request_id: int, answer: object) -> None:
        if generation != self._generation:
            return
        if answer is LOST:
            self.feed(ev.MetadataUnreadable(request_id))
        elif isinstance(answer, Versioned):
            self._adopted(answer.metadata, ev.MetadataRead(request_id, answer.metadata, answer.version))
        else:
            self.feed(ev.MetadataRead(request_id, None))

    def _adopted(self, metadata: LedgerMetadata, event: ev.Event) -> None:
        """The metadata is this, perhaps by an own change whose outcome was unknown: pass that to the machine."""
        before, self.last_named = self.last_named, set(metadata.last_fragment.bookies)
        new: set[BookieId] = set()
        if before is not None and metadata.state is LedgerState.OPEN:
            new = (self.last_named - before) & self.cluster.twins.split
        self._named_anew(sorted(new), partial(self._feed_still, self._generation, event))

    def _feed_still(self, generation: int, event: ev.Event) -> None:
        if generation == self._generation:
            self.feed(event)
