"""Tokens that expire while a client is connected: it shows a newer one, or the connection ends."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jwt
import pulsar
import pytest
from daybook_broker.broker import Broker
from daybook_broker.connection.credentials import REFRESH

from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    FeatureFlags,
    ServerError,
)
from tests.unit.broker.kit import LIMIT_S, FrameClient, frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration

SECRET = b"a secret of the tests, 32 bytes or more"
SHORT_S = 8
"""Long enough that a client is asked for another token before the end, also on a busy machine."""


def token(role: str, life_s: int | None = SHORT_S) -> str:
    expires = {} if life_s is None else {"exp": int(time.time()) + life_s}
    return jwt.encode({"sub": role, **expires}, SECRET, "HS256")


@pytest.fixture
async def broker(cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[Broker]:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    settings: dict[str, Any] = {
        "authentication": ("token",),
        "token_secret_file": file,
        "superuser_roles": ("root",),
    }
    async with running_broker(cluster, **settings) as started:
        yield started


def connect(shown: str, *, refreshes: bool = True) -> BaseCommand:
    wish = CommandConnect(
        client_version="by hand",
        protocol_version=21,
        auth_method_name="token",
        auth_data=shown.encode(),
        feature_flags=FeatureFlags(supports_auth_refresh=refreshes),
    )
    return BaseCommand(type=BaseCommand.CONNECT, connect=wish)


def response(shown: str) -> BaseCommand:
    answer = CommandAuthResponse(response=AuthData(auth_method_name="token", auth_data=shown.encode()))
    return BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=answer)


async def challenged(client: FrameClient) -> None:
    answer = await client.receive()
    assert answer.type == BaseCommand.AUTH_CHALLENGE, answer
    assert answer.authChallenge.challenge.auth_method_name == "token"
    assert answer.authChallenge.challenge.auth_data == REFRESH
    assert answer.authChallenge.protocol_version == 21


async def continues(client: FrameClient) -> None:
    answer = await client.ask(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
    assert answer.type == BaseCommand.PONG


async def refused(client: FrameClient, reason: str) -> None:
    answer = await client.receive()
    assert answer.error.error == ServerError.AuthenticationError
    assert reason in answer.error.message
    await client.ended()


async def shows_a_newer_one(client: FrameClient) -> None:
    await challenged(client)
    client.send(response(token("root")))
    await continues(client)
    await challenged(client)
    client.send(response(token("root", None)))
    await continues(client)


async def shows_the_old_one(client: FrameClient, shown: str) -> None:
    await challenged(client)
    client.send(response(shown))
    await continues(client)
    await challenged(client)
    await refused(client, "the token has expired: connect again")


async def shows_another_role(client: FrameClient) -> None:
    await challenged(client)
    client.send(response(token("other")))
    await refused(client, "of role 'root', and its new token is of 'other'")


async def shows_nothing_that_counts(client: FrameClient) -> None:
    await challenged(client)
    client.send(response("none"))
    await refused(client, "no JWT that can be read")


async def says_nothing(client: FrameClient) -> None:
    await challenged(client)
    await refused(client, "the token has expired: connect again")


async def test_a_client_is_asked_for_a_newer_token_before_its_own_expires(broker: Broker) -> None:
    shown = token("root", 2 * SHORT_S)
    cases: list[tuple[str, Callable[[FrameClient], Any]]] = [
        (token("root"), shows_a_newer_one),
        (shown, lambda client: shows_the_old_one(client, shown)),
        (token("root"), shows_another_role),
        (token("root"), shows_nothing_that_counts),
        (token("root"), says_nothing),
    ]

    async def play(first: str, case: Callable[[FrameClient], Any]) -> None:
        async with frame_client(broker, connect=False) as client:
            answer = await client.ask(connect(first))
            assert answer.type == BaseCommand.CONNECTED
            assert answer.connected.feature_flags.supports_auth_refresh
            await case(client)

    async with asyncio.TaskGroup() as group:
        for first, case in cases:
            group.create_task(play(first, case))


async def test_a_response_that_nobody_asked_for_is_refused_and_the_connection_continues(
    broker: Broker,
) -> None:
    async with frame_client(broker, connect=False) as client:
        assert (await client.ask(connect(token("root", None)))).type == BaseCommand.CONNECTED
        answer = await client.ask(response(token("other")))
        assert answer.error.error == ServerError.NotAllowedError
        assert "has not asked for it" in answer.error.message
        await continues(client)


async def test_pulsars_client_goes_on_with_the_tokens_of_its_supplier(broker: Broker) -> None:
    topic, asked = new_topic(), threading.Condition()
    calls: list[float] = []

    def supply() -> str:
        with asked:
            calls.append(time.monotonic())
            asked.notify_all()
        return token("root")

    def publish() -> None:
        client = pulsar.Client(broker.service_url, authentication=pulsar.AuthenticationToken(supply))
        try:
            producer = client.create_producer(topic)
            producer.send(b"with the first token")
            before = set(broker.connections)
            with asked:
                first = len(calls)
                assert asked.wait_for(lambda: len(calls) >= first + 3, LIMIT_S), calls
            producer.send(b"with a later one")
            assert set(broker.connections) == before, "no connection ended"
        finally:
            client.close()

    await asyncio.to_thread(publish)
