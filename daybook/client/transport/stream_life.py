"""The life of one append stream, from its connection to the reason of its end.

It is apart from `frame_sender`, because that is compiled in the images, and a compiled coroutine may not wait where it leaves an
`async with` (tools/compiled/suspensions.py).
"""

import asyncio
from typing import Protocol

import grpc
import grpc.aio

from daybook.client.transport.link import AppendLink, LinkOwner, OpenLink
from daybook.core.stream import StreamError


class StreamUser(LinkOwner, Protocol):
    """Whoever has something to send."""

    async def use(self, link: AppendLink) -> None:
        """Send over `link` until it ends, and raise why: StreamError, TimeoutError, OSError or AioRpcError."""

    def failed(self, code: str, why: str) -> None:
        """No link was to be had, or its use ended. `code` is the kind of the error, `why` its text."""


async def live(open_link: OpenLink, user: StreamUser) -> None:
    """Open a link for `user`, and close it once the use of it ends, or is cancelled."""
    try:
        async with open_link(user) as link:
            await user.use(link)
    except (grpc.aio.AioRpcError, StreamError, TimeoutError, OSError, asyncio.InvalidStateError) as error:
        user.failed(*_reason(error))


def _reason(error: Exception) -> tuple[str, str]:
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code().name, error.details() or ""
    return type(error).__name__, str(error) or type(error).__name__
