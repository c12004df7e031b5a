"""The queue of repairs in the store: one node for each ledger that has a task, and its lock.

What a task holds and how it changes is `daybook.core.repair.task`. A worker's lock is a lease that ends with its session
(rule 34). A worker ends a task by deleting the version that it worked on, so that nothing is lost that the auditor added
meanwhile.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, suppress
from typing import Final

from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.repair.task import RepairTask
from daybook.metadata.layout import Layout
from daybook.metadata.lease import Lease, acquire, holder_of
from daybook.metadata.store.read_ahead import read_ahead
from daybook.metadata.store.store import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
)
from daybook.metadata.tree import list_directory, list_ids
from daybook.runtime.logs import get_logger

_LOG = get_logger(__name__)

LOST_BOOKIE_DELAY_S: Final = 60.0
"""Where none was set: longer than a restart, so that a rolling one copies nothing (rule 33)."""
LOST_BOOKIE_DELAY_MAX_S: Final = 30 * 86_400.0
"""30 days, as in the BookiePool resource: what is away for longer does not come back."""


class LostBookieDelayError(DaybookError):
    """A delay after which no bookie can count as lost."""


def check_lost_bookie_delay_s(delay_s: float) -> float:
    """The same delay. Raises LostBookieDelayError unless it is from 0 to LOST_BOOKIE_DELAY_MAX_S."""
    if 0 <= delay_s <= LOST_BOOKIE_DELAY_MAX_S:
        return delay_s
    msg = (
        f"a bookie cannot count as lost after {delay_s} s: use 0 to {LOST_BOOKIE_DELAY_MAX_S:.0f} s (30 days)"
    )
    raise LostBookieDelayError(msg)


class RepairTasks:
    """The tasks of one cluster. Raises MetadataUnavailableError from every method while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the tasks of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def mark(
        self, ledger_id: LedgerId, *, reasons: Iterable[str], bookies: Iterable[BookieId], now_ms: int
    ) -> Versioned[RepairTask]:
        """Make a task, or add to the one there is; its age and its back-off stay unless there is something new."""
        wanted = RepairTask(ledger_id, tuple(sorted(set(reasons))), tuple(sorted(set(bookies))), now_ms)
        path = self._layout.task(ledger_id)
        while True:
            current = await self.read(ledger_id)
            try:
                if current is None:
                    await self._store.create(path, wanted.to_json(), parents=True)
                    marked = Versioned(wanted, 0)
                else:
                    merged = current.value.marked(wanted)
                    if merged == current.value:
                        return current
                    version = await self._store.put(path, merged.to_json(), current.version)
                    marked = Versioned(merged, version)
            except (NodeExistsError, BadVersionError, NoNodeError):
                continue  # another auditor or a worker was faster
            await self._signal()
            return marked

    async def read(self, ledger_id: LedgerId) -> Versioned[RepairTask] | None:
        """The ledger's task, or None."""
        try:
            node = await self._store.get(self._layout.task(ledger_id))
        except NoNodeError:
            return None
        return Versioned(RepairTask.from_json(ledger_id, node.value), node.version)

    async def pages(self) -> AsyncIterator[tuple[LedgerId, ...]]:
        """The ids of the ledgers that have a task, page by page; whole or an error (rule 28)."""
        async for page in list_ids(self._store, self._layout.tasks):
            yield page

    async def ids(self) -> AsyncIterator[LedgerId]:
        """The ids of the ledgers that have a task; see `pages`."""
        async for page in self.pages():
            for ledger_id in page:
                yield ledger_id

    async def read_all(self) -> AsyncGenerator[Versioned[RepairTask], None]:
        """Every task in order of its ledger's id; one that is done meanwhile is left out (see `ids`)."""
        async with aclosing(read_ahead(self.ids(), self.read)) as reads:
            async for found in reads:
                yield found

    async def done(self, ledger_id: LedgerId, version: int) -> bool:
        """Delete the task if it is still at `version`; False if something was added meanwhile: examine the ledger again.

        A task that was made after a lost reply is at version 0 again, and its data distinguishes it (rule 42).
        """
        path = self._layout.task(ledger_id)
        try:
            node = await self._store.get(path)
            if node.version != version:
                return False
            await self._store.delete(path, version, data=node.value)
        except BadVersionError:
            return False
        except NoNodeError:
            return True
        return True

    async def set_aside(self, task: Versioned[RepairTask], *, until_ms: int, why: str) -> None:
        """Keep workers from a ledger that cannot be repaired now until `until_ms` (rule 35). A changed task stays."""
        aside = task.value.set_aside(until_ms=until_ms, why=why)
        try:
            await self._store.put(self._layout.task(aside.ledger_id), aside.to_json(), task.version)
        except (BadVersionError, NoNodeError):
            return

    async def set_free(self, task: Versioned[RepairTask]) -> None:
        """Make a task that was set aside due again: what kept it from repair may be over. A changed task stays."""
        free = task.value.set_free()
        try:
            await self._store.put(self._layout.task(free.ledger_id), free.to_json(), task.version)
        except (BadVersionError, NoNodeError):
            return
        await self._signal()

    # Locks.

    async def lock(self, ledger_id: LedgerId, worker: str) -> Lease | None:
        """The lock on a ledger's repair, or None while another worker has it."""
        return await acquire(self._store, self._layout.task_lock(ledger_id), worker)

    async def locked(self) -> dict[LedgerId, str]:
        """The ledgers under repair now, and the workers that hold their locks."""
        held: dict[LedgerId, str] = {}
        for name in await list_directory(self._store, self._layout.task_locks):
            with suppress(NoNodeError):  # released since
                node = await self._store.get(self._layout.task_lock(int(name)))
                held[int(name)] = holder_of(node.value)
        return held

    # News and switches.

    async def watch_signal(self) -> AsyncIterator[None]:
        """Yield at once, and again after tasks were added, or set free, since the last time."""
        async for _node in self._store.watch_node(self._layout.task_signal):
            yield

    async def _signal(self) -> None:
        try:
            await self._store.put(self._layout.task_signal, b"", None)
        except NoNodeError:
            await _create_if_missing(self._store, self._layout.task_signal, b"")

    async def disabled(self) -> bool:
        """Whether repair is switched off for the whole cluster (rule 33)."""
        return await self._store.exists(self._layout.repair_disabled) is not None

    async def set_disabled(self, disabled: bool) -> None:
        """Switch repair off or on for the whole cluster; workers finish the fragment they copy."""
        if disabled:
            await _create_if_missing(self._store, self._layout.repair_disabled, b"")
        else:
            try:
                await self._store.delete(self._layout.repair_disabled)
            except NoNodeError:
                return

    async def watch_disabled(self) -> AsyncIterator[bool]:
        """Whether repair is switched off, now and after each change."""
        async for node in self._store.watch_node(self._layout.repair_disabled):
            yield node is not None

    async def lost_bookie_delay_s(self) -> float:
        """How long a bookie must be gone before it counts as lost (rule 33).

        What no auditor can wait for, such as infinity, which earlier releases stored, is replaced by the default: repair must not end for it.
        """
        try:
            text = (await self._store.get(self._layout.lost_bookie_delay)).value
        except NoNodeError:
            return LOST_BOOKIE_DELAY_S
        try:
            return check_lost_bookie_delay_s(float(text))
        except (ValueError, LostBookieDelayError) as error:
            _LOG.warning(
                "the delay of lost bookies is not usable: set it again",
                why=str(error),
                used_s=LOST_BOOKIE_DELAY_S,
            )
            return LOST_BOOKIE_DELAY_S

    async def set_lost_bookie_delay_s(self, delay_s: float) -> None:
        """Change the delay for the whole cluster. Raises LostBookieDelayError."""
        check_lost_bookie_delay_s(delay_s)
        data = repr(float(delay_s)).encode()
        await _create_if_missing(self._store, self._layout.lost_bookie_delay, data)
        await self._store.put(self._layout.lost_bookie_delay, data, None)


async def _create_if_missing(store: MetadataStore, path: str, data: bytes) -> None:
    try:
        await store.create(path, data, parents=True)
    except NodeExistsError:
        return
