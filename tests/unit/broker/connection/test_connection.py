"""Frames written by hand: what a client does wrong is answered with what to do, and harms no other connection."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.connection import keep_alive
from daybook_broker.connection.connection import Connection

from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.entries import encode_entry
from daybook.wire.pulsar.frames import CONNECT_BYTES_MAX, FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, frame_head
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandConnect,
    CommandGetOrCreateSchema,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSuccess,
    MessageMetadata,
    ProducerAccessMode,
    Schema,
    ServerError,
)
from tests.unit.broker.kit import LIMIT_S, FrameClient, contents, frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration


@asynccontextmanager
async def bystander(broker: Broker) -> AsyncIterator[None]:
    """Another client, which publishes before and after what happens meanwhile."""
    async with frame_client(broker) as client:
        assert (await client.produce(new_topic())).type == BaseCommand.PRODUCER_SUCCESS
        client.publish(b"before", 0)
        assert (await client.receive()).send_receipt.sequence_id == 0
        yield
        client.publish(b"after", 1)
        assert (await client.receive()).send_receipt.sequence_id == 1


def ping() -> BaseCommand:
    return BaseCommand(type=BaseCommand.PING, ping=CommandPing())


async def is_served(client: FrameClient) -> bool:
    return (await client.ask(ping())).type == BaseCommand.PONG


async def test_a_client_is_greeted_with_what_this_broker_has(broker: Broker) -> None:
    async with frame_client(broker, connect=False) as client:
        hello = CommandConnect(client_version="old", protocol_version=15)
        answer = (await client.ask(BaseCommand(type=BaseCommand.CONNECT, connect=hello))).connected
        assert answer.server_version.startswith("Daybook ")
        assert (answer.protocol_version, answer.max_message_size) == (15, MESSAGE_BYTES_MAX)
        flags = {field.name for field, value in answer.feature_flags.ListFields() if value}
        assert flags == {
            "supports_auth_refresh",
            "supports_get_partitioned_metadata_without_auto_creation",
            "supports_topic_watchers",
        }
        again = await client.ask(BaseCommand(type=BaseCommand.CONNECT, connect=hello))
        assert again.error.error == ServerError.NotAllowedError
        assert await is_served(client)


async def test_a_command_before_connect_is_refused_with_the_connection(broker: Broker) -> None:
    async with bystander(broker), frame_client(broker, connect=False) as client:
        answer = await client.produce(new_topic(), request_id=7)
        assert (answer.error.request_id, answer.error.error) == (7, ServerError.NotAllowedError)
        assert "CONNECT first" in answer.error.message
        await client.ended()


async def test_an_entry_before_connect_is_refused_with_the_connection(broker: Broker) -> None:
    async with bystander(broker), frame_client(broker, connect=False) as client:
        client.publish(b"early", 0)
        assert "CONNECT first" in (await client.receive()).error.message
        await client.ended()


async def test_a_wrong_checksum_is_answered_and_what_follows_is_published(broker: Broker) -> None:
    async with bystander(broker), frame_client(broker) as client:
        await client.produce(new_topic())
        metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=1)
        damaged = bytearray(encode_entry(metadata, b"payload"))
        damaged[-1] ^= 1
        body = CommandSend(producer_id=1, sequence_id=5)
        client.send(BaseCommand(type=BaseCommand.SEND, send=body), damaged)
        client.publish(b"good", 6)
        failure = (await client.receive()).send_error
        assert (failure.producer_id, failure.sequence_id) == (1, 5)
        assert failure.error == ServerError.ChecksumError
        assert "send it again" in failure.message
        assert (await client.receive()).send_receipt.sequence_id == 6


async def test_an_entry_for_nobody_is_answered_and_the_connection_continues(broker: Broker) -> None:
    async with bystander(broker), frame_client(broker) as client:
        client.publish(b"x", 3, producer_id=9)
        failure = (await client.receive()).send_error
        assert (failure.producer_id, failure.sequence_id) == (9, 3)
        assert "send PRODUCER" in failure.message
        assert await is_served(client)


@pytest.mark.parametrize("number", [51, 69, 1000])
async def test_an_unknown_command_is_answered_and_the_connection_continues(
    broker: Broker, number: int
) -> None:
    async with bystander(broker), frame_client(broker) as client:
        varint = bytes([number & 0x7F | 0x80, number >> 7]) if number > 127 else bytes([number])
        client.write(frame_head(b"\x08" + varint, 0))
        assert f"command {number} is not one of this release's" in (await client.receive()).error.message
        assert await is_served(client)


async def test_a_command_that_only_brokers_send_is_refused(broker: Broker) -> None:
    async with frame_client(broker) as client:
        success = BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=4))
        answer = await client.ask(success)
        assert answer.error.request_id == 4
        assert "this broker has no SUCCESS" in answer.error.message
        assert await is_served(client)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 8,
        struct.pack(">I", FRAME_BYTES_MAX + 1),
        struct.pack(">II", 8, 100) + b"abcd",
        frame_head(b"\xff\xff", 0),
        frame_head(BaseCommand(type=BaseCommand.FLOW).SerializePartialToString(), 0),
    ],
)
async def test_garbage_ends_its_connection_alone(broker: Broker, garbage: bytes) -> None:
    async with bystander(broker):
        for connect in (False, True):
            async with frame_client(broker, connect=connect) as client:
                client.write(garbage)
                assert (await client.receive()).error.message
                await client.ended()


async def test_before_connect_a_frame_is_short(broker: Broker) -> None:
    async with frame_client(broker, connect=False) as client:
        client.write(struct.pack(">I", CONNECT_BYTES_MAX + 1))
        assert "are allowed" in (await client.receive()).error.message
        await client.ended()


async def test_what_a_broker_does_not_have_is_refused_with_the_alternative(broker: Broker) -> None:
    async with frame_client(broker) as client:
        avro = await client.produce(new_topic(), schema=Schema(name="s", schema_data=b"{}", type=Schema.Avro))
        assert avro.error.error == ServerError.IncompatibleSchema
        assert "publish bytes" in avro.error.message
        transactions = await client.produce(new_topic(), txn_enabled=True)
        assert transactions.error.error == ServerError.NotAllowedError
        bad_name = await client.produce("persistent://a/b")
        assert bad_name.error.error == ServerError.InvalidTopicName
        text = await client.produce(new_topic(), schema=Schema(name="s", schema_data=b"", type=Schema.String))
        assert text.type == BaseCommand.PRODUCER_SUCCESS


async def test_receipts_are_in_order_and_echo_the_ids(broker: Broker) -> None:
    async with frame_client(broker) as client:
        name = (await client.produce(new_topic())).producer_success.producer_name
        assert name
        for number in range(100):
            client.publish(b"%d" % number, 10 * number, num_messages=5, highest_sequence_id=10 * number + 4)
        client.send(
            BaseCommand(
                type=BaseCommand.CLOSE_PRODUCER,
                close_producer=CommandCloseProducer(producer_id=1, request_id=3),
            )
        )
        receipts = [(await client.receive()).send_receipt for _ in range(100)]
        assert [each.sequence_id for each in receipts] == [10 * number for number in range(100)]
        assert [each.highest_sequence_id for each in receipts] == [10 * number + 4 for number in range(100)]
        assert [each.message_id.entryId for each in receipts] == list(range(100))
        assert (await client.receive()).success.request_id == 3
        client.publish(b"late", 1000)
        assert (await client.receive()).send_error.sequence_id == 1000


async def test_a_topic_without_a_schema_says_so_to_its_producers(broker: Broker) -> None:
    """Java's client ends a connection whose PRODUCER_SUCCESS has no schema version at all."""
    async with frame_client(broker) as client:
        opened = (await client.produce(new_topic())).producer_success
        assert opened.HasField("schema_version")
        assert opened.schema_version == b""


