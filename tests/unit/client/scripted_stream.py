"""A client's side of an append stream to a bookie that follows a script, over gRPC or over the lane."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from daybook.client.transport.frame_sender import FrameSender
from daybook.client.transport.round_trips import RoundTrips
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import encode_frame
from tests.unit.client.scripted_bookie import AppendScript, ScriptedBookie


def frame(first: int, payloads: Sequence[bytes] = (b"x",), ids: Sequence[int] | None = None) -> bytes:
    """A frame of ledger 1."""
    entry_ids = ids or range(first, first + len(payloads))
    return encode_frame(1, first, payloads, entry_crcs(1, entry_ids, payloads), entry_ids=ids)


async def anyone(_boot_id: str) -> bool:
    """Whoever answers is registered."""
    return True


@asynccontextmanager
async def stream_to(script: AppendScript, *, is_older: bool = False) -> AsyncIterator[FrameSender]:
    """A stream to a bookie that follows `script`."""
    async with ScriptedBookie(script, is_older=is_older) as bookie:
        stream = FrameSender("b0", bookie.open_link, anyone, lambda: None, lambda _: None, RoundTrips())
        try:
            yield stream
        finally:
            await stream.close()
