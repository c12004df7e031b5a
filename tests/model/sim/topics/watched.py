"""The ledger client of an owner, with the checks of ledgers beside it: what is appended, acknowledged, created and deleted.

It changes nothing. It notes what its process knows, as the other users of what ships do (shipped/writing.py).
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from daybook.client.client import Client
from daybook.client.driver.callbacks import OnDone
from daybook.client.ledger import Ledger
from daybook.core.errors import (
    DaybookError,
    LedgerClosedError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from daybook.core.format.frame import Buffer
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from tests.model.sim.shipped.process import ShippedProcess

if TYPE_CHECKING:
    from tests.model.sim.topics.checks import TopicChecks


class WatchedLedger:
    """A handle; `topic` if it is a ledger of messages."""

    def __init__(self, process: ShippedProcess, checks: "TopicChecks", handle: Ledger, topic: str) -> None:
        self._process = process
        self._checks = checks
        self._handle = handle
        self._topic = topic
        self._checkers = process.cluster.checkers
        self._acked = self._lac = NO_ENTRY
        self._is_abandoned = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def append_soon(self, data: Buffer, on_done: OnDone) -> EntryId:
        """See Ledger."""
        return self.append_run_soon((data,), on_done)

    def append_run_soon(self, entries: Sequence[Buffer], on_done: OnDone) -> EntryId:
        """See Ledger."""
        handle = self._handle
        if self._topic:
            self._checks.written(self._topic, handle.id)
        ids = range(handle._writer.last_add_pushed + 1, handle._writer.last_add_pushed + 1 + len(entries))
        last = handle.append_run_soon(entries, partial(self._done, ids, on_done))
        assert last == ids[-1]
        for entry_id, entry in zip(ids, entries, strict=True):
            self._checkers.appended(handle.id, entry_id, bytes(entry))
        return last

    async def abandon(self) -> None:
        """See Ledger; what is under way is unknown."""
        self._is_abandoned = True
        await self._handle.abandon()

    def _done(self, ids: range, on_done: OnDone, last: EntryId, error: DaybookError | None) -> None:
        if not self._process.alive:
            return  # nobody receives it any more
        handle, checkers = self._handle, self._checkers
        if error is None:
            checkers.completed(handle.metadata, self._acked + 1, last)
            self._acked = last
            checkers.writer_lac(handle.id, self._lac, handle.last_add_confirmed)
            self._lac = handle.last_add_confirmed
        elif isinstance(error, LedgerClosedError) and not self._is_abandoned:
            checkers.not_written(handle.id, ids)
        on_done(last, error)


class WatchedClient(Client):
    """A client whose process and checks are given before it is used."""

    process: ShippedProcess
    checks: "TopicChecks"

    async def create_ledger(self, **terms: Any) -> Ledger:
        """See Client."""
        process, checks = self.process, self.checks
        topic = checks.topic_of(terms["custom_metadata"])
        try:
            handle = await super().create_ledger(**terms)
        except (MetadataUnavailableError, asyncio.CancelledError):
            checks.unknown(process.name)
            raise
        checks.given(handle.id)
        return cast("Ledger", WatchedLedger(process, checks, handle, topic))

    async def delete_ledger(self, ledger_id: LedgerId, **terms: Any) -> tuple[str, ...]:
        """See Client."""
        self.checks.deleting(ledger_id)
        try:
            return await super().delete_ledger(ledger_id, **terms)
        except NoSuchLedgerError:
            raise
        except BaseException:
            self.checks.gave_up(ledger_id)
            raise