@pytest.mark.parametrize(
    ("kind", "version"), [(Schema.NoSchema, b""), (Schema.String, b""), (Schema.Avro, None)]
)
async def test_a_schema_passes_if_readers_need_not_fetch_it(
    broker: Broker, kind: Schema.Type, version: bytes | None
) -> None:
    """Java's client asks for the schema of bytes before it publishes dead letters."""
    wish = CommandGetOrCreateSchema(
        request_id=7, topic=new_topic(), schema=Schema(name="", schema_data=b"", type=kind)
    )
    async with frame_client(broker) as client:
        client.send(BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=wish))
        answer = (await client.receive()).getOrCreateSchemaResponse
    assert answer.request_id == 7
    assert (answer.schema_version if answer.HasField("schema_version") else None) == version
    assert answer.HasField("error_code") == (version is None)


async def test_the_same_producer_again_is_the_same_one(broker: Broker) -> None:
    async with frame_client(broker) as client:
        topic = new_topic()
        first = (await client.produce(topic)).producer_success
        assert (await client.produce(topic)).producer_success.producer_name == first.producer_name
        other = await client.produce(new_topic())
        assert other.error.error == ServerError.NotAllowedError


async def test_limits_are_answered_with_the_setting_to_raise(cluster: LocalCluster) -> None:
    async with running_broker(cluster, connections_max=2, producers_max=1, handles_max=1) as broker:
        topic = new_topic()
        async with frame_client(broker) as first, frame_client(broker) as second:
            assert (await first.produce(topic)).type == BaseCommand.PRODUCER_SUCCESS
            handles = await first.produce(new_topic(), producer_id=2)
            assert handles.error.error == ServerError.TooManyRequests
            assert "raise handles_max" in handles.error.message
            busy = (await second.produce(topic)).error
            assert busy.error == ServerError.ProducerBusy
            assert "raise producers_max" in busy.message
            async with frame_client(broker, connect=False) as third:
                assert "raise connections_max" in (await third.receive()).error.message
                await third.ended()
            assert await is_served(first)


