"""One append stream of a process to a simulated bookie, as gRPC shows it to a client: messages in, messages out.

The stream beneath is the simulator's own: in order each way, broken by the first message that is lost, after which both
ends learn of it in their own time.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from daybook.core.bookie.ledger import Purpose
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswer
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import (
    decode_client_control,
    encode_answer,
    encode_server_control,
    is_frames,
    is_lac_table,
)
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.network import Stream
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.shipped.process import ShippedProcess

_NOTICE_US: Final = 30 * MS
_PURPOSES: Final = {pb.PURPOSE_WRITE: Purpose.WRITE, pb.PURPOSE_RECOVERY: Purpose.RECOVERY}
_NUMBERS: Final = {purpose: number for number, purpose in _PURPOSES.items()}


class AppendCall:
    """The client's end of a stream."""

    def __init__(self, process: "ShippedProcess", bookie: SimBookie) -> None:
        self._process = process
        self._bookie = bookie
        self._stream = process.cluster.network.open(process, bookie)
        self._arrived: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._is_lost = False
        process.streams[self._stream.number] = self

    async def write(self, message: bytes) -> None:
        """Send `message`. Raises AioRpcError once the stream is known to be lost."""
        self._refuse_if_lost()
        if is_frames(message):
            self._send(self._bookie.message, self._stream, message)
        elif is_lac_table(message):
            assert self._bookie.name not in self._process.cluster.older, "its hello says that it takes none"
            self._send(self._bookie.lac_table, self._stream, message)
        else:
            control = decode_client_control(message)
            if control.HasField("attach"):
                attach = control.attach
                purpose = _PURPOSES[attach.purpose]
                self._send(self._bookie.attach, self._stream, attach.ledger_id, attach.key, purpose)
            elif control.HasField("detach"):
                assert self._bookie.name not in self._process.cluster.older, (
                    "its hello says that it takes none"
                )
                purpose = _PURPOSES[control.detach.purpose]
                self._send(self._bookie.end_attachment, self._stream, control.detach.ledger_id, purpose)
            else:
                self._send(self._hello)
        await asyncio.sleep(0)  # a message leaves with another turn of the loop

    async def read(self) -> bytes:
        """The next message. Raises AioRpcError when the stream is lost; what came before that is given first."""
        while not self._arrived:
            self._refuse_if_lost()
            self._wake.clear()
            await self._wake.wait()
        return self._arrived.popleft()

    def _refuse_if_lost(self) -> None:
        if self._is_lost:
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE,
                grpc.aio.Metadata(),
                grpc.aio.Metadata(),
                details="the connection was lost",
            )

    def _send(self, receive: object, *args: object) -> None:
        assert callable(receive)
        if self._process.alive and not self._stream.send(self._bookie, receive, *args):
            self._process.cluster.stream_broke(self._stream)

    def _hello(self) -> None:
        """At the bookie: say who answers."""
        bookie, stream = self._bookie, self._stream
        if not bookie.serving:
            stream.broken = True
            self._process.cluster.stream_broke(stream)
            return
        hello = pb.ServerHello(
            bookie_id=bookie.name,
            boot_id=bookie.boot_id,
            message_bytes_max=1 << 23,
            takes_lac_tables=bookie.name not in self._process.cluster.older,
            takes_detach=bookie.name not in self._process.cluster.older,
        )
        answer = encode_server_control(pb.ServerControl(hello=hello))
        if not stream.send(self._process, self._came, answer):
            self._process.cluster.stream_broke(stream)

    # What comes

    def attached(self, ledger_id: LedgerId, purpose: Purpose, code: Code) -> None:
        """The bookie judged a key."""
        attached = pb.Attached(ledger_id=ledger_id, purpose=_NUMBERS[purpose], code=code)
        self._came(encode_server_control(pb.ServerControl(attached=attached)))

    def answered(self, answer: StreamAnswer) -> None:
        """The bookie decided frames."""
        self._came(encode_answer(answer))

    def _came(self, message: bytes) -> None:
        self._arrived.append(message)
        self._wake.set()

    def lost(self) -> None:
        """The stream broke."""
        self._is_lost = True
        self._wake.set()

    def end(self) -> None:
        """The client is done with it; the bookie learns of that a little later."""
        stream: Stream = self._stream
        if self._process.streams.pop(stream.number, None) is not None:
            stream.broken = True
            world = self._process.world
            world.at(world.now_us + _NOTICE_US, self._bookie, self._bookie.stream_lost, stream)
