"""A subscription's cursor on this broker: carries out what the machine of the core asks for, over the ledger client and ZooKeeper.

The machine (daybook/core/topics/cursor.py) decides; nothing is decided here. A broker holds thousands of cursors, most of them idle: an
idle one costs a comparison at each tick of its topic, and no task, timer or ledger. A request becomes a task, but for the record that a
moving cursor appends once a second. Answers arrive in a later turn of the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import assert_never

from daybook.client.client import Client
from daybook.core.errors import (
    DaybookError,
    NotOwnerError,
)
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor import Cursor
from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursor,
    CreateCursorLedger,
    CursorEffect,
    CursorEnded,
    CursorEvent,
    CursorOpened,
    CursorPersisted,
    CursorTick,
    DeleteCursor,
    DeleteRequested,
    FlushRequested,
    HolesDropped,
    ListMoved,
    PutCursor,
    ReadCursor,
    ReadLastRecord,
    RecordLost,
)
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.events import (
    CloseLedger,
    DeleteLedger,
    Retrying,
)
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import LedgerTerms
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_broker.topics.cursor_requests import CursorRequests, LedgerRequest, NodeRequest
from daybook_broker.topics.tasks import Tasks

log = get_logger(__name__)


class SubscriptionCursor:
    """The cursor of one subscription. Make one for each time that this broker takes the topic over, once the list is known."""

    def __init__(
        self,
        topic: TopicName,
        subscription: str,
        client: Client,
        extent: TopicExtent,
        *,
        owner_token: str,
        list_version: int,
        terms: Callable[[], LedgerTerms],
        initial: CursorRecord | None = None,
        policy: CursorPolicy | None = None,
        on_ended: Callable[[DaybookError], None] | None = None,
    ) -> None:
        """`owner_token` and `list_version` are those of the topic's list as its owner last wrote it (rule 38).

        `terms` says how its next ledger is created, with the bookies that are there now. `initial`: the subscription begins there if it does not exist yet. `on_ended` is called if the cursor ends without being asked.
        """
        self.topic = topic
        self.subscription = subscription
        self._requests = CursorRequests(topic, subscription, client, owner_token=owner_token, terms=terms)
        self._on_ended = on_ended
        self._machine = Cursor(
            f"topic {topic}, subscription {subscription!r}",
            extent,
            list_version=list_version,
            initial=initial,
            policy=policy,
            now_ms=monotonic_ms(),
        )
        self._tasks = Tasks(self._crashed)
        self._deletions = Tasks(self._crashed)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until a version of `acks` is durable."""
        self._opening: asyncio.Future[None] | None = None
        self._leaving: list[asyncio.Future[None]] = []
        """Who waits for the end."""
        self._is_begun = self._is_over = False
        self._error: DaybookError | None = None
        self._is_leaving = False
        self._is_stopped = False

    @property
    def acks(self) -> AckState:
        """What is acknowledged; there once it is open."""
        return self._machine.acks

    @property
    def persisted(self) -> Position:
        """What trimming may rely on (rule 40); before the first position until the cursor is open."""
        return self._machine.persisted

    @property
    def error(self) -> DaybookError | None:
        """Why the cursor persists nothing more; None while it does, and after `close` and `delete`."""
        return self._error

    # What its topic does with it

    async def open(self) -> None:
        """Read it, or create it where it is to begin. Raises NoSuchTopicError if it does not exist, NotOwnerError."""
        assert not self._is_begun, "a cursor is opened once"
        self._is_begun = True
        self._opening = asyncio.get_running_loop().create_future()
        self._perform(self._machine.start())
        await self._opening
        self._opening = None

    def tick(self) -> None:
        """Let time pass; call it about once a second, or a few times."""
        if not self._machine.rests:
            self._step(CursorTick(monotonic_ms()))

    def list_changed(self, version: int) -> None:
        """The topic's owner has written the list."""
        self._step(ListMoved(version))

    async def flush(self) -> None:
        """Persist what is acknowledged now; returns once it is durable. Raises `error`, and NotOwnerError after the end."""
        if not self._machine.is_dirty and self._error is None:
            return
        self._check()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.acks.version, done))
        self._ask(FlushRequested())
        await done

    async def close(self) -> None:
        """Persist what is acknowledged and leave nothing open. It waits while ZooKeeper does not answer: bound it, then `abandon`."""
        await self._leave(CloseRequested())

    async def delete(self) -> None:
        """Delete the subscription. Raises NotOwnerError if another broker owns the topic by now."""
        await self._leave(DeleteRequested())
        if self._error is not None:
            raise self._error

    async def _leave(self, request: CloseRequested | DeleteRequested) -> None:
        self._is_leaving = True
        if self._is_begun and not self._is_over:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._leaving.append(ended)
            self._ask(request)
            await ended
        await self._tasks.finished()
        await self._deletions.finished()
        await self._requests.abandon()

    async def abandon(self) -> None:
        """Stop at once. What is open stays open, and the next owner recovers it.

        The deletion of a ledger that no node names continues, since nobody else would delete it.
        """
        self._is_leaving = self._is_stopped = True
        self._end(self._not_held())
        await self._tasks.stop()
        await self._requests.abandon()

    def _ask(self, request: FlushRequested | CloseRequested | DeleteRequested) -> None:
        """Time may have stood still while the cursor was idle."""
        self._step(CursorTick(monotonic_ms()))
        self._step(request)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._machine.is_done:
            raise self._not_held()

    def _not_held(self) -> NotOwnerError:
        return NotOwnerError(
            f"topic {self.topic} is not served by this broker any more, and neither is its subscription "
            f"{self.subscription!r}: look the topic up again"
        )

    # The loop

    def _step(self, event: CursorEvent) -> None:
        if self._is_stopped:
            return
        try:
            self._perform(self._machine.step(event))
        except Exception as error:  # noqa: BLE001 - it is logged, and this cursor ends; who steps it is the broker of all topics
            self._crashed(error)

    def _perform(self, effects: Sequence[CursorEffect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord():
                    self._requests.append(effect, self._step)
                case (
                    ReadCursor()
                    | CreateCursor()
                    | PutCursor()
                    | DeleteCursor()
                    | CreateCursorLedger()
                    | ReadLastRecord()
                    | CloseLedger()
                ):
                    self._tasks.begin(self._carry_out(effect))
                case DeleteLedger():
                    self._deletions.begin(self._carry_out(effect))
                case _:
                    self._take(effect)

    def _take(
        self, result: CursorOpened | CursorPersisted | RecordLost | HolesDropped | Retrying | CursorEnded
    ) -> None:
        where = {"topic": str(self.topic), "subscription": self.subscription}
        match result:
            case CursorOpened():
                assert self._opening is not None
                if not self._opening.done():
                    self._opening.set_result(None)
            case CursorPersisted(version):
                self._wake(version)
            case RecordLost(ledger_id, error):
                log.warning(
                    "the newest record of a cursor is lost: messages that were acknowledged are delivered again",
                    ledger_id=ledger_id,
                    why=str(error),
                    **where,
                )
            case HolesDropped(count):
                log.warning(
                    "a subscription has too many holes to persist: after a fail-over messages are delivered again",
                    ranges=count,
                    **where,
                )
            case Retrying(error):
                log.warning("a request for a cursor failed", why=str(error), **where)
            case CursorEnded(error):
                self._end(error)
            case _:
                assert_never(result)

    def _wake(self, version: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, done in waiting:
            if wanted > version:
                self._waiting.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    def _end(self, error: DaybookError | None) -> None:
        """Nothing more is persisted; None: it was closed or deleted as requested."""
        if self._is_over:
            return
        self._is_over, self._error = True, error
        why = error or self._not_held()
        waiting = [done for _, done in self._waiting] + ([self._opening] if self._opening else [])
        self._waiting = []
        for done in waiting:
            if not done.done():
                done.set_exception(why)
        for ended in self._leaving:
            if not ended.done():
                ended.set_result(None)
        if not self._is_leaving and self._on_ended is not None:
            asyncio.get_running_loop().call_soon(self._on_ended, why)

    async def _carry_out(self, effect: NodeRequest | LedgerRequest) -> None:
        self._step(await self._requests.answer(effect))

    def _crashed(self, error: BaseException) -> None:
        log.error("a part of a cursor ended with an error", topic=str(self.topic), exc_info=error)
        msg = f"the cursor of {self.subscription!r} of topic {self.topic} stopped after an error of the broker: {error}"
        self._is_stopped = True
        self._end(DaybookError(msg))
