"""Waiting for work that others wait for as well: whoever gives up must not take it from them.

`asyncio.shield` does so too, but since Python 3.14 it reports to the event loop's exception handler what the work fails with after a waiter was
cancelled: an error with a traceback in the log, of a failure that whoever began the work or still waits for it handles.
"""

import asyncio
from typing import Any, TypeVar

T = TypeVar("T")


async def shielded(work: asyncio.Future[T]) -> T:
    """The result of `work`, which goes on if the caller is cancelled; raises what it fails with."""
    if not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError:
            work.remove_done_callback(_retrieve)  # one is enough for all who gave up
            work.add_done_callback(_retrieve)
            raise
    return work.result()


def _retrieve(work: asyncio.Future[Any]) -> None:
    """Take the failure, which asyncio would report otherwise as one that nobody retrieved."""
    if not work.cancelled():
        work.exception()
