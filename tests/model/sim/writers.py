"""The writers of a run: users that append, force, close or die, and remember what they were promised."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.bookie.ledger import Purpose
from daybook.core.ids import ENTRY_BYTES_MAX, NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.writer import LedgerWriter
from tests.fixtures.sends import run_writer
from tests.model.sim.clients import Driver
from tests.model.sim.transitions import Party
from tests.model.sim.world import MS
from tests.model.sim.writer_checks import WriterChecks

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster


_MISTAKES: Final = 0.05
_FORCE_LATER_US: Final = 30 * MS
_TOO_LARGE: Final = bytes(ENTRY_BYTES_MAX + 1)


class WriterClient(Driver):
    """Appends, forces, closes or dies; what it was promised goes to the checkers."""

    party = Party.WRITER
    purpose = Purpose.WRITE
    machine: LedgerWriter

    def __init__(self, cluster: "Cluster", name: str, metadata: LedgerMetadata, version: int) -> None:
        super().__init__(cluster, name, metadata.ledger_id)
        swarm = cluster.swarm
        self.is_deferred = swarm.deferred_sync
        self._rng = self.world.rng(name)
        self._force_rng = self.world.rng(f"{name}/force")
        self._promises = self.world.rng(f"{name}/promises").random() < 0.5
        """Whether its user gets the ids at once, as from `append_soon`."""
        self._left = swarm.appends
        self._next: EntryId = 0
        self._token = 0
        self._lac: EntryId = NO_ENTRY
        self._has_ended = False
        self._pushed_at_failure: EntryId | None = None
        """The last entry pushed when a bookie failed while nothing was pending, until the ensemble changes."""
        self._ticked_ms = self.world.now_ms
        self.last_named = set(metadata.last_fragment.bookies)
        self._explicit: list[EntryId] = []
        ensemble_changes_max = self._rng.choice((2, 100, 100))
        self.machine = LedgerWriter(
            metadata,
            version,
            policy=WriterPolicy(
                ensemble_changes_max=ensemble_changes_max,
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
        self.checks = WriterChecks(cluster.checkers, self.machine, ensemble_changes_max)
        self._carry_out |= {
            fx.Complete: self._complete,
            fx.Fail: _ignore,
            fx.Forced: self._forced,
            fx.Closed: self._closed,
            fx.HandleEnded: self._handle_ended,
            fx.Degraded: self._degraded,
            fx.Quarantined: _ignore,
            fx.EnsembleChanged: self._ensemble_changed,
        }
        self._pace_us = self._rng.choice((2, 8, 25)) * MS
        self._closes = self._rng.random() < 0.5
        self.start_ticking()
        self._append_later()

    # The user

    def _append_later(self) -> None:
        self.later(int(self._pace_us * 2 * self._rng.random()), self._append)

    def _append(self) -> None:
        if self.done or self._has_ended:
            return
        if not self._left:
            if self._closes:
                self.close()
            return
        self._left -= 1
        self._append_later()
        if self._rng.random() < _MISTAKES:
            self._append_what_cannot_be()
        payloads = self._payloads(1 if self.cluster.swarm.explicit_ids else self._rng.choice((1, 1, 2, 5)))
        self._token += 1
        self.feed(ev.AppendRequested(self._token, payloads, self._entry_ids(payloads)))
        if self._promises:
            self.machine.promise_ids()
            self.checks.promised(self._token)
        if self._rng.random() < 0.8:
            self.room()
        else:
            self.later(int(3 * MS * self._rng.random()), self.room)
        if self.cluster.swarm.deferred_sync and self._rng.random() < 0.4:
            self._force_soon()

    def _force_soon(self) -> None:
        """At once, or after a while in which a bookie may restart (rule 22)."""
        rng = self._force_rng
        if rng.random() < 0.5:
            self._force()
        else:
            in_us = int(_FORCE_LATER_US * rng.random())
            self.later(in_us, self._force)
            self.cluster.force_ahead(self, in_us)

    def _force(self) -> None:
        self._token += 1
        self.feed(ev.ForceRequested(self._token))

    def _append_what_cannot_be(self) -> None:
        """Users make mistakes: an entry that is too large, an id that was used, ids where the ledger assigns them."""
        self._token += 1
        self.checks.must_refuse(self._token)
        if self.machine.last_add_pushed < 0 or self._rng.random() < 0.3:
            entry, ids = _TOO_LARGE, [self._next] if self.cluster.swarm.explicit_ids else None
        else:
            entry, ids = b"again", [self.machine.last_add_pushed]
        self.feed(ev.AppendRequested(self._token, [entry], ids))

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
        self.checks.appending(self._token, ids)
        return ids if explicit else None

    def room(self) -> None:
        """A channel has room: seal what gathered."""
        self.feed(ev.FlushRequested())

    def close(self) -> None:
        """Close the ledger."""
        self._left = 0
        self._token += 1
        self.feed(ev.CloseRequested(self._token))

    # What it receives

    def feed(self, event: ev.Event) -> None:
        """Note whether a bookie fails while nothing is pending, and step."""
        if not self.done and isinstance(event, ev.BookieFailed | ev.FrameFailed):
            machine = self.machine
            idle = machine.last_add_confirmed == machine.last_add_pushed
            was_named = event.bookie in machine.metadata.last_fragment.bookies
            self._pushed_at_failure = machine.last_add_pushed if idle and was_named else None
        super().feed(event)

    def run_machine(self, event: ev.Event) -> Iterable[fx.Effect]:
        """See Driver. The time is that of the last tick, as in a client's process."""
        if isinstance(event, ev.Tick):
            self._ticked_ms = event.now_ms
        return run_writer(self.machine, event, self._ticked_ms)

    def stepped(self, event: ev.Event, effects: list[fx.Effect]) -> None:
        """Look at what the writer wants and says."""
        self.checks.stepped(event, effects)

    def bookies_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """Placement chooses among these."""
        self.feed(ev.BookiesChanged(registered))

    def metadata_connection(self, *, connected: bool) -> None:
        """A writer continues without ZooKeeper (rule 46)."""
        self.feed(ev.MetadataConnection(connected))

    def after_step(self) -> None:
        """The LAC only rises."""
        super().after_step()
        lac = self.machine.last_add_confirmed
        if not (self.cluster.swarm.explicit_ids or self.machine.has_ended or self.machine.is_closing):
            self._next = self.machine.last_add_pushed + 1
        self.cluster.checkers.writer_lac(self.ledger_id, self._lac, lac)
        self._lac = lac
        if self._has_ended and not self.done and self.machine.is_done:
            self.checks.over()
            self.finish()

    def _complete(self, effect: fx.Complete) -> None:
        if not self.cluster.swarm.deferred_sync:
            self.cluster.checkers.completed(self.machine.metadata, effect.first, effect.last)

    def _forced(self, effect: fx.Forced) -> None:
        """With deferred sync only this acknowledges (rule 22), and on the whole ensemble."""
        first = self.cluster.checkers.oracles[self.ledger_id].acked + 1
        if effect.last_add_confirmed >= first:
            last = effect.last_add_confirmed
            self.cluster.checkers.completed(self.machine.metadata, first, last, everywhere=True)

    def _closed(self, effect: fx.Closed) -> None:
        self.cluster.checkers.ended(self.ledger_id, effect.metadata)
        self.finish()

    def _handle_ended(self, _effect: fx.HandleEnded) -> None:
        """Nothing more is appended; a close that is under way still ends (rule 11)."""
        self._has_ended = True

    def _degraded(self, effect: fx.Degraded) -> None:
        self.world.tally.state("no spare" if effect.missing else "no spare ended")

    def _ensemble_changed(self, _effect: fx.EnsembleChanged) -> None:
        if self._pushed_at_failure is not None:
            is_idle = self._pushed_at_failure == self.machine.last_add_pushed
            self.world.tally.state("late failure" if is_idle else "deferred change")
        self._pushed_at_failure = None


def _ignore(_effect: object) -> None:
    """Of no concern here."""
