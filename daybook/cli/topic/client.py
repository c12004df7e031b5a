"""Finds the owner of a topic, and keeps producers and consumers attached to it while owners change.

Whoever waits here waits with a bound: a topic that no broker serves for GIVE_UP_S is an error.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, Self

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from daybook.cli.topic.connection import BrokerConnection, BrokerLostError, BrokerRefusedError
from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError

GIVE_UP_S: Final = 60.0
REDIRECTS_MAX: Final = 20


class TopicClient:
    """Connections to brokers, shared by all producers and consumers of a command; use `async with`."""

    def __init__(
        self,
        brokers: Callable[[], Awaitable[Sequence[str]]],
        tls: ssl.SSLContext | None = None,
        token: str = "",
    ) -> None:
        """`brokers` returns the addresses of the brokers that are registered now; `token` shows them who this is."""
        self._token = token
        self._brokers = brokers
        self._tls = tls
        self._connections: dict[str, BrokerConnection] = {}
        self._ids = count(1)

    async def __aenter__(self) -> Self:
        """Return the client; it connects when it is used."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every connection."""
        for connection in self._connections.values():
            await connection.close()

    def new_id(self) -> int:
        """A number for a producer or a consumer, which it keeps on every connection."""
        return next(self._ids)

    async def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has; 0: it is not partitioned, or does not exist. Creates nothing."""

        async def ask() -> int:
            request = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
            request.partitionMetadata.topic = str(topic)
            request.partitionMetadata.metadata_auto_creation_enabled = False
            try:
                answer = await (await self._any()).request(request)
            except BrokerRefusedError as error:
                if error.code == ServerError.TopicNotFound:
                    return 0
                raise
            return int(answer.partitions)

        count: int = await patiently(ask)
        return count

    async def owner(self, topic: TopicName) -> BrokerConnection:
        """A connection to the broker that owns a topic. Raises BrokerLostError, BrokerRefusedError."""
        connection, authoritative = await self._any(), False
        for _ in range(REDIRECTS_MAX):
            request = BaseCommand(type=BaseCommand.LOOKUP)
            request.lookupTopic.topic = str(topic)
            request.lookupTopic.authoritative = authoritative
            answer = await connection.request(request)
            url = (self._tls and answer.brokerServiceUrlTls) or answer.brokerServiceUrl
            connection, authoritative = await self._connection(url), answer.authoritative
            if answer.response == CommandLookupTopicResponse.Connect:
                return connection
        msg = f"topic {topic} was passed on by {REDIRECTS_MAX} brokers: its bundle moves from one to the next, try again"
        raise BrokerLostError(msg)

    async def _any(self) -> BrokerConnection:
        """A connection to any broker."""
        for connection in self._connections.values():
            if not connection.lost.is_set():
                return connection
        failure = BrokerLostError("no broker is registered: start one, or check --cluster")
        for url in await self._brokers():
            try:
                return await self._connection(url)
            except BrokerLostError as error:
                failure = error
        raise failure

    async def _connection(self, url: str) -> BrokerConnection:
        known = self._connections.get(url)
        if known is None or known.lost.is_set():
            if known is not None:
                await known.close()
            known = self._connections[url] = await BrokerConnection.open(url, self._tls, self._token)
        return known


class Attachment:
    """Keeps a producer or a consumer on the broker that owns its topic, again after each loss, until it is closed."""

    def __init__(
        self,
        client: TopicClient,
        topic: TopicName,
        attach: Callable[[BrokerConnection], Awaitable[None]],
        on_failure: Callable[[DaybookError], None],
    ) -> None:
        """`attach` makes it anew on a connection; `on_failure` receives what ends the attempts."""
        self.topic = topic
        self.connection: BrokerConnection | None = None
        self._client = client
        self._attach = attach
        self._on_failure = on_failure
        self._moved = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Attach, and stay attached. Raises DaybookError if that is not possible."""
        await self._attach_patiently()
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self.topic}")

    def moved(self) -> None:
        """The broker closed it: another one owns the topic."""
        self.connection = None
        self._moved.set()

    async def close(self) -> None:
        """Stay attached no longer."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})

    async def _keep(self) -> None:
        while True:
            connection = self.connection
            assert connection is not None
            waiting = [asyncio.create_task(each.wait()) for each in (self._moved, connection.lost)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
            try:
                await self._attach_patiently()
            except DaybookError as error:
                self._on_failure(error)
                return

    async def _attach_patiently(self) -> None:
        async def attempt() -> None:
            self._moved.clear()
            connection = await self._client.owner(self.topic)
            await self._attach(connection)
            self.connection = connection

        await patiently(attempt)


async def patiently(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The result of `attempt`, which is made again while brokers are lost or not ready. Raises its last error."""
    attempts = AsyncRetrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(GIVE_UP_S),
        wait=wait_random_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    )
    return await attempts(attempt)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, BrokerLostError) or (
        isinstance(error, BrokerRefusedError) and error.is_retriable
    )


async def close_on_broker(connection: BrokerConnection | None, command: BaseCommand) -> None:
    """Tell the broker that a producer or a consumer ends; a broker that is gone need not know."""
    if connection is not None and not connection.lost.is_set():
        with suppress(BrokerLostError, BrokerRefusedError):
            await connection.request(command)
