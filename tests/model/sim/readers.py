"""The readers of a run: some catch up to the LAC once, some follow an open ledger to its end, all report what they saw."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.reader.lac import LacPolicy
from daybook.core.reader.reader import ReadPolicy
from daybook.core.reader.tail import TailPolicy
from daybook.core.reader.view import LedgerView
from tests.model.sim.clients import Driver
from tests.model.sim.metadata_model import LOST, Versioned
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

_OPEN_US: Final = 80 * MS
"""How long at most a reader keeps a ledger open before it asks for the LAC."""
_LAC_POLICY: Final = LacPolicy(metadata_wait_ms=60)


class ReadClient(Driver):
    """Reads first … last once; `when_done` gets the last entry that was delivered."""

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        view: LedgerView,
        span: tuple[EntryId, EntryId],
        when_done: Callable[[EntryId], None],
        *,
        unconfirmed: bool = False,
    ) -> None:
        super().__init__(cluster, name, view.metadata.ledger_id)
        self._at = span[0] - 1
        self._when_done = when_done
        self._unconfirmed = unconfirmed
        rng = self.world.rng(name)
        machine = view.read(
            *span,
            unconfirmed=unconfirmed,
            policy=ReadPolicy(
                piece_bytes=rng.choice((8, 40, 1000)),
                read_ahead_bytes=rng.choice((16, 2000)),
                entry_bytes_guess=8,
                speculate_ms=20,
                metadata_retry_ms=20,
            ),
            now_ms=self.world.now_ms,
        )
        self._carry_out |= {
            fx.Deliver: self._deliver,
            fx.MetadataKnown: view.learn,
            fx.ReadFinished: self._read_over,
            fx.ReadFailed: self._read_over,
        }
        self.adopt(machine)
        self.start_ticking()
        self.perform(machine.start())

    def _deliver(self, effect: fx.Deliver) -> None:
        self._at = self.cluster.checkers.delivered(
            self.ledger_id, effect.entries, self._at, unconfirmed=self._unconfirmed
        )
        size_bytes = effect.size_bytes
        self.later(0, self.feed, ev.Consumed(size_bytes))

    def _read_over(self, _effect: fx.ReadFinished | fx.ReadFailed) -> None:
        self.finish()
        self._when_done(self._at)


class LacClient(Driver):
    """Opens a ledger, and runs a machine that reports how far it may read."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        super().__init__(cluster, name, ledger_id)
        self._view: LedgerView
        self._carry_out |= {
            fx.MetadataKnown: self._metadata_known,
            fx.LacKnown: self._lac_known,
            fx.ReadFailed: lambda _effect: self.finish(),
        }
        self.start_ticking()
        self._open()

    def _open(self) -> None:
        store = self.cluster.store
        store.request(self.session, self._opened, store.read, self.ledger_id)

    def _opened(self, answer: object) -> None:
        raise NotImplementedError

    def _lac_known(self, effect: fx.LacKnown) -> None:
        raise NotImplementedError

    def _metadata_known(self, effect: fx.MetadataKnown) -> None:
        self._view.learn(effect)


class CatchUpClient(LacClient):
    """Learns the LAC some time after it opened the ledger, and reads up to it; or past it, where the reader may do so."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        self._rng = cluster.world.rng(name)
        self._began_with: LedgerMetadata | None = None
        self._is_lenient = self._rng.random() < 0.3
        super().__init__(cluster, name, ledger_id)

    def _opened(self, answer: object) -> None:
        if not isinstance(answer, Versioned):
            self.finish()
            return
        self._view = LedgerView(answer.metadata)
        self.later(int(_OPEN_US * self._rng.random()), self._refresh)

    def _refresh(self) -> None:
        """The ensemble may have changed since it was opened, and the ledger been closed."""
        now = self.cluster.store.ledgers.get(self.ledger_id)
        self._began_with = now.metadata if now else None
        machine = self._view.refresh(lenient=self._is_lenient, policy=_LAC_POLICY, now_ms=self.world.now_ms)
        self.adopt(machine)
        self.perform(machine.start())

    def _metadata_known(self, effect: fx.MetadataKnown) -> None:
        super()._metadata_known(effect)
        self.world.tally.state("refresh after a change")

    def _lac_known(self, effect: fx.LacKnown) -> None:
        view = self._view
        view.learn(effect)
        self.cluster.checkers.lac_seen(self.ledger_id, effect.last_add_confirmed)
        if not self._is_lenient and self._began_with is not None:
            self.cluster.checkers.refreshed(self.ledger_id, self._began_with, effect)
        unconfirmed = not view.metadata.is_closed and self._rng.random() < 0.3
        last = view.last_add_confirmed + 3 if unconfirmed else view.last_add_confirmed
        self.finish()
        if last >= 0:
            ReadClient(self.cluster, f"{self.name}/read", view, (0, last), _ignore, unconfirmed=unconfirmed)


class TailClient(LacClient):
    """Follows a ledger: learns each rise of the LAC, and reads what it confirms."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        self._lac: EntryId = NO_ENTRY
        self._read_to: EntryId = NO_ENTRY
        self._reads = 0
        self._reading: ReadClient | None = None
        super().__init__(cluster, name, ledger_id)

    def _opened(self, answer: object) -> None:
        if answer is LOST:
            self.later(20 * MS, self._open)
        elif isinstance(answer, Versioned):
            self._view = LedgerView(answer.metadata)
            machine = self._view.follow(
                policy=TailPolicy(poll_ms=40, metadata_ms=50, retry_ms=10),
                now_ms=self.world.now_ms,
            )
            self.adopt(machine)
            self.perform(machine.start())
        else:
            self.finish()

    def _lac_known(self, effect: fx.LacKnown) -> None:
        view = self._view
        view.learn(effect)
        self.cluster.checkers.reader_lac(self.ledger_id, self._lac, effect.last_add_confirmed)
        self._lac = effect.last_add_confirmed
        if effect.closed is not None:
            self.cluster.checkers.ended(self.ledger_id, effect.closed)
        self._read(view)
        if effect.closed is not None:
            self.finish()

    def _read(self, view: LedgerView) -> None:
        """Read what is confirmed now, one read at a time."""
        if self._reading is not None and not self._reading.done:
            return
        if self._lac > self._read_to:
            self._reads += 1
            name = f"{self.name}/read-{self._reads}"
            self._reading = ReadClient(
                self.cluster, name, view, (self._read_to + 1, self._lac), self._have_read
            )

    def _have_read(self, last: EntryId) -> None:
        self._read_to = last

    def crash(self) -> None:
        """Reads die with their process."""
        super().crash()
        if self._reading is not None and self._reading.alive:
            self._reading.crash()


def start_final_read(
    cluster: "Cluster", name: str, metadata: LedgerMetadata, when_done: Callable[[LedgerId, EntryId], None]
) -> None:
    """Read a closed ledger from its first to its last entry."""
    end = metadata.last_entry
    ReadClient(cluster, name, LedgerView(metadata), (0, end), partial(when_done, metadata.ledger_id))


def _ignore(_last: EntryId) -> None:
    """A read that failed is tried again by someone else."""
