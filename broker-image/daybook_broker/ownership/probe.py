"""Whether another broker answers: a lease outlives its process by seconds, and a client that is sent to a dead broker backs off.

The kernel accepts connections for a process that is stopped, so the question is a whole exchange: a TLS handshake, or a CONNECT that
the broker's event loop must answer. What it answers does not matter: it may want a token. One question serves all who ask at that time, and a good answer
a little longer.
"""

import asyncio
import ssl
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from daybook.metadata.brokers import BrokerInfo
from daybook.metadata.store.shared import SharedRequest
from daybook.runtime.clock import monotonic_s
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandConnect

ANSWER_TIMEOUT_S: Final = 1.0
VALID_S: Final = 0.2
"""How long a broker that answered is trusted to answer again: thousands of clients may ask for its topics at once."""
KNOWN_MAX: Final = 1_000
"""Processes that are kept in mind."""

_CONNECT: Final = BaseCommand(
    type=BaseCommand.CONNECT, connect=CommandConnect(client_version="Daybook broker")
)


class Prober:
    """The questions of one broker to the others."""

    def __init__(self) -> None:
        """Nobody was asked yet."""
        self._asking: dict[str, SharedRequest[bool]] = {}
        self._answered_s: dict[str, float] = {}

    async def __call__(self, info: BrokerInfo) -> bool:
        """Whether the broker answers."""
        if monotonic_s() < self._answered_s.get(info.boot_id, 0.0) + VALID_S:
            return True
        if len(self._asking) >= KNOWN_MAX:  # most of these processes have ended
            self._asking.clear()
            self._answered_s.clear()
        asking = self._asking.setdefault(info.boot_id, SharedRequest(partial(_answers, info)))
        if await asking.answer():
            self._answered_s[info.boot_id] = monotonic_s()
            return True
        return False


async def _answers(info: BrokerInfo) -> bool:
    """Whether the process behind the broker's address does something."""
    url = urlsplit(info.urls.plain or info.urls.tls)
    if url.hostname is None or url.port is None:
        return False
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await (_handshake if not info.urls.plain else _exchange)(url.hostname, url.port)
    except (OSError, TimeoutError):
        return False


async def _exchange(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(encode_frame(_CONNECT))
        return bool(await reader.read(1))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _handshake(host: str, port: int) -> bool:
    """A TLS handshake: it proves that the process lives, not who it is, and nothing is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError:
        return True  # it refused, for example a client without a certificate: it answers
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True
