"""The repair tasks of a cluster, as they were read last; who may have changed is reported ledger by ledger."""

import asyncio
from collections.abc import Callable
from typing import Final

from daybook.core.ids import LedgerId
from daybook.core.repair.task import RepairTask
from daybook.metadata.store.store import Versioned
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import monotonic_ms

_FRESH_MS: Final = 500
_READS_MAX: Final = 32


class TaskList:
    """Reads at most twice a second, unless a caller needs the tasks of this moment."""

    def __init__(
        self, tasks: RepairTasks, on_ledger: Callable[[LedgerId], None], on_change: Callable[[], None]
    ) -> None:
        """Nothing is read yet. `on_ledger`: a ledger's task came, changed or went; `on_change`: some did."""
        self.known: tuple[Versioned[RepairTask], ...] = ()
        """All tasks, by ledger, as of the last read."""
        self._tasks = tasks
        self._on_ledger = on_ledger
        self._on_change = on_change
        self._read_ms: int | None = None
        self._expired = 0
        """How often `expire` was called: what is read while that rises may lack the change."""
        self._reading = asyncio.Lock()

    def expire(self) -> None:
        """Have the next `read` read, whatever a present one finds: something changed."""
        self._read_ms = None
        self._expired += 1

    async def read(self, *, fresh: bool = False) -> tuple[Versioned[RepairTask], ...]:
        """All repair tasks, by ledger: of half a second ago at the most, or of now. Raises MetadataUnavailableError."""
        async with self._reading:
            now_ms = monotonic_ms()
            if self._read_ms is not None and now_ms - self._read_ms < _FRESH_MS and not fresh:
                return self.known
            expired = self._expired
            before = {task.value.ledger_id: task for task in self.known}
            slots = asyncio.Semaphore(_READS_MAX)

            async def read(ledger_id: LedgerId) -> Versioned[RepairTask] | None:
                async with slots:
                    return await self._tasks.read(ledger_id)

            found = await asyncio.gather(*[read(ledger_id) async for ledger_id in self._tasks.ids()])
            self.known = tuple(task for task in found if task is not None)
            if expired == self._expired:
                self._read_ms = now_ms
        after = {task.value.ledger_id: task for task in self.known}
        for ledger_id in sorted(before.keys() | after.keys()):
            if before.get(ledger_id) != after.get(ledger_id):
                self._on_ledger(ledger_id)
        if before != after:
            self._on_change()
        return self.known
