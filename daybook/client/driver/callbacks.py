"""Calls the functions that users gave to `append_soon`, from the event loop and never from inside a machine's step.

What was acknowledged in one turn of the loop is reported in the next one, for all ledgers of a client by one callback of the
loop. The order is that of the acknowledgements, so for one ledger it is that of its entries.
"""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from daybook.core.errors import DaybookError
from daybook.core.ids import EntryId

OnDone: TypeAlias = Callable[[EntryId, DaybookError | None], None]
"""Gets the entry's id, and None if it is acknowledged, or why the handle ended before it was."""


class Callbacks:
    """The calls that are due."""

    def __init__(self) -> None:
        """Nothing is due."""
        self._due: list[tuple[OnDone, EntryId, DaybookError | None]] = []

    def add(self, on_done: OnDone, entry_id: EntryId, error: DaybookError | None) -> None:
        """Call `on_done` in the next turn."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self._call)
        self._due.append((on_done, entry_id, error))

    def _call(self) -> None:
        due, self._due = self._due, []
        for on_done, entry_id, error in due:
            try:
                on_done(entry_id, error)
            except Exception as raised:  # noqa: BLE001 - a user's error must not keep the others from being called
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"{on_done!r} failed for entry {entry_id}", "exception": raised}
                )
