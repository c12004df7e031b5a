"""One run: start everything, let it go wrong for a while, stop the faults, and see it heal.

"Heals" is exact: every ledger gets closed, every bookie that metadata names holds all it owes and vouches for it, and
every acknowledged entry is read back through an ordinary reader and compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import format_exception
from typing import Final

from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, Fragment, LedgerMetadata, LedgerState
from daybook.core.repair.task import RepairTask
from daybook.core.writer.writer import LedgerWriter
from tests.model.sim.actors import DeletionClient, RecoveryClient
from tests.model.sim.auditing import AUDITOR_LOCK, AuditorClient, WorkerClient
from tests.model.sim.client_process import Activity
from tests.model.sim.clients import Driver
from tests.model.sim.cluster import KEY, Cluster
from tests.model.sim.disk_faults import DiskFaults
from tests.model.sim.drills import Drills
from tests.model.sim.faults import Faults
from tests.model.sim.healed_checks import misplaced, orphans, unregistered
from tests.model.sim.placement_checks import check_new_ledger
from tests.model.sim.readers import CatchUpClient, TailClient, start_final_read
from tests.model.sim.shipped.caretaking import Caretaker, Operator
from tests.model.sim.shipped.pretence import pretence
from tests.model.sim.shipped.process import ShippedProcess
from tests.model.sim.shipped.users import Users
from tests.model.sim.swarm import Swarm
from tests.model.sim.topics.life import TopicLife, begin_topics
from tests.model.sim.trace import Tally
from tests.model.sim.world import MS, ViolationError
from tests.model.sim.writers import WriterClient

_ORCHESTRATE_US: Final = 20 * MS
_LATE_US: Final = 80 * MS
"""How much later another worker that found the same task gets to it."""
_ROUND_US: Final = 40 * MS
_FINAL_READ_US: Final = 300 * MS
_READ_STEP_US: Final = 5 * MS
_ROUNDS_MAX: Final = 200
_ROUNDS_PER_LEDGER: Final = 8
"""A slow auditor needs as long for each, and two cycles; a topic that finds no bookies for long makes a hundred ledgers."""
_ANSWER_ROUNDS_MAX: Final = 60
_WIND_UP_ROUNDS_MAX: Final = 150


@dataclass(slots=True)
class Result:
    """What one seed came to. `failure` is None if the promise held."""

    seed: int
    events: int = 0
    simulated_us: int = 0
    acked: int = 0
    failure: str | None = None
    tally: Tally = field(default_factory=Tally)
    trace: list[str] = field(default_factory=list)


class Scenario:
    """The run of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.faults = Faults(cluster)
        self._rng = cluster.world.rng("scenario")
        self._chance = cluster.world.rng("scenario at a moment")
        self._late = cluster.world.rng("late workers")
        self._names = 0
        self._read: set[LedgerId] = set()
        self._shipped: list[tuple[ShippedProcess, Users]] = []
        self._caretakers: list[Caretaker | Operator] = []
        self._leaving: BookieId | None = None
        self._topics: list[TopicLife] = []

    def run(self) -> None:
        """Raise ViolationError, or whatever a machine raised, if something is wrong."""
        swarm = self.cluster.swarm
        self.cluster.boot()
        for _ in range(swarm.writers):
            self.new_writer(WriterClient)
        for _ in range(swarm.recoverers):
            self._some_time(self._on_some_ledger, RecoveryClient, "recovery")
        for _ in range(swarm.deleters):
            self._some_time(self._on_some_ledger, DeletionClient, "deletion")
        for _ in range(swarm.readers):
            self._some_time(self._on_some_ledger, CatchUpClient, "reader")
        self._some_time(self._write_unattached)
        for _ in range(swarm.tails):
            self._on_some_ledger(TailClient, "tail")
        for _ in range(self.cluster.shipped.processes):
            self._ship()
        self._topics = begin_topics(self.cluster, self.name)
        self.faults.schedule()
        self.cluster.twins.schedule()
        DiskFaults(self.cluster, self.faults.crash).schedule()
        self.cluster.repair_started = self._repair_started
        self.cluster.crash_bookie = self.faults.crash
        self.cluster.naming_successors = self._naming_successors
        self.cluster.force_ahead = self.faults.force_ahead
        self._draw_leaving()
        self._orchestrate()
        self.world.run(self.world.now_us + swarm.fault_window_us)
        self.world.note("faults", "stop")
        self.cluster.heal()
        self._settle()

    def name(self, kind: str) -> str:
        """A new name for a process."""
        self._names += 1
        return f"{kind}-{self._names}"

    def _orchestrate(self) -> None:
        """As an operator does: there is an auditor, and workers for the tasks that are due."""
        cluster = self.cluster
        self.world.at(self.world.now_us + _ORCHESTRATE_US, None, self._orchestrate)
        clients = cluster.live_clients()
        if cluster.shipped.caretakers:
            self._take_care()
            return
        if AUDITOR_LOCK not in cluster.store.locks:
            AuditorClient(cluster, self.name("auditor"))
        working = {client.ledger_id for client in clients if isinstance(client, WorkerClient)}
        for task in self._due():
            ledger_id = task.ledger_id
            if len(working) >= cluster.swarm.workers:
                break
            if f"ledger-{ledger_id}" not in cluster.store.locks:
                WorkerClient(cluster, self.name("worker"), ledger_id, found=task)
                working.add(ledger_id)
                if self._late.random() < cluster.swarm.late_worker:
                    late = partial(WorkerClient, cluster, self.name("late"), ledger_id, found=task)
                    self.world.at(self.world.now_us + int(_LATE_US * self._late.random()), None, late)

    def _due(self) -> list[RepairTask]:
        """The tasks that are due, first those that are due for the longest time."""
        store, now_ms = self.cluster.store, self.world.now_ms
        tasks = [task for ledger_id in store.tasks if (task := store.read_task(ledger_id).task)]
        due = [
            (at_ms, task.ledger_id, task)
            for task in tasks
            if (at_ms := self.cluster.due_times.not_before_ms(task, unix_ms=now_ms, monotonic_ms=now_ms))
            <= now_ms
        ]
        return [task for *_, task in sorted(due)]

    def _take_care(self) -> None:
        """Those that ship are started again when they die; an operator begins again where he was cut short."""
        shipped = self.cluster.shipped
        self._caretakers = [process for process in self._caretakers if process.alive and not process.done]
        while sum(isinstance(process, Caretaker) for process in self._caretakers) < shipped.caretakers:
            self._begin(Caretaker(self.cluster, self.name("caretaker")))
        if self._stays() and not any(isinstance(process, Operator) for process in self._caretakers):
            assert self._leaving is not None
            self._begin(Operator(self.cluster, self.name("operator"), self._leaving))

    def _stays(self) -> bool:
        """Whether a bookie is to be taken out and is there yet."""
        return self._leaving is not None and not self.cluster.is_taken_out(self._leaving)

    def _begin(self, process: Caretaker | Operator) -> None:
        self._caretakers.append(process)
        process.start(process.work)

    def _draw_leaving(self) -> None:
        """One bookie is taken out, where enough others are left."""
        cluster = self.cluster
        bookies = list(cluster.bookies)
        if (
            cluster.shipped.caretakers
            and cluster.shipped.decommission
            and len(bookies) > cluster.swarm.quorum.ensemble_size
        ):
            self._leaving = self.world.rng("who leaves").choice(bookies)

    def _some_time(self, call: Callable[..., None], *args: object) -> None:
        """Rather early, while writers are active: others interfere with them then."""
        when = self.world.now_us + int(self.cluster.swarm.fault_window_us * self._rng.random() ** 3)
        self.world.at(when, None, call, *args)

    def new_writer(self, kind: type[WriterClient]) -> WriterClient:
        """A ledger that was created for, and attached by, a new writer."""
        cluster = self.cluster
        quorum = cluster.swarm.quorum
        bookies = cluster.store.bookies()
        ensemble = cluster.placement.choose(quorum, bookies, self._rng)
        metadata = LedgerMetadata(
            cluster.store.new_ledger_id(),
            quorum,
            (Fragment(0, 0, ensemble),),
            password_hash=KEY,
            writer_token="token",
        )
        check_new_ledger(cluster.checkers, cluster.placement, metadata, bookies)
        version = cluster.store.create(metadata)
        return kind(cluster, self.name("writer"), metadata, version)

    def _write_unattached(self) -> None:
        """A careless client writes a ledger that it has read and not attached: it is let in by no one (rule 53)."""
        found = self.cluster.store.ledgers.get(self._some_ledger() or 0)
        if found is None:
            return
        metadata = found.metadata
        if metadata.state is LedgerState.OPEN and len(metadata.fragments) == 1:
            metadata = replace(metadata, writer_token=None)
        placement, rng = self.cluster.placement, self._rng
        try:
            LedgerWriter(metadata, found.version, placement=placement, rng=rng, bookies={})
        except MetadataError:
            return
        self.cluster.checkers.fail("a ledger has one writer", f"{metadata} let in another (rule 53)")

    def _some_ledger(self) -> LedgerId | None:
        ledgers = sorted(self.cluster.store.ledgers)
        return self._rng.choice(ledgers) if ledgers else None

    def _on_some_ledger(self, kind: Callable[[Cluster, str, LedgerId], Driver], name: str) -> None:
        ledger = self._some_ledger()
        if ledger is not None and not (kind is DeletionClient and self._is_of_a_topic(ledger)):
            kind(self.cluster, self.name(name), ledger)

    def _is_of_a_topic(self, ledger_id: LedgerId) -> bool:
        """Only its owner deletes it."""
        found = self.cluster.store.ledgers.get(ledger_id)
        return found is not None and TOPIC_KEY in found.metadata.custom_metadata

    def _repair_started(self, worker: WorkerClient) -> None:
        """Now is when a deletion, a recovery and a repair could hurt each other (rule 56)."""
        self.faults.repair_started(worker)
        cluster = self.cluster
        if not worker.by_hand and self._chance.random() < cluster.swarm.second_worker:
            by_hand = partial(WorkerClient, cluster, self.name("by-hand"), worker.ledger_id, by_hand=True)
            self.world.at(self.world.now_us + int(3 * MS * self._chance.random()), None, by_hand)
        is_wanted = cluster.is_faulty and self._rng.random() < cluster.swarm.delete_at_repair
        if is_wanted and not self._is_of_a_topic(worker.ledger_id):
            now = self.world.now_us
            deletion = partial(DeletionClient, cluster, self.name("deletion"), worker.ledger_id)
            recovery = partial(RecoveryClient, cluster, self.name("recovery"), worker.ledger_id)
            self.world.at(now, None, deletion)
            self.world.at(now + int(8 * MS * self._rng.random()), None, recovery)

    def _naming_successors(self, worker: WorkerClient) -> None:
        """A recovery that begins now meets the change of an older fragment on its way (rule 19, rule 56)."""
        self.faults.naming_successors(worker)
        cluster = self.cluster
        found = cluster.store.ledgers.get(worker.ledger_id)
        is_open = found is not None and not found.metadata.is_closed
        if cluster.is_faulty and is_open and self._chance.random() < cluster.swarm.recover_at_naming:
            recovery = partial(RecoveryClient, cluster, self.name("recovery"), worker.ledger_id)
            self.world.at(self.world.now_us, None, recovery)

    def _ship(self) -> None:
        process = ShippedProcess(self.cluster, self.name("shipped"))
        users = Users(process, self.cluster.shipped)
        self._shipped.append((process, users))
        process.start(users.work)

    # Healing

    def _settle(self) -> None:
        self._wait_for_answers()
        self._wind_up()
        for topic in self._topics:
            topic.settle()
        for client in self.cluster.live_clients():
            if isinstance(client, WriterClient):
                if self._rng.random() < 0.5:
                    client.close()
                else:
                    client.crash()
        for _ in range(max(_ROUNDS_MAX, _ROUNDS_PER_LEDGER * len(self.cluster.store.ledgers))):
            self.world.run(self.world.now_us + _ROUND_US)
            if self._unsettled() is None:
                self._read_everything()
                if self._leaving is None:
                    Drills(self).run()
                return
            self._help()
        left = self._unsettled()
        assert left is not None
        self.cluster.checkers.fail(f"{left[0]} once the faults have stopped", "; ".join(left[1]))

    def _wait_for_answers(self) -> None:
        """Whatever was appended is acknowledged or fails, now that all is well."""
        if self.cluster.swarm.explicit_ids:
            return  # a gap holds up what is behind it for as long as its user likes
        writers = [client for client in self.cluster.live_clients() if isinstance(client, WriterClient)]
        waiting = {writer: writer.checks.unanswered() for writer in writers}
        for _ in range(_ANSWER_ROUNDS_MAX):
            if not any(waiting.values()):
                return
            self.world.run(self.world.now_us + _ORCHESTRATE_US)
            for writer, tokens in waiting.items():
                left = set() if writer.done else set(writer.checks.unanswered())
                waiting[writer] = [token for token in tokens if token in left]
        writer = next(writer for writer, tokens in waiting.items() if tokens)
        self.cluster.checkers.fail("every append is answered", f"{waiting[writer]} of {writer.name} are not")

    def _wind_up(self) -> None:
        """The writers of what ships come to their end; its readers do when the ledgers are closed."""
        for process, _ in self._shipped:
            if not process.done:
                process.wind_up()
        for _ in range(_WIND_UP_ROUNDS_MAX):
            writing = [process.name for process, users in self._shipped if users.writing and not process.done]
            if not writing:
                self._created_once()
                return
            self.world.run(self.world.now_us + _ORCHESTRATE_US)
        self.cluster.checkers.fail("every writer that ships comes to its end", f"{writing} are at it yet")

    def _created_once(self) -> None:
        """Who creates one ledger makes one, whatever answers were lost (rule 42).

        What another client recovered or deleted in the meantime is no ledger to write any more: there is another one.
        """
        found = self.cluster.store.ledgers
        for process, _ in self._shipped:
            made = [ledger for ledger, owner in process.store.created_by.items() if owner is process]
            left = [ledger for ledger in made if ledger in found and not found[ledger].version]
            if process.alive and not process.is_unsure and not process.given.issuperset(left):
                what = f"{process.name} made {left} and was given {sorted(process.given)} (rule 42)"
                self.cluster.checkers.fail("a ledger is created once", what)

    def _unsettled(self) -> tuple[str, list[str]] | None:
        """What is not as it must be in the end: its name, and what is wrong in words; None if all is well."""
        checkers, store = self.cluster.checkers, self.cluster.store
        not_closed = [
            f"ledger {ledger_id} is {found.metadata.state.value}"
            for ledger_id, found in store.ledgers.items()
            if found.metadata.state is not LedgerState.CLOSED
        ]
        deleting = [
            f"{c.name} has not ended" for c in self.cluster.live_clients() if isinstance(c, DeletionClient)
        ]
        at_it = [f"{process.name} has not ended" for process, _ in self._shipped if not process.done]
        staying = [f"{self._leaving} is there yet"] if self._stays() else []
        gone = {name for name, bookie in self.cluster.bookies.items() if bookie.gone}
        wishes: tuple[tuple[str, Callable[[], list[str]]], ...] = (
            ("every ledger gets closed", lambda: not_closed),
            ("every bookie registers", lambda: unregistered(self.cluster.bookies, store)),
            ("every deletion ends", lambda: deleting),
            ("every client that ships ends", lambda: at_it),
            ("a bookie can be taken out", lambda: staying),
            ("everything is fully replicated", checkers.under_replicated),
            ("nothing is left of what was deleted or moved", lambda: orphans(checkers, gone)),
            ("placement is kept", lambda: misplaced(checkers, store.bookies())),
            ("the auditor finds nothing", self._open_findings),
        )
        return next(((name, left) for name, find in wishes if (left := find())), None)

    def _open_findings(self) -> list[str]:
        return [] if self.cluster.fully_replicated else ["it still finds something"]

    def _help(self) -> None:
        """Recover what no one writes or recovers."""
        busy = {
            client.ledger_id
            for client in self.cluster.live_clients()
            if isinstance(client, WriterClient) or client.activity is Activity.RECOVERY
        }
        for ledger_id, found in list(self.cluster.store.ledgers.items()):
            if not found.metadata.is_closed and ledger_id not in busy:
                RecoveryClient(self.cluster, self.name("recovery"), ledger_id)

    def _read_everything(self) -> None:
        """Every ledger, from its first to its last entry, by ordinary readers."""
        for _, found in sorted(self.cluster.store.ledgers.items()):
            start_final_read(self.cluster, self.name("final"), found.metadata, self._was_read)
        deadline_us = self.world.now_us + _FINAL_READ_US
        unread = sorted(self.cluster.store.ledgers.keys() - self._read)
        while unread and self.world.now_us < deadline_us:
            self.world.run(self.world.now_us + _READ_STEP_US)
            unread = sorted(self.cluster.store.ledgers.keys() - self._read)
        if unread:
            msg = f"every ledger can be read to its end: ledgers {unread} cannot, though all is well"
            raise ViolationError(msg)

    def take_apart(self) -> None:
        """The run is over: nothing of what ships may continue by itself."""
        owners = [owner for topic in self._topics for owner in topic.owners]
        for process in (*(process for process, _ in self._shipped), *self._caretakers, *owners):
            if process.alive:
                process.stop()
                process.loop.detach()

    def _was_read(self, ledger_id: LedgerId, last: EntryId) -> None:
        if last == self.cluster.store.ledgers[ledger_id].metadata.last_entry:
            self._read.add(ledger_id)


def run_seed(seed: int, *, tracing: bool = False, swarm: Swarm | None = None) -> Result:
    """Run one seed to its end."""
    cluster = Cluster(seed, tracing=tracing, swarm=swarm)
    failure = None
    scenario = Scenario(cluster)
    try:
        if cluster.ships:
            with pretence(cluster.world.rng("chance"), tracing=tracing):
                try:
                    scenario.run()
                finally:
                    scenario.take_apart()
        else:
            scenario.run()
    except Exception as error:  # noqa: BLE001 - whatever a machine raises is a finding, with its seed
        failure = f"{type(error).__name__}: {error}"
        cluster.world.note("run", f"FAILED: {failure}")
        if tracing:
            cluster.world.trace.lines += format_exception(error)
    world = cluster.world
    return Result(
        seed,
        world.events,
        world.now_us,
        sum(oracle.acked + 1 for oracle in cluster.checkers.oracles.values()),
        failure,
        world.tally,
        world.trace.lines,
    )
