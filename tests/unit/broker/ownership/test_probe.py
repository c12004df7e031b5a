"""Whether another broker answers: a process that is stopped accepts connections, and says nothing."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from daybook_broker.ownership import probe
from daybook_broker.ownership.probe import Prober

from daybook.metadata.brokers import BrokerInfo, Urls
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandPing
from tests.unit.runtime.certificates import new_authority

PING = encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


class Server:
    """It counts connections, and answers them if it is to."""

    def __init__(self, *, is_talking: bool) -> None:
        self.connections = 0
        self._is_talking = is_talking

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._is_talking and await reader.read(1):
            writer.write(PING)
        await reader.read()
        writer.close()


@asynccontextmanager
async def served(server: Server, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


def info(port: int, scheme: str = "pulsar") -> BrokerInfo:
    url = f"{scheme}://127.0.0.1:{port}"
    return BrokerInfo("b", "boot", Urls(url) if scheme == "pulsar" else Urls("", url))


async def test_a_broker_that_says_anything_answers_and_is_asked_once_by_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(is_talking=True)
    async with served(server) as port:
        prober = Prober()
        assert await asyncio.gather(*(prober(info(port)) for _ in range(50))) == [True] * 50
        assert await prober(info(port))
        assert server.connections <= 2, "those who asked first, and those who asked while that was under way"
        before = server.connections
        monkeypatch.setattr(probe, "VALID_S", 0.0)
        assert await prober(info(port))
        assert server.connections == before + 1


async def test_a_process_that_accepts_and_says_nothing_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "ANSWER_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not await Prober()(info(port)), "the kernel accepts for a process that is stopped"
        assert not await Prober()(info(port, "pulsar+ssl"))
    async with served(Server(is_talking=False)) as port:
        assert not await Prober()(info(port))


async def test_the_processes_that_are_kept_in_mind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "KNOWN_MAX", 2)
    server = Server(is_talking=True)
    async with served(server) as port:
        prober = Prober()
        for number in range(5):
            assert await prober(BrokerInfo("b", f"boot-{number}", info(port).urls))
        assert len(prober._asking) <= 2


async def test_a_port_that_nobody_listens_on_and_an_address_that_is_none_do_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert not await Prober()(info(port))
    assert not await Prober()(BrokerInfo("b", "boot"))
    assert not await Prober()(BrokerInfo("b", "boot", Urls("pulsar://nowhere")))


async def test_a_broker_with_tls_alone_answers_a_handshake(tmp_path: Path) -> None:
    files = new_authority().issue(tmp_path, "broker")
    assert files.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    async with served(Server(is_talking=False), context) as port:
        assert await Prober()(info(port, "pulsar+ssl"))
    async with served(Server(is_talking=True)) as port:
        assert await Prober()(info(port, "pulsar+ssl")), "what is no TLS is an answer as well"
