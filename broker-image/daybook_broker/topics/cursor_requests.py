"""The requests of a cursor to ZooKeeper and to the ledger client, each with the answer that its machine takes."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, assert_never

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.errors import (
    DaybookError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
    TopicExistsError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.ids import EntryId, LedgerId
from daybook.core.topics.cursor_events import (
    AppendRecord,
    CreateCursor,
    CreateCursorLedger,
    CursorEvent,
    CursorRead,
    DeleteCursor,
    LastRecordRead,
    PutCursor,
    ReadCursor,
    ReadLastRecord,
    RecordAppended,
)
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
)
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import LedgerTerms
from daybook.core.topics.unnamed import made_by
from daybook.metadata.store.store import Versioned
from daybook.metadata.topics import TopicManager
from daybook.runtime.logs import get_logger
from daybook_broker.topics.creation import create_ledger

log = get_logger(__name__)

RECOVERY_TIMEOUT_MS: Final = 30_000
"""A recovery that takes longer ends, and the machine asks for another after its pause."""
NodeRequest: TypeAlias = ReadCursor | CreateCursor | PutCursor | DeleteCursor
LedgerRequest: TypeAlias = CreateCursorLedger | ReadLastRecord | CloseLedger | DeleteLedger


class CursorRequests:
    """Carries out what one cursor asks for, but decides nothing."""

    __slots__ = ("_client", "_handles", "_subscription", "_terms", "_token", "_topic", "_topics")

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        client: Client,
        *,
        owner_token: str,
        terms: Callable[[], LedgerTerms],
    ) -> None:
        """`owner_token` is that of the topic's list while the topic is this broker's (rule 38)."""
        self._topic = topic
        self._subscription = subscription
        self._client = client
        self._topics = TopicManager(client.store, client.layout)
        self._token = owner_token
        self._terms = terms
        self._handles: dict[LedgerId, Ledger] = {}

    async def answer(self, effect: NodeRequest | LedgerRequest) -> CursorEvent:
        """Carry out `effect`; what became of it."""
        match effect:
            case ReadCursor():
                return await self._read(effect)
            case CreateCursor():
                return await self._change(effect.request_id, self._create(effect))
            case PutCursor():
                return await self._change(effect.request_id, self._put(effect))
            case DeleteCursor():
                return await self._change(effect.request_id, self._delete(effect))
            case CreateCursorLedger():
                return await self._about_ledger(effect.request_id, self._create_ledger(effect))
            case ReadLastRecord():
                return await self._about_ledger(effect.request_id, self._read_last(effect))
            case CloseLedger():
                return await self._about_ledger(effect.request_id, self._close_ledger(effect))
            case DeleteLedger():
                return await self._about_ledger(effect.request_id, self._delete_ledger(effect))
            case _:
                assert_never(effect)

    def append(self, effect: AppendRecord, report: Callable[[CursorEvent], None]) -> None:
        """Append a record, without a task: a moving cursor does so each second. `report` gets the answer in a later turn."""
        handle = self._handles[effect.ledger_id]
        try:
            handle.append_soon(effect.data, partial(_appended, effect.request_id, report))
        except DaybookError as error:
            failed = LedgerRequestFailed(effect.request_id, error)
            asyncio.get_running_loop().call_soon(report, failed)

    async def abandon(self) -> None:
        """Leave the ledgers that are still written as they are: the next owner recovers them."""
        while self._handles:
            _, handle = self._handles.popitem()
            await handle.abandon()

    # The node

    async def _read(self, effect: ReadCursor) -> CursorEvent:
        request_id, is_owner, list_version = effect.request_id, True, -1
        try:
            if effect.judge:
                try:
                    found = await self._topics.read(self._topic, sync=True)
                    is_owner, list_version = found.value.owner_token == self._token, found.version
                except NoSuchTopicError:
                    is_owner = False
            try:
                record, version = await self._topics.read_cursor(self._topic, self._subscription)
            except NoSuchTopicError:
                return CursorRead(request_id, None, -1, is_owner, list_version)
            else:
                return CursorRead(request_id, record, version, is_owner, list_version)
        except (MetadataUnavailableError, MetadataError) as error:
            log.warning(
                "a cursor cannot be read",
                topic=str(self._topic),
                subscription=self._subscription,
                why=str(error),
            )
            return MetadataUnreadable(request_id)

    async def _change(self, request_id: int, change: Coroutine[Any, Any, int]) -> CursorEvent:
        try:
            version = await change
        except (NotOwnerError, NoSuchTopicError, TopicExistsError):
            return CasAnswered(request_id, CasOutcome.CONFLICT)
        except MetadataUnavailableError:
            return CasAnswered(request_id, CasOutcome.UNKNOWN)
        else:
            return CasAnswered(request_id, CasOutcome.DONE, version)

    async def _create(self, effect: CreateCursor) -> int:
        created = await self._topics.create_cursor(
            self._topic, self._subscription, effect.record, list_version=effect.list_version
        )
        return created.version

    async def _put(self, effect: PutCursor) -> int:
        stored = await self._topics.put_cursor(
            self._topic,
            self._subscription,
            Versioned(effect.record, effect.expected_version),
            effect.record,
            list_version=effect.list_version,
        )
        return stored.version

    async def _delete(self, effect: DeleteCursor) -> int:
        try:
            await self._topics.delete_cursor(
                self._topic, self._subscription, list_version=effect.list_version
            )
        except NoSuchTopicError:
            log.info("a cursor was deleted before", topic=str(self._topic), subscription=self._subscription)
        return -1

    # Its ledger

    async def _about_ledger(self, request_id: int, work: Coroutine[Any, Any, CursorEvent]) -> CursorEvent:
        try:
            return await work
        except DaybookError as error:
            return LedgerRequestFailed(request_id, error)

    async def _create_ledger(self, effect: CreateCursorLedger) -> LedgerCreated:
        terms = self._terms()._replace(go_on_without_spare=True)  # a cursor can be written anew at any time
        custom_metadata = made_by(str(self._topic), self._token, self._subscription, pool=terms.pool)
        handle = await create_ledger(self._client, terms, custom_metadata)
        self._handles[handle.id] = handle
        return LedgerCreated(effect.request_id, handle.id)

    async def _read_last(self, effect: ReadLastRecord) -> LastRecordRead:
        reader = await self._client.open_ledger(effect.ledger_id, timeout_ms=RECOVERY_TIMEOUT_MS)
        last = reader.last_add_confirmed
        if last < 0:
            return LastRecordRead(effect.request_id, None)
        (entry,) = await reader.read_batch(last, last)
        return LastRecordRead(effect.request_id, bytes(entry.data))

    async def _close_ledger(self, effect: CloseLedger) -> LedgerEnded:
        metadata = await self._handles[effect.ledger_id].close()
        self._handles.pop(effect.ledger_id, None)
        return LedgerEnded(effect.request_id, metadata.last_entry + 1, metadata.length)

    async def _delete_ledger(self, effect: DeleteLedger) -> LedgerDeleted:
        """Delete a ledger, whatever state it is in: a close saves the deletion a recovery, and may fail."""
        handle = self._handles.pop(effect.ledger_id, None)
        try:
            if handle is not None:
                await _closed_or_abandoned(handle)
            await self._client.delete_ledger(effect.ledger_id)
        except NoSuchLedgerError:
            log.info("a cursor's ledger was deleted before", ledger_id=effect.ledger_id)
        return LedgerDeleted(effect.request_id)


async def _closed_or_abandoned(handle: Ledger) -> None:
    if handle.error is None:
        with suppress(DaybookError):
            await handle.close()
            return
    await handle.abandon()


def _appended(
    request_id: int, report: Callable[[CursorEvent], None], _entry_id: EntryId, error: DaybookError | None
) -> None:
    report(RecordAppended(request_id) if error is None else LedgerRequestFailed(request_id, error))
