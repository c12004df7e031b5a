"""A client that is slow: it is alive while it takes what was sent to it, although its PONG comes only after that."""

import asyncio
from typing import Any, Final

import pytest
from daybook_broker.broker import Broker
from daybook_broker.connection import keep_alive
from daybook_broker.connection.keep_alive import KeepAlive

from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandFlow, CommandSubscribe, ServerError
from tests.unit.broker.kit import FrameClient, frame_client, new_topic, running_broker, until

MIB: Final = 2**20
UNSENT: Final = 9 * MIB
"""What waits for the client, which is more than a connection takes before it is not writable."""


class Connection:
    """A connection whose client takes so much as a test says, and answers nothing."""

    def __init__(self, *, drains: int = 0) -> None:
        """`drains`: how often the client makes room after each PING, which others use at once."""
        self.address = "here:1"
        self.unsent_bytes = UNSENT
        self.is_writable = False
        self.is_paused = True
        self.sent = asyncio.Event()
        self.pings = 0
        self.is_aborted = False
        self._drains = drains
        connection: Any = self
        self.keep_alive = KeepAlive(connection, 0.001)

    def send(self, *_: bytes) -> None:
        self.pings += 1
        self.keep_alive.drains += self._drains
        self.sent.set()

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize(
    ("unsent_bytes", "drains", "is_writable", "is_alive"),
    [
        (UNSENT, 0, False, False),
        (UNSENT - 1, 0, False, True),
        (UNSENT + MIB, 1, False, True),
        (MIB, 0, True, True),
        (UNSENT, 0, True, False),
    ],
)
async def test_a_client_keeps_its_place_while_it_takes_what_was_sent_before_the_ping(
    monkeypatch: pytest.MonkeyPatch, unsent_bytes: int, drains: int, is_writable: bool, is_alive: bool
) -> None:
    monkeypatch.setattr(keep_alive, "ANSWER_S", 0.01)
    connection = Connection(drains=drains)
    asking = asyncio.create_task(connection.keep_alive.ask())
    await connection.sent.wait()
    connection.unsent_bytes = unsent_bytes
    connection.is_writable, connection.is_paused = is_writable, not is_writable
    assert await asking is is_alive
    assert connection.is_aborted is not is_alive


@pytest.mark.parametrize("drains", [0, 1])
async def test_a_client_for_which_as_much_waits_as_before_is_ended_only_if_it_took_nothing(
    drains: int,
) -> None:
    connection = Connection(drains=drains)
    connection.keep_alive.start()
    await until(lambda: connection.pings >= 3 or connection.is_aborted)
    connection.keep_alive.stop()
    assert connection.is_aborted is not bool(drains)


async def fill(broker: Broker, publisher: FrameClient, topic: str) -> None:
    """Publish until a connection takes nothing more."""
    assert (await publisher.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
    for number in range(64):
        publisher.publish(bytes(MIB), number)
        assert (await publisher.receive()).type == BaseCommand.SEND_RECEIPT
        if not all(each.is_writable for each in broker.connections):
            return
    msg = "the client takes everything"
    raise AssertionError(msg)


@pytest.mark.integration
async def test_a_slow_consumer_keeps_its_place_while_it_takes_messages(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, ask = asyncio.Event(), KeepAlive.ask

    async def asked(pings: KeepAlive) -> bool:
        is_asked.set()
        return await ask(pings)

    monkeypatch.setattr(keep_alive, "ANSWER_S", 2.0)
    monkeypatch.setattr(KeepAlive, "ask", asked)
    topic = new_topic()
    wish = CommandSubscribe(
        topic=topic, subscription="s", subType=CommandSubscribe.Exclusive, consumer_id=1, request_id=1
    )
    subscribe = BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish)
    flow = BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, messagePermits=1_000))
    async with (
        running_broker(cluster, send_buffer_bytes=MIB) as broker,
        frame_client(broker) as slow,
        frame_client(broker) as other,
    ):
        slow.is_silent = True
        assert (await slow.ask(subscribe)).type == BaseCommand.SUCCESS
        slow.send(flow)
        await fill(broker, other, topic)
        asking = asyncio.create_task(other.ask(subscribe))
        await is_asked.wait()
        taking = asyncio.create_task(slow.ended())
        await asyncio.wait([asking, taking], return_when=asyncio.FIRST_COMPLETED)
        assert (await asking).error.error == ServerError.ConsumerBusy
        assert not taking.done()
        taking.cancel()
