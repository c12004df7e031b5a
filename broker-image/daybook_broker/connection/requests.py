"""The requests of one connection that take time: a task each, those about the same producer or consumer one after the other."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from daybook.core.errors import DaybookError
from daybook.runtime.logs import get_logger
from daybook_broker.errors import TooManyError

log = get_logger(__name__)


class Requests:
    """The tasks of a connection; `refuse` answers a request that failed."""

    def __init__(self, requests_max: int, refuse: Callable[[int, DaybookError], None]) -> None:
        self._max = requests_max
        self._refuse = refuse
        self._tasks: dict[asyncio.Task[None], Hashable] = {}
        self._last: dict[Hashable, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def is_busy(self, key: Hashable) -> bool:
        """Whether a request of this key is under way."""
        return key in self._last

    def begin(self, request_id: int, work: Coroutine[Any, Any, None], key: Hashable = None) -> None:
        """Carry out `work`, after all earlier requests of the same key; None: beside all others."""
        if len(self._tasks) >= self._max:
            work.close()
            msg = f"{self._max} requests of this connection wait for an answer: wait for some, or raise requests_max"
            self._refuse(request_id, TooManyError(msg))
            return
        before = None if key is None else self._last.get(key)
        task = asyncio.create_task(self._run(request_id, work, before))
        self._tasks[task] = key
        if key is not None:
            self._last[key] = task
        task.add_done_callback(self._ended)

    async def _run(
        self, request_id: int, work: Coroutine[Any, Any, None], before: asyncio.Task[None] | None
    ) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            await work
        except DaybookError as error:
            self._refuse(request_id, error)
        except Exception as error:
            log.error("a request failed after an error of the broker", request_id=request_id, exc_info=error)
            msg = f"the request failed after an error of the broker: {error}; its log says more"
            self._refuse(request_id, DaybookError(msg))
        finally:
            work.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        key = self._tasks.pop(task)
        if key is not None and self._last.get(key) is task:
            del self._last[key]

    def cancel(self) -> None:
        """The connection is lost: nobody waits for the answers."""
        for task in list(self._tasks):
            task.cancel()
