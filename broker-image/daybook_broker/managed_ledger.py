"""A topic's ledgers on this broker: carries out what the machine of the core asks for, over the ledger client and ZooKeeper.

The machine (daybook/core/topics/managed_ledger.py) decides; nothing is decided here. A request becomes a task; what is appended goes to
its ledger in order, and costs a future for all that was published together, never one for each entry. Answers arrive in a later
turn of the event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, assert_never

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.errors import (
    DaybookError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NoSuchTopicError,
    NotOwnerError,
)
from daybook.core.events import CasAnswered, CasOutcome, MetadataUnreadable
from daybook.core.format.frame import Buffer, check_payloads
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.events import (
    Append,
    Appended,
    CasList,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    HandleFailed,
    LedgerCreated,
    LedgerDeleted,
    LedgerEnded,
    LedgerRequestFailed,
    ListKnown,
    ListRead,
    ManagedLedgerEffect,
    ManagedLedgerEvent,
    Published,
    PublishFailed,
    PublishRequested,
    ReadList,
    RecoverLedger,
    Retrying,
    TopicEnded,
    TopicTick,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.managed_ledger import ManagedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.trimming import Retention
from daybook.metadata.store.store import Versioned
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

RECOVERY_TIMEOUT_MS: Final = 30_000
"""A recovery that takes longer ends, and the machine asks for another after its pause."""


class TopicLedgers:
    """The ledgers of one topic, for whoever publishes to it. Make one for each time that this broker takes the topic over."""

    def __init__(
        self,
        name: TopicName,
        owner_token: str,
        client: Client,
        *,
        quorum: Quorum,
        policy: ManagedLedgerPolicy | None = None,
        on_result: Callable[[ListKnown | Published | PublishFailed | TopicEnded], None],
    ) -> None:
        """`on_result` receives what the machine reports, in order; `owner_token` is drawn anew for each take-over (rule 38)."""
        self.name = name
        self._client = client
        self._topics = TopicManager(client.store, client.layout)
        self._quorum = quorum
        self._on_result = on_result
        self._machine = ManagedLedger(
            str(name), owner_token, policy=policy, now_ms=monotonic_ms(), unix_ms=unix_ms()
        )
        self._list = Versioned(LedgerList(), -1)
        self._handles: dict[LedgerId, Ledger] = {}
        self._appends: asyncio.Queue[Append] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._crash: DaybookError | None = None

    @property
    def refusal(self) -> DaybookError | None:
        """Why nothing may be published now."""
        return self._crash or self._machine.refusal

    @property
    def has_room(self) -> bool:
        """Whether more may be published now; until then whoever publishes should read no more from its clients."""
        return self._machine.has_room

    def start(self) -> None:
        """Take the topic over. `ListKnown` reports that it is served, `TopicEnded` that it is not."""
        self._begin(self._send_appends())
        self._perform(self._machine.start())

    def publish(self, payloads: Sequence[Buffer]) -> None:
        """Append entries, in order; `Published` and `PublishFailed` answer for the oldest first.

        Raises EntryTooLargeError, and `refusal` if there is one: then none of them is appended.
        """
        check_payloads(payloads)
        if (refusal := self.refusal) is not None:
            raise refusal
        self._step(PublishRequested(payloads))

    def trim(self, marks: tuple[Position, ...], retention: Retention) -> None:
        """Drop the ledgers that nobody needs; `marks` are what is persisted of every subscription (rule 40, rule 51)."""
        self._step(TrimRequested(marks, retention))

    def unload(self) -> None:
        """Finish what was published, and give the topic up; `TopicEnded` reports the end."""
        self._step(UnloadRequested())

    def tick(self) -> None:
        """Let time pass; call it a few times a second."""
        self._step(TopicTick(monotonic_ms(), unix_ms()))

    async def close(self) -> None:
        """Stop at once. What is open stays open, and the next owner recovers it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for handle in self._handles.values():
            await handle.abandon()
        self._handles.clear()

    # The loop

    def _step(self, event: ManagedLedgerEvent) -> None:
        if self._crash is None:
            self._perform(self._machine.step(event))

    def _perform(self, effects: Sequence[ManagedLedgerEffect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._appends.put_nowait(effect)
                case Published() | PublishFailed() | ListKnown() | TopicEnded():
                    self._on_result(effect)
                case Retrying():
                    log.warning("a request for a topic failed", topic=str(self.name), why=str(effect.error))
                case ReadList():
                    self._begin(self._read_list(effect))
                case CasList():
                    self._begin(self._cas_list(effect))
                case CreateLedger():
                    self._begin(self._about_ledger(effect.request_id, self._create(effect)))
                case CloseLedger():
                    self._begin(self._about_ledger(effect.request_id, self._close(effect)))
                case RecoverLedger():
                    self._begin(self._about_ledger(effect.request_id, self._recover(effect)))
                case DeleteLedger():
                    self._begin(self._about_ledger(effect.request_id, self._delete(effect)))
                case _:
                    assert_never(effect)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._crash is None:
            log.error("a part of a topic ended with an error", topic=str(self.name), exc_info=error)
            msg = (
                f"topic {self.name} stopped after an error of the broker: {error}; the next owner recovers it"
            )
            self._crash = DaybookError(msg)
            self._on_result(TopicEnded(self._crash))

    # The list

    async def _read_list(self, effect: ReadList) -> None:
        try:
            self._list = await self._topics.read(self.name, sync=True)
        except NoSuchTopicError:
            self._step(ListRead(effect.request_id, None))
        except (MetadataUnavailableError, MetadataError) as error:
            log.warning("a topic's list cannot be read", topic=str(self.name), why=str(error))
            self._step(MetadataUnreadable(effect.request_id))
        else:
            self._step(ListRead(effect.request_id, *self._list))

    async def _cas_list(self, effect: CasList) -> None:
        assert effect.expected_version == self._list.version
        try:
            self._list = await self._topics.cas(self.name, self._list, effect.ledger_list)
        except (NotOwnerError, NoSuchTopicError):
            self._step(CasAnswered(effect.request_id, CasOutcome.CONFLICT))
        except MetadataUnavailableError:
            self._step(CasAnswered(effect.request_id, CasOutcome.UNKNOWN))
        else:
            self._step(CasAnswered(effect.request_id, CasOutcome.DONE, self._list.version))

    # Ledgers

    async def _about_ledger(self, request_id: int, work: Coroutine[Any, Any, ManagedLedgerEvent]) -> None:
        try:
            answer = await work
        except DaybookError as error:
            answer = LedgerRequestFailed(request_id, error)
        self._step(answer)

    async def _create(self, effect: CreateLedger) -> LedgerCreated:
        handle = await self._client.create_ledger(
            ensemble_size=self._quorum.ensemble_size,
            write_quorum=self._quorum.write_quorum,
            ack_quorum=self._quorum.ack_quorum,
            custom_metadata={TOPIC_KEY: str(self.name).encode()},
            above=effect.above,
        )
        self._handles[handle.id] = handle
        return LedgerCreated(effect.request_id, handle.id)

    async def _close(self, effect: CloseLedger) -> LedgerEnded:
        metadata = await self._handles[effect.ledger_id].close()
        self._handles.pop(effect.ledger_id, None)
        return _end(effect.request_id, metadata)

    async def _recover(self, effect: RecoverLedger) -> LedgerEnded:
        await self._drop(effect.ledger_id)
        found = await self._client.ledgers.read(effect.ledger_id, sync=True)
        metadata = found.value
        if not metadata.is_closed:
            metadata = await self._client.recover(metadata, timeout_ms=RECOVERY_TIMEOUT_MS)
        return _end(effect.request_id, metadata)

    async def _delete(self, effect: DeleteLedger) -> LedgerDeleted:
        await self._drop(effect.ledger_id)
        try:
            await self._client.delete_ledger(effect.ledger_id)
        except NoSuchLedgerError:
            log.info("a ledger was deleted before", topic=str(self.name), ledger_id=effect.ledger_id)
        return LedgerDeleted(effect.request_id)

    async def _drop(self, ledger_id: LedgerId) -> None:
        handle = self._handles.pop(ledger_id, None)
        if handle is not None:
            await handle.abandon()

    # Appends

    async def _send_appends(self) -> None:
        """Hand what is to be appended to its ledger, in order, as there is room."""
        while True:
            effect = await self._appends.get()
            handle = self._handles.get(effect.ledger_id)
            if handle is None:  # dropped: the machine knows that what it sent there is to be sent again
                continue
            try:
                acknowledged = await handle.submit(effect.payloads)
            except DaybookError as error:
                self._step(HandleFailed(effect.ledger_id, error))
            else:
                acknowledged.add_done_callback(partial(self._appended, handle.id))

    def _appended(self, ledger_id: LedgerId, future: asyncio.Future[tuple[int, int]]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._step(Appended(ledger_id, future.result()[1]))
        else:
            assert isinstance(error, DaybookError)
            self._step(HandleFailed(ledger_id, error))


def _end(request_id: int, metadata: LedgerMetadata) -> LedgerEnded:
    return LedgerEnded(request_id, metadata.last_entry + 1, metadata.length)