async def test_a_dead_client_is_ended_and_a_living_one_stays(cluster: LocalCluster) -> None:
    async with (
        running_broker(cluster, keep_alive_ms=100) as broker,
        frame_client(broker) as dead,
        frame_client(broker) as alive,
    ):
        dead.is_silent = True
        ending = asyncio.create_task(dead.ended())
        while not ending.done():
            assert await is_served(alive)
        await ending


@pytest.mark.pure
async def test_a_client_that_the_broker_does_not_read_from_keeps_its_place(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "ANSWER_S", 0.2)
    paused, pause = asyncio.Event(), Connection.pause

    def tell(connection: Connection, reason: object) -> None:
        pause(connection, reason)
        paused.set()

    monkeypatch.setattr(Connection, "pause", tell)
    topic = new_topic()
    named: dict[str, Any] = {"producer_name": "p", "user_provided_producer_name": True}
    async with (
        running_broker(cluster, connection_pending_bytes=2**20) as broker,
        frame_client(broker) as first,
        frame_client(broker) as second,
    ):
        await first.produce(topic, **named)
        with monkeypatch.context() as patch:
            patch.setattr(type(broker.ownership), "is_certain", property(lambda _: False))  # no receipts
            first.publish(bytes(2**20), 0)
            async with asyncio.timeout(LIMIT_S):
                await paused.wait()
            assert any(each.is_paused for each in broker.connections)
            assert (await second.produce(topic, **named)).error.error == ServerError.ProducerBusy
        assert (await first.receive()).type == BaseCommand.SEND_RECEIPT
        assert await is_served(first)


async def test_of_two_that_follow_a_dead_producer_under_its_name_one_is_admitted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep_alive, "ANSWER_S", 1.0)
    wish = CommandProducer(
        topic=new_topic(), producer_name="p", user_provided_producer_name=True, producer_id=1, request_id=1
    )
    command = BaseCommand(type=BaseCommand.PRODUCER, producer=wish)
    answers: asyncio.Queue[BaseCommand] = asyncio.Queue()

    async def speak(client: FrameClient) -> None:
        client.send(command)
        while True:
            answers.put_nowait(await client.receive())

    async with frame_client(broker) as dead, frame_client(broker) as one, frame_client(broker) as other:
        assert (await dead.ask(command)).type == BaseCommand.PRODUCER_SUCCESS
        dead.is_silent = True
        speaking = [asyncio.create_task(speak(each)) for each in (one, other)]
        first, second = await answers.get(), await answers.get()
        assert first.type == BaseCommand.PRODUCER_SUCCESS
        assert second.error.error == ServerError.ProducerBusy
        for each in speaking:
            each.cancel()


