"""A broker that ZooKeeper does not answer, while it answers another one: it lets its clients go, who would wait for receipts for ever.

In doubt a broker holds its receipts (rule 46), and its clients have no reason to look elsewhere. While ZooKeeper answers nobody that is
right: nobody else could serve them, and the session may outlive the outage. But a broker that is cut off alone has lost its topics,
and nobody takes a topic that no client asks for. So this broker asks the others. If one of them is certain of its session, ZooKeeper serves;
then all connections end, and none is taken until ZooKeeper answers here.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import aiohttp

from daybook.metadata.brokers import BrokerInfo
from daybook.runtime.logs import get_logger
from daybook_broker.connection.listener import Connections
from daybook_broker.errors import NotReadyError
from daybook_broker.ownership.ownership import Ownership

log = get_logger(__name__)

PATIENCE_SESSIONS: Final = 0.5
"""For how long the session may have been over before others are asked: a ping is due every third of a session, so what answered another
broker that much later would have answered this one."""
ASK_EVERY_S: Final = 1.0
ANSWER_TIMEOUT_S: Final = 2.0
WHY: Final = "this broker has lost its connection to ZooKeeper, and another one serves: connect again"

Serves = Callable[[BrokerInfo], Awaitable[bool]]
"""Whether another broker is certain of its session."""


class CutOff:
    """Watches the session of one broker."""

    def __init__(
        self,
        ownership: Ownership,
        connections: Connections,
        session_timeout_s: float,
        serves: Serves | None = None,
    ) -> None:
        """Nothing is watched yet. Tests pass `serves`."""
        self._ownership = ownership
        self._connections = connections
        self._patience_s = PATIENCE_SESSIONS * session_timeout_s
        self._serves = serves or is_certain

    async def run(self) -> None:
        """Let clients go whenever that is right, for ever."""
        while True:
            await self._ownership.out_of_touch(self._patience_s)
            if await self._another_serves():
                log.warning(
                    "clients are let go until ZooKeeper answers: it answers another broker",
                    connections=len(self._connections),
                )
                self._connections.refuse(NotReadyError(WHY))
                await self._ownership.in_touch()
                self._connections.refuse(None)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASK_EVERY_S):
                        await self._ownership.in_touch()

    async def _another_serves(self) -> bool:
        own = self._ownership.info.broker
        others = [info for info in self._ownership.view.brokers.values() if info.broker != own]
        return any(await asyncio.gather(*map(self._serves, others)))


async def is_certain(info: BrokerInfo) -> bool:
    """Whether the broker says that it is certain of its session. A certificate proves nothing that matters here."""
    url = info.admin_urls.plain or info.admin_urls.tls
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ANSWER_TIMEOUT_S)) as http,
            http.get(f"{url}/health", ssl=False) as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        log.debug("another broker does not answer", broker=info.broker, why=str(error))
        return False
