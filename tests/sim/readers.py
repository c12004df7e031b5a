"""The readers of a run: some catch up to the LAC once, some follow an open ledger to its end, all report what they saw."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.lac import LacReader, LacTail, TailPolicy
from daybook.core.metadata import LedgerMetadata
from daybook.core.reader import LedgerReader, ReadPolicy
from tests.sim.clients import Driver
from tests.sim.metadata_model import LOST, Versioned
from tests.sim.world import MS

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster


class ReadClient(Driver):
    """Reads first … last once; `when_done` gets the last entry that was delivered."""

    def __init__(
        self,
        cluster: "Cluster",
        name: str,
        metadata: LedgerMetadata,
        span: tuple[EntryId, EntryId],
        lac: EntryId,
        when_done: Callable[[EntryId], None],
        *,
        unconfirmed: bool = False,
    ) -> None:
        super().__init__(cluster, name, metadata.ledger_id)
        self._at = span[0] - 1
        self._when_done = when_done
        self._unconfirmed = unconfirmed
        rng = self.world.rng(name)
        machine = LedgerReader(
            metadata,
            *span,
            last_add_confirmed=lac,
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
        size_bytes = sum(len(entry.data) for entry in effect.entries)
        self.later(0, self.feed, ev.Consumed(size_bytes))

    def _read_over(self, _effect: fx.ReadFinished | fx.ReadFailed) -> None:
        self.finish()
        self._when_done(self._at)


class CatchUpClient(Driver):
    """Learns the LAC once, and reads up to it; or past it, where the reader may do so."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        super().__init__(cluster, name, ledger_id)
        self._rng = self.world.rng(name)
        self._metadata: LedgerMetadata | None = None
        self._carry_out |= {fx.LacKnown: self._lac_known, fx.ReadFailed: self._give_up}
        self.start_ticking()
        store = cluster.store
        store.request(self.session, self._opened, store.read, ledger_id)

    def _opened(self, answer: object) -> None:
        if not isinstance(answer, Versioned):
            self.finish()
            return
        self._metadata = answer.metadata
        machine = LacReader(answer.metadata, lenient=self._rng.random() < 0.3)
        self.adopt(machine)
        self.perform(machine.start())

    def _lac_known(self, effect: fx.LacKnown) -> None:
        lac = effect.last_add_confirmed
        metadata = effect.closed or self._metadata
        assert metadata is not None
        self.cluster.checkers.lac_seen(self.ledger_id, lac)
        unconfirmed = not metadata.is_closed and self._rng.random() < 0.3
        last = lac + 3 if unconfirmed else lac
        self.finish()
        if last >= 0:
            ReadClient(
                self.cluster,
                f"{self.name}/read",
                metadata,
                (0, last),
                lac,
                _ignore,
                unconfirmed=unconfirmed,
            )

    def _give_up(self, _effect: fx.ReadFailed) -> None:
        self.finish()


class TailClient(Driver):
    """Follows a ledger: learns each rise of the LAC, and reads what it confirms."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId) -> None:
        super().__init__(cluster, name, ledger_id)
        self._lac: EntryId = NO_ENTRY
        self._read_to: EntryId = NO_ENTRY
        self._reads = 0
        self._reading: ReadClient | None = None
        self._carry_out |= {fx.LacKnown: self._lac_known, fx.ReadFailed: self._give_up}
        self.start_ticking()
        self._open()

    def _open(self) -> None:
        store = self.cluster.store
        store.request(self.session, self._opened, store.read, self.ledger_id)

    def _opened(self, answer: object) -> None:
        if answer is LOST:
            self.later(20 * MS, self._open)
        elif isinstance(answer, Versioned):
            machine = LacTail(
                answer.metadata,
                policy=TailPolicy(poll_ms=40, metadata_ms=50, retry_ms=10),
                now_ms=self.world.now_ms,
            )
            self.adopt(machine)
            self.perform(machine.start())
        else:
            self.finish()

    def _lac_known(self, effect: fx.LacKnown) -> None:
        lac = effect.last_add_confirmed
        self.cluster.checkers.reader_lac(self.ledger_id, self._lac, lac)
        self._lac = lac
        if effect.closed is not None:
            self.cluster.checkers.ended(self.ledger_id, effect.closed)
            self._read(effect.closed)
            self.finish()
        else:
            assert isinstance(self.machine, LacTail)
            self._read(self.machine.metadata)

    def _read(self, metadata: LedgerMetadata) -> None:
        """Read what is confirmed now, one read at a time."""
        if self._reading is not None and not self._reading.done:
            return
        if self._lac > self._read_to:
            self._reads += 1
            name = f"{self.name}/read-{self._reads}"
            span = (self._read_to + 1, self._lac)
            self._reading = ReadClient(self.cluster, name, metadata, span, self._lac, self._have_read)

    def _have_read(self, last: EntryId) -> None:
        self._read_to = last

    def _give_up(self, _effect: fx.ReadFailed) -> None:
        self.finish()

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
    ReadClient(cluster, name, metadata, (0, end), end, partial(when_done, metadata.ledger_id))


def _ignore(_last: EntryId) -> None:
    """A read that failed is tried again by someone else."""
