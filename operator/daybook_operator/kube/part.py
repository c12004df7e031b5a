"""Parts of the process that run until they are cancelled: one that ends by itself ends the process.

A `TaskGroup` says nothing when a child ends as cancelled, and a child that awaits a future which somebody else cancels ends
so. Without this the other parts would continue, and the probes would stay good, while the part's work is not done.
"""

import asyncio
from collections.abc import Awaitable
from typing import NoReturn

from daybook.core.errors import DaybookError


class PartEndedError(DaybookError):
    """A part that runs until it is cancelled ended by itself."""


def was_cancelled() -> bool:
    """Whether somebody cancelled the current task; False for a CancelledError that comes from what the task awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def must_not_end(part: str, work: Awaitable[None]) -> NoReturn:
    """Await the work of a part until the task is cancelled. Raises PartEndedError, and what the work raises."""
    try:
        await work
    except asyncio.CancelledError as error:
        if was_cancelled():
            raise
        msg = f"{part} ended, because what it waited for was cancelled: a new process begins anew"
        raise PartEndedError(msg) from error
    msg = f"{part} ended by itself: a new process begins anew"
    raise PartEndedError(msg)