async def test_a_client_that_takes_no_answer_is_ended_before_connect_too(cluster: LocalCluster) -> None:
    """Its answers wait in the broker, and an end in order would wait for them for ever."""
    loop, unknown = asyncio.get_running_loop(), frame_head(b"\x08\x64", 0)
    async with running_broker(cluster, keep_alive_ms=100) as broker:
        host, _, port = broker.service_url.rpartition("://")[2].rpartition(":")
        with socket.socket() as hostile:
            hostile.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            hostile.settimeout(0)
            await loop.sock_connect(hostile, (host, int(port)))
            sending = asyncio.create_task(loop.sock_sendall(hostile, unknown * 60_000))
            async with asyncio.timeout(LIMIT_S):
                while not any(each.unsent_bytes for each in broker.connections):  # noqa: ASYNC110 - nor of what it does not take
                    await asyncio.sleep(0)
                for each in broker.connections:
                    each.close()
                while len(broker.connections):  # noqa: ASYNC110 - nothing notifies a test of the end of a connection
                    await asyncio.sleep(0)
            await asyncio.gather(sending, return_exceptions=True)


async def test_an_exclusive_producer_keeps_others_out_and_leaves_to_who_waits(broker: Broker) -> None:
    topic = new_topic()
    async with frame_client(broker) as first, frame_client(broker) as second:
        exclusive = ProducerAccessMode.Exclusive
        opened = (await first.produce(topic, producer_access_mode=exclusive)).producer_success
        assert opened.topic_epoch == 0
        assert (await second.produce(topic)).error.error == ServerError.ProducerBusy
        fenced = await second.produce(topic, producer_access_mode=exclusive)
        assert fenced.error.error == ServerError.ProducerFenced
        waiting = await second.produce(topic, producer_access_mode=ProducerAccessMode.WaitForExclusive)
        assert not waiting.producer_success.producer_ready
        second.publish(b"too early", 0)
        early = (await second.receive()).send_error
        assert (early.sequence_id, early.error) == (0, ServerError.NotAllowedError)
        again = await second.produce(topic, producer_access_mode=ProducerAccessMode.WaitForExclusive)
        assert not again.producer_success.producer_ready, "the same producer, which waits as before"
        first.close()
        ready = (await second.receive()).producer_success
        assert (ready.producer_ready, ready.topic_epoch) == (True, 1)
        second.publish(b"x", 0)
        assert (await second.receive()).type == BaseCommand.SEND_RECEIPT
        assert await contents(broker, topic) == [b"x"]


async def test_a_connection_that_is_lost_while_a_producer_is_closed_takes_the_producer_along(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    async with frame_client(broker) as first, frame_client(broker) as second:
        await first.produce(topic, producer_access_mode=ProducerAccessMode.Exclusive)
        (served,) = broker.registry.served()
        await second.produce(topic, producer_access_mode=ProducerAccessMode.WaitForExclusive)
        monkeypatch.setattr(type(broker.ownership), "is_certain", property(lambda _: False))  # no receipts
        first.publish(b"a", 0)
        close = CommandCloseProducer(producer_id=1, request_id=5)
        first.send(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))
        assert await is_served(first)
        first.close()
        assert (await second.receive()).producer_success.producer_ready
        assert len(served.producers) == 1
        monkeypatch.undo()


async def test_a_fenced_producer_never_comes_back(broker: Broker) -> None:
    topic = new_topic()
    async with frame_client(broker) as first, frame_client(broker) as second:
        await first.produce(topic, producer_access_mode=ProducerAccessMode.Exclusive)
        fencing = ProducerAccessMode.ExclusiveWithFencing
        taken = (await second.produce(topic, producer_access_mode=fencing)).producer_success
        assert taken.topic_epoch == 1
        assert (await first.receive()).close_producer.producer_id == 1
        first.publish(b"ignored", 0)
        again = await first.produce(topic, producer_access_mode=ProducerAccessMode.Exclusive, topic_epoch=0)
        assert again.error.error == ServerError.ProducerFenced
        second.publish(b"mine", 0)
        assert (await second.receive()).send_receipt.message_id.entryId == 0


async def test_rule_46_receipts_are_held_while_ownership_is_in_doubt(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with frame_client(broker) as client:
        await client.produce(new_topic())
        client.publish(b"a", 0)
        assert (await client.receive()).send_receipt.sequence_id == 0
        certainty = [False]
        monkeypatch.setattr(type(broker.ownership), "is_certain", property(lambda _: certainty[0]))
        client.publish(b"b", 1)
        client.publish(b"c", 2)
        (topic,) = broker.registry.served()
        while topic.publishing.entries_in < 3:
            assert await is_served(client)
        assert await is_served(client), "the next answer is no receipt"
        certainty[0] = True
        assert [(await client.receive()).send_receipt.sequence_id for _ in range(2)] == [1, 2]
