"""The clients of a run: writers, recoveries, deletions and repairs, each a driver around its machine.

They are users, not judges: they append, crash, close and delete as chance tells them, and report to the checkers what
they were promised.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from daybook.core import events as ev
from daybook.core.bookie import Purpose
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.metadata import LedgerMetadata, LedgerState
from daybook.core.recovery import LedgerRecovery, RecoveryPolicy
from daybook.core.repair import LedgerRepair
from daybook.core.repair_copy import RepairPolicy
from daybook.core.repair_plan import RepairPlan
from daybook.core.writer import LedgerWriter
from daybook.core.writer_policy import WriterPolicy
from tests.sim.clients import Driver
from tests.sim.metadata_model import LOST, Versioned
from tests.sim.world import MS

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster

KEY = "key"


class WriterClient(Driver):
    """Appends, forces, closes or dies; what it was promised goes to the checkers."""

    purpose = Purpose.WRITE
    machine: LedgerWriter

    def __init__(self, cluster: "Cluster", name: str, metadata: LedgerMetadata, version: int) -> None:
        super().__init__(cluster, name, metadata.ledger_id, KEY)
        swarm = cluster.swarm
        self._rng = self.world.rng(name)
        self._left = swarm.appends
        self._next: EntryId = 0
        self._token = 0
        self._ids: dict[int, tuple[EntryId, EntryId]] = {}
        self._lac: EntryId = NO_ENTRY
        self._failed_idle = False
        self._explicit: list[EntryId] = []
        self.machine = LedgerWriter(
            metadata,
            version,
            policy=WriterPolicy(
                lac_publish_ms=20,
                probe_ms=40,
                quorum_wait_ms=self._rng.choice((0, 100, 400)),
                lag_ms_max=self._rng.choice((100, 300)),
                quarantine_ms=self._rng.choice((50, 300)),
                metadata_retry_ms=20,
            ),
            placement=cluster.placement,
            rng=self.world.rng(f"{name}/placement"),
            bookies=cluster.store.bookies(),
            now_ms=self.world.now_ms,
            explicit_ids=swarm.explicit_ids,
            deferred_sync=swarm.deferred_sync,
        )
        self._carry_out |= {
            ev.Complete: self._complete,
            ev.Fail: self._fail,
            ev.Forced: self._forced,
            ev.Closed: self._closed,
            ev.HandleEnded: self._handle_ended,
            ev.Degraded: self._degraded,
            ev.Quarantined: _ignore,
            ev.EnsembleChanged: self._ensemble_changed,
        }
        self._pace_us = self._rng.choice((2, 8, 25)) * MS
        self._closes = self._rng.random() < 0.5
        self.start_ticking()
        self._append_later()

    # The user

    def _append_later(self) -> None:
        self.later(int(self._pace_us * 2 * self._rng.random()), self._append)

    def _append(self) -> None:
        if self.done:
            return
        if not self._left:
            if self._closes:
                self.close()
            return
        self._left -= 1
        self._append_later()
        payloads = self._payloads(1 if self.cluster.swarm.explicit_ids else self._rng.choice((1, 1, 2, 5)))
        self._token += 1
        self.feed(ev.AppendRequested(self._token, payloads, self._entry_ids(payloads)))
        if self._rng.random() < 0.8:
            self.room()
        else:
            self.later(int(3 * MS * self._rng.random()), self.room)
        if self.cluster.swarm.deferred_sync and self._rng.random() < 0.4:
            self._token += 1
            self.feed(ev.ForceRequested(self._token))

    def _payloads(self, count: int) -> list[bytes]:
        return [self._rng.randbytes(self._rng.randrange(12)) for _ in range(count)]

    def _entry_ids(self, payloads: list[bytes]) -> list[EntryId] | None:
        """Tell the checkers which entry each payload is to be; choose the ids where the ledger lets its caller."""
        first = self._next
        self._next += len(payloads)
        ids = list(range(first, self._next))
        explicit = self.cluster.swarm.explicit_ids
        if explicit:
            if not self._explicit:
                self._explicit = list(range(first, first + 3))
                self._rng.shuffle(self._explicit)
            ids = [self._explicit.pop() for _ in payloads]
        for entry_id, payload in zip(ids, payloads, strict=True):
            self.cluster.checkers.appended(self.ledger_id, entry_id, payload)
        self._ids[self._token] = (ids[0], ids[-1])
        return ids if explicit else None

    def room(self) -> None:
        """A channel has room: seal what gathered."""
        self.feed(ev.FlushRequested())

    def close(self) -> None:
        """Close the ledger."""
        self._left = 0
        self._token += 1
        self.feed(ev.CloseRequested(self._token))

    # What it was told

    def feed(self, event: ev.Event) -> None:
        """Note whether a bookie fails while nothing is pending, and step."""
        if not self.done and isinstance(event, ev.BookieFailed | ev.FrameFailed):
            machine = self.machine
            idle = machine.last_add_confirmed == machine.last_add_pushed
            self._failed_idle = idle and event.bookie in machine.metadata.last_fragment.bookies
        super().feed(event)

    def metadata_connection(self, *, connected: bool) -> None:
        """A writer goes on without ZooKeeper (rule 46)."""
        self.feed(ev.MetadataConnection(connected))

    def after_step(self) -> None:
        """The LAC only rises."""
        super().after_step()
        lac = self.machine.last_add_confirmed
        self.cluster.checkers.writer_lac(self.ledger_id, self._lac, lac)
        self._lac = lac

    def _complete(self, effect: ev.Complete) -> None:
        expected = self._ids.pop(effect.token)
        checkers = self.cluster.checkers
        if (effect.first, effect.last) != expected:
            checkers.fail("NoOutOfOrderEntries", f"{self.name} expected {expected}, got {effect}")
        if not self.cluster.swarm.deferred_sync:
            checkers.completed(self.machine.metadata, effect.first, effect.last)

    def _forced(self, effect: ev.Forced) -> None:
        """With deferred sync only this acknowledges (rule 22), and on the whole ensemble."""
        first = self.cluster.checkers.ghosts[self.ledger_id].acked + 1
        if effect.last_add_confirmed >= first:
            self.cluster.checkers.completed(self.machine.metadata, first, effect.last_add_confirmed)

    def _fail(self, effect: ev.Fail) -> None:
        self._ids.pop(effect.token, None)

    def _closed(self, effect: ev.Closed) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.finish()

    def _handle_ended(self, _effect: ev.HandleEnded) -> None:
        self.finish()

    def _degraded(self, effect: ev.Degraded) -> None:
        self.world.tally.state("no spare" if effect.missing else "no spare ended")

    def _ensemble_changed(self, _effect: ev.EnsembleChanged) -> None:
        if self._failed_idle:
            self.world.tally.state("deferred change")
        self._failed_idle = False


class RecoveryClient(Driver):
    """Recovers one ledger once."""

    machine: LedgerRecovery

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        others = [other for other in cluster.live_clients() if other.ledger_id == ledger_id]
        super().__init__(cluster, name, ledger_id, KEY)
        if any(isinstance(other, RecoveryClient) for other in others):
            self.world.tally.state("second recoverer")
        if any(isinstance(other, RepairClient) for other in others):
            self.world.tally.state("recovery against repair")
        rng = self.world.rng(name)
        self.recovered: LedgerMetadata | None = None
        self.machine = LedgerRecovery(
            ledger_id,
            placement=cluster.placement,
            rng=rng,
            bookies=cluster.store.bookies(),
            policy=RecoveryPolicy(
                window_entries=rng.choice((1, 3, 16)), speculate_ms=20, metadata_retry_ms=20
            ),
            now_ms=self.world.now_ms,
        )
        self._carry_out |= {ev.Recovered: self._recovered, ev.RecoveryFailed: self._recovery_failed}
        self.start_ticking()
        self.perform(self.machine.start())

    def _recovered(self, effect: ev.Recovered) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.recovered = effect.metadata
        self.finish()

    def _recovery_failed(self, effect: ev.RecoveryFailed) -> None:
        self.finish()


class DeletionClient(RecoveryClient):
    """Deletes a ledger: one that is not CLOSED is recovered first (rule 20)."""

    def _recovered(self, effect: ev.Recovered) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self._read()

    def _read(self) -> None:
        store = self.cluster.store
        store.request(self.session, self._delete, store.read, self.ledger_id)

    def _delete(self, answer: object) -> None:
        store = self.cluster.store
        if isinstance(answer, Versioned):
            assert answer.metadata.state is LedgerState.CLOSED
            request = partial(self._delete_carried_out, answer.version)
            store.request(self.session, self._deleted, request)
        elif answer is LOST:
            self.later(20 * MS, self._read)
        else:
            self.finish()

    def _delete_carried_out(self, version: int) -> ev.CasOutcome:
        outcome = self.cluster.store.delete(self.ledger_id, version)
        if outcome is ev.CasOutcome.DONE:
            self._note_company()
        return outcome

    def _note_company(self) -> None:
        tally = self.world.tally
        others = [other for other in self.cluster.live_clients() if other.ledger_id == self.ledger_id]
        recovering = any(isinstance(other, RecoveryClient) and other is not self for other in others)
        repairing = any(isinstance(other, RepairClient) for other in others)
        if recovering:
            tally.state("deletion against recovery")
        if repairing:
            tally.state("deletion against repair")
        if recovering and repairing:
            tally.state("deletion, recovery and repair")

    def _deleted(self, answer: object) -> None:
        if answer is ev.CasOutcome.DONE:
            self.note(f"deleted ledger {self.ledger_id}")
            self.finish()
        else:
            self.later(20 * MS, self._read)


class RepairClient(Driver):
    """Carries out one repair plan."""

    machine: LedgerRepair

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        found: Versioned,
        plan: RepairPlan,
        unavailable: frozenset[str],
        when_done: Callable[[bool], None],
    ) -> None:
        super().__init__(cluster, name, found.metadata.ledger_id, KEY)
        self.plan = plan
        self._when_done = when_done
        others = [other for other in cluster.live_clients() if other.ledger_id == self.ledger_id]
        if any(isinstance(other, RecoveryClient) for other in others):
            self.world.tally.state("recovery against repair")
        self.machine = LedgerRepair(
            found.metadata,
            found.version,
            plan,
            policy=RepairPolicy(
                read_bytes_max=self.world.rng(name).choice((1, 20, 1000)), metadata_retry_ms=20
            ),
            unavailable=unavailable,
            now_ms=self.world.now_ms,
        )
        self._carry_out |= {
            ev.RepairFinished: self._repair_finished,
            ev.RepairFailed: self._repair_failed,
            ev.RepairAbandoned: self._repair_failed,
        }
        self.start_ticking()
        self.perform(self.machine.start())

    def _repair_finished(self, _effect: ev.RepairFinished) -> None:
        self.finish()
        self._when_done(True)  # noqa: FBT003 - a verdict, not an option

    def _repair_failed(self, _effect: ev.RepairFailed | ev.RepairAbandoned) -> None:
        self.finish()
        self._when_done(False)  # noqa: FBT003 - a verdict, not an option


def _ignore(_effect: object) -> None:
    """Of no concern here."""
