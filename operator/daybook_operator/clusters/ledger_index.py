"""Which ledgers of a cluster name which bookies, kept up to date by what changes, so that no reconcile lists everything.

Reading the metadata of every ledger takes longer than a reconcile may, once there are many. So it is read once, in the
background and for as long as it takes; reconciles continue meanwhile and say so. After that a pass reads the directories,
which show new and deleted ledgers, and then only what may have changed: ledgers that are not closed, those that had a
task at this pass or the one before (whoever changes a closed ledger has a task for it), and a slice of all others in
turn, for changes that were made by hand. A pass begins after a `sync`; reads are pipelined in bounded numbers
(rule 37), and a directory that cannot be read ends the pass and leaves what is known as it was (rule 28).

What must not be wrong (the deletion of a cookie, rule 29) is not decided by the index alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

from daybook.autorecovery.cluster import is_set_within
from daybook.core.errors import DaybookError, MetadataUnavailableError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.read_ahead import read_ahead
from daybook.metadata.store.store import MetadataStore, Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger

Ensembles: TypeAlias = tuple[Quorum, frozenset[tuple[BookieId, ...]], str]
"""Of a ledger: its quorum, its ensembles, and the pool that it stays in (rule 69)."""
_LOG: Final = get_logger(__name__)
_PAUSE_MS: Final = 5_000
SLICE: Final = 500
"""Closed ledgers without a task that each pass reads again, in turn."""


class LedgerIndex:
    """The ensembles of every ledger of one cluster; `run` keeps it, `fresh` asks for a pass."""

    def __init__(
        self,
        store: MetadataStore,
        layout: Layout,
        ledgers: LedgerManager,
        tasks: RepairTasks,
        on_whole: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is read yet; `on_whole` is called once every ledger has been, and again after `read_error`."""
        self._store = store
        self._layout = layout
        self._ledgers = ledgers
        self._tasks = tasks
        self.read_error = ""
        """Why the last pass did not end, if that is not for want of ZooKeeper."""
        self._known: dict[LedgerId, Ensembles] = {}
        self._groups: dict[Ensembles, set[LedgerId]] = {}
        self._shared: dict[Ensembles, Ensembles] = {}  # most ledgers share few ensembles
        self._of_bookie: dict[BookieId, set[LedgerId]] = {}
        self._not_closed: set[LedgerId] = set()
        self._with_task: frozenset[LedgerId] = frozenset()
        self._doubted: set[LedgerId] = set()
        self._next_in_turn: LedgerId = 0
        self._on_whole = on_whole
        self._began_ms: int | None = None
        self._took_ms = 0
        self._started = self._last_ended = 0
        self._asked = asyncio.Event()
        self._ended = asyncio.Event()

    def __len__(self) -> int:
        """How many ledgers are known; fewer than there are until the first pass has ended."""
        return len(self._known)

    @property
    def is_whole(self) -> bool:
        """Whether every ledger has been read once."""
        return self._began_ms is not None

    @property
    def groups(self) -> Mapping[Ensembles, set[LedgerId]]:
        """The ledgers by the ensembles that they have had; many share them."""
        return self._groups

    @property
    def of_bookie(self) -> Mapping[BookieId, set[LedgerId]]:
        """The ledgers that name each bookie."""
        return self._of_bookie

    def doubt(self, ledger_id: LedgerId) -> None:
        """Have the next pass read this ledger: its task came, changed or went, perhaps all of it between two passes."""
        self._doubted.add(ledger_id)

    async def fresh(self, *, age_ms: int, wait_ms: int) -> bool:
        """Whether a pass that began at most `age_ms` ago has ended; waits at most `wait_ms` for one, which continues afterwards.

        Does not wait while there is a `read_error`: a person must act, and passes are tried meanwhile.
        Where a pass takes longer than that, it counts for the next caller as well.
        """
        asked_ms = monotonic_ms()
        if self._took_ms > wait_ms // 2:
            age_ms = max(age_ms, 2 * self._took_ms + wait_ms)
            self._asked.set()
        started = self._started
        while not (self._last_ended > started or self._is_of(asked_ms - age_ms if age_ms else None)):
            self._asked.set()
            left_ms = asked_ms + wait_ms - monotonic_ms()
            if self.read_error or left_ms <= 0:
                return False
            await is_set_within(self._ended, left_ms)
        return True

    def _is_of(self, since_ms: int | None) -> bool:
        return since_ms is not None and self._began_ms is not None and self._began_ms >= since_ms

    async def run(self) -> None:
        """Make passes as they are asked for. Raises MetadataUnavailableError; call it again then."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            doubted, self._doubted = self._doubted, set()
            try:
                await self._pass(doubted)
                doubted = set()
            except MetadataUnavailableError:
                self._asked.set()
                raise
            except DaybookError as error:  # one ledger's metadata, say; what is known stays
                self.read_error = str(error)
                _LOG.error("the ledgers cannot be read", why=self.read_error)
                self._asked.set()
                self._notify_waiting()
                await is_set_within(asyncio.Event(), _PAUSE_MS)
                continue
            finally:
                self._doubted |= doubted
            self._notify_waiting()

    def _notify_waiting(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()

    async def _pass(self, doubted: set[LedgerId]) -> None:
        began_ms = monotonic_ms()
        self._started += 1
        number = self._started
        await self._store.sync(self._layout.ledgers)
        with_task = frozenset([ledger_id async for ledger_id in self._tasks.ids()])
        doubtful = doubted | self._not_closed | with_task | self._with_task
        there: set[LedgerId] = set()
        async with aclosing(read_ahead(self._to_read(there, doubtful), self._read)) as reads:
            async for ledger_id, found in reads:
                self._note(ledger_id, found)
        for ledger_id in self._known.keys() - there:
            self._note(ledger_id, None)
        self._with_task = with_task
        was_whole, self._began_ms, self._last_ended = self.is_whole, began_ms, number
        if was_whole:
            self._took_ms = monotonic_ms() - began_ms
        if self.read_error or not was_whole:
            self.read_error = ""
            self._on_whole()

    async def _to_read(self, there: set[LedgerId], doubtful: set[LedgerId]) -> AsyncIterator[LedgerId]:
        """The ids of what is new or may have changed; `there` gets all that there are."""
        left, first = SLICE, self._next_in_turn
        last: LedgerId = -1
        async for page in self._ledgers.pages():
            there.update(page)
            for ledger_id in page:
                is_in_turn = ledger_id >= first and left > 0
                if is_in_turn:
                    left -= 1
                    last = ledger_id
                if is_in_turn or ledger_id in doubtful or ledger_id not in self._known:
                    yield ledger_id
        self._next_in_turn = last + 1 if left == 0 else 0

    async def _read(self, ledger_id: LedgerId) -> tuple[LedgerId, Versioned[LedgerMetadata] | None]:
        try:
            return ledger_id, await self._ledgers.read(ledger_id)
        except NoSuchLedgerError:
            return ledger_id, None
        except MetadataUnavailableError:
            raise
        except DaybookError as error:
            msg = f"ledger {ledger_id}: {error}"
            raise DaybookError(msg) from error

    def _note(self, ledger_id: LedgerId, found: Versioned[LedgerMetadata] | None) -> None:
        """The ledger is so now; None: it is gone."""
        ensembles = None
        self._not_closed.discard(ledger_id)
        if found is not None:
            bookies = frozenset(each.bookies for each in found.value.fragments)
            ensembles = (found.value.quorum, bookies, found.value.pool)
            if not found.value.is_closed:
                self._not_closed.add(ledger_id)
        before = self._known.get(ledger_id)
        if before == ensembles:
            return
        if before is not None:
            self._forget(ledger_id, before)
        if ensembles is not None:
            self._groups.setdefault(ensembles, set()).add(ledger_id)
            self._known[ledger_id] = self._shared.setdefault(ensembles, ensembles)
            for bookie in bookies_in(ensembles):
                self._of_bookie.setdefault(bookie, set()).add(ledger_id)

    def _forget(self, ledger_id: LedgerId, ensembles: Ensembles) -> None:
        del self._known[ledger_id]
        self._groups[ensembles].discard(ledger_id)
        if not self._groups[ensembles]:
            del self._groups[ensembles], self._shared[ensembles]
        for bookie in bookies_in(ensembles):
            self._of_bookie[bookie].discard(ledger_id)


def bookies_in(ensembles: Ensembles) -> frozenset[BookieId]:
    """All bookies that are named."""
    return frozenset(bookie for ensemble in ensembles[1] for bookie in ensemble)
