"""Roles through Pulsar's own client and over HTTP: allowed, forbidden, wrong, expired and missing tokens."""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pulsar
import pytest
from daybook_broker.broker import Broker

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    CommandSubscribe,
    ServerError,
)
from tests.unit.broker.admin.kit import NAMESPACE, TOPICS, Admin, admins, new_namespace
from tests.unit.broker.kit import LIMIT_S, frame_client, running_broker
from tests.unit.cli.kit import Process, run
from tests.unit.runtime.certificates import new_authority

pytestmark = pytest.mark.integration

SECRET = b"a secret of the tests, 32 bytes or more"

NOT_CONNECTED = ("AuthenticationError", "ConnectError", "Timeout")
"""What Pulsar's C++ client makes of a refused CONNECT: mostly it tries again until its time is over. The frames say which error it is."""


def token(role: str, **claims: Any) -> str:
    """A token as Pulsar's tools make them."""
    return jwt.encode({"sub": role, **claims}, SECRET, "HS256")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    return {"authentication": ("token",), "token_secret_file": file, "superuser_roles": ("root",)}


class _As:
    """The admin HTTP with a token."""

    def __init__(self, admin: Admin, text: str | None) -> None:
        self._admin = admin
        self._headers = {} if text is None else {"Authorization": f"Bearer {text}"}

    async def __call__(self, method: str, path: str, body: object = None) -> int:
        url = self._admin.broker.admin_url + path
        async with self._admin._session.request(method, url, json=body, headers=self._headers) as answer:
            if answer.status in {401, 403}:
                assert (await answer.json())["reason"]
            return answer.status

    async def read(self, path: str) -> Any:
        """The answer of a GET that is to work."""
        url = self._admin.broker.admin_url + path
        async with self._admin._session.get(url, headers=self._headers) as answer:
            assert answer.status == 200
            return await answer.json()


async def _with_token(broker: Broker, text: str | None, topic: str, limit_s: int = 10) -> str:
    """What comes of publishing and reading one message with a token: `ok`, or the client's error and where."""

    def work() -> str:
        authentication = None if text is None else pulsar.AuthenticationToken(text)
        client = pulsar.Client(
            broker.service_url, authentication=authentication, operation_timeout_seconds=limit_s
        )
        try:
            try:
                producer = client.create_producer(topic)
            except pulsar.PulsarException as error:
                return f"producer: {type(error).__name__}"
            producer.send(b"message")
            try:
                consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
            except pulsar.PulsarException as error:
                return f"consumer: {type(error).__name__}"
            assert consumer.receive(int(LIMIT_S * 1000)).data() == b"message"
            return "ok"
        finally:
            client.close()

    return await asyncio.to_thread(work)


async def test_roles_do_what_their_namespace_allows_and_nothing_else(
    cluster: LocalCluster, settings: dict[str, Any]
) -> None:
    tenant, name = new_namespace()
    topic, namespace = f"persistent://{tenant}/{name}/orders", f"{NAMESPACE}/{tenant}/{name}"
    async with admins(cluster, 1, **settings) as (admin,):
        root = _As(admin, token("root"))
        assert await root("PUT", namespace) == 204
        assert await root("POST", f"{namespace}/permissions/both", ["produce", "consume"]) == 204
        assert await root("POST", f"{namespace}/permissions/writer", ["produce"]) == 204
        assert await root("POST", f"{namespace}/permissions/reader", ["read"]) == 400
        broker = admin.broker
        assert await _with_token(broker, token("both"), topic) == "ok"
        assert await _with_token(broker, token("root", exp=int(time.time()) + 600), topic) == "ok"
        assert await _with_token(broker, token("writer"), topic) == "consumer: AuthorizationError"
        assert await _with_token(broker, token("stranger"), topic) == "producer: AuthorizationError"
        for wrong in (jwt.encode({"sub": "root"}, b"x" * 32, "HS256"), token("root", exp=1), "none", None):
            found = await _with_token(broker, wrong, topic, 2)
            assert found.removeprefix("producer: ") in NOT_CONNECTED, found
        assert await root("DELETE", f"{namespace}/permissions/both") == 204
        broker.access._known.clear()  # as after a second
        assert await _with_token(broker, token("both"), topic) == "producer: AuthorizationError"


async def test_the_admin_http_asks_who_it_is(cluster: LocalCluster, settings: dict[str, Any]) -> None:
    tenant, name = new_namespace()
    topic, namespace = f"{TOPICS}/{tenant}/{name}/orders", f"{NAMESPACE}/{tenant}/{name}"
    async with admins(cluster, 2, **settings) as brokers:
        for admin in brokers:  # redirects between brokers change nothing
            root, app, manager, nobody = (
                _As(admin, text) for text in (token("root"), token("app"), token("manager"), None)
            )
            for path in ("/health", "/metrics", "/admin/v2/brokers/health"):
                assert await nobody("GET", path) == 200
            for path in ("/admin/v2/tenants", f"{topic}/stats", "/admin/v2/nothing"):
                assert await nobody("GET", path) == 401
                assert await _As(admin, "none")("GET", path) == 401
                assert await _As(admin, token("root", exp=1))("GET", path) == 401
            assert await app("PUT", namespace) == 403
            assert await app("GET", "/admin/v2/tenants") == 403
            assert await app("GET", "/admin/v2/nothing") == 404
            if admin is brokers[0]:
                assert await root("PUT", namespace) == 204
                assert await app("PUT", topic) == 403
                assert await root("POST", f"{namespace}/permissions/app", ["produce"]) == 204
                assert await root("POST", f"{namespace}/permissions/manager", ["admin"]) == 204
                for each in brokers:
                    each.broker.access._known.clear()
                assert await manager("PUT", topic) == 204
            assert await app("PUT", topic) == 403
            assert await app("GET", f"{topic}/partitions") == 200
            assert await app("GET", f"{namespace}/topics") == 200
            assert await app("GET", f"{namespace}/permissions") == 403
            assert await manager("GET", f"{namespace}/permissions") == 200
            granted = {"app": ["produce"], "manager": ["admin"]}
            for caller, shown in ((app, {}), (manager, granted), (root, granted)):
                policies = await caller.read(namespace)
                assert policies["auth_policies"] == {"namespace_auth": shown}, "as of …/permissions"
            assert await manager("POST", f"{namespace}/permissions/manager", ["produce"]) == 403
            assert await manager("POST", f"{namespace}/policy", {"ttlMs": 7}) == 403
            assert await manager("POST", f"{topic}/subscription/s/skip_all") == 403
            assert await root("POST", f"{namespace}/policy", {"permissions": {"app": []}}) == 400
            assert await root("POST", f"{namespace}/policy", {"ttlMs": 7}) == 204
            layer = (
                await admin.broker.client.store.get(admin.broker.client.layout.namespace(tenant, name))
            ).value
            assert b'"app": ["produce"]' in layer


async def test_jobs_see_all_topics_and_a_token_comes_through_a_proxy(
    cluster: LocalCluster, settings: dict[str, Any]
) -> None:
    tenant, name = new_namespace()
    topic = f"/daybook/v1/topics/{tenant}%2F{name}%2Forders"
    async with admins(cluster, 1, **settings, jobs_roles=("spark",)) as (admin,):
        root, jobs, app = (_As(admin, token(role)) for role in ("root", "spark", "app"))
        assert await root("PUT", f"{TOPICS}/{tenant}/{name}/orders") == 204
        assert await root("POST", f"{NAMESPACE}/{tenant}/{name}/permissions/app", ["consume"]) == 204
        assert [await each("GET", "/daybook/v1/topics") for each in (root, jobs, app)] == [200, 200, 403]
        assert [await each("GET", topic) for each in (root, jobs, app)] == [200, 200, 200]
        assert await app("GET", "/daybook/v1/topics/t%2Fother%2Forders") == 403
        assert await jobs("DELETE", f"{TOPICS}/{tenant}/{name}/orders") == 403
        for own, authorization, status in (
            (token("spark"), None, 200),
            (token("spark"), "Bearer of-the-proxy", 200),
            (token("app"), f"Bearer {token('root')}", 403),
            ("none", f"Bearer {token('root')}", 401),
            ("", None, 401),
        ):
            headers = {"X-Daybook-Token": own} | ({"Authorization": authorization} if authorization else {})
            url = f"{admin.broker.admin_url}/daybook/v1/topics"
            async with admin._session.get(url, headers=headers) as answer:
                assert answer.status == status, (own, authorization)
                if not own:
                    assert "X-Daybook-Token: TOKEN" in (await answer.json())["reason"]


async def test_a_token_that_is_no_text_is_refused_as_any_wrong_one(
    cluster: LocalCluster, settings: dict[str, Any]
) -> None:
    async with admins(cluster, 1, **settings) as (admin,):
        address = urlsplit(admin.broker.admin_url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        with closing(writer):
            writer.write(
                b"GET /daybook/v1/topics HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer \xe4\xff\r\n\r\n"
            )
            assert (await reader.readline()).split()[1] == b"401"


async def test_without_a_token_no_command_but_connect_is_carried_out(
    cluster: LocalCluster, settings: dict[str, Any]
) -> None:
    topic = "persistent://t/ns/topic"
    async with running_broker(cluster, **settings) as broker:
        async with frame_client(broker, connect=False) as client:
            answer = await client.ask(_connect())
            assert answer.error.error == ServerError.AuthenticationError
            assert "set the client's authentication" in answer.error.message
            await client.ended()
        async with frame_client(broker, connect=False) as client:
            answer = await client.ask(_connect("root", exp=1))
            assert answer.error.error == ServerError.AuthenticationError
            assert answer.error.message == "the token has expired: get a new one"
            await client.ended()
        async with frame_client(broker, connect=False) as client:
            assert (await client.ask(_connect("stranger"))).type == BaseCommand.CONNECTED
            look = CommandLookupTopic(topic=topic, request_id=1)
            found = (
                await client.ask(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=look))
            ).lookupTopicResponse
            assert found.error == ServerError.AuthorizationError
            assert "ask a superuser for the permission admin or consume or produce" in found.message
            count = CommandPartitionedTopicMetadata(topic=topic, request_id=2)
            answer = await client.ask(
                BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=count)
            )
            assert answer.partitionMetadataResponse.error == ServerError.AuthorizationError
            names = CommandGetTopicsOfNamespace(namespace="t/ns", request_id=3)
            answer = await client.ask(
                BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=names)
            )
            assert answer.error.error == ServerError.AuthorizationError
            assert (await client.produce(topic)).error.error == ServerError.AuthorizationError
            wish = CommandSubscribe(
                topic=topic, subscription="s", subType=CommandSubscribe.Shared, consumer_id=1, request_id=4
            )
            answer = await client.ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish))
            assert answer.error.error == ServerError.AuthorizationError


async def test_the_command_line_shows_its_token(
    cluster: LocalCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    tenant, name = new_namespace()
    file = tmp_path / "token"
    file.write_text(token("root") + "\n")
    topic = TopicName(tenant, name, "orders")
    async with admins(cluster, 1, **settings) as (admin,):
        where = ("--zookeeper", admin.broker.settings.zookeeper, "--cluster", admin.broker.settings.cluster)

        def use() -> None:
            created = run("--token-file", file, "topic", "create", *where, topic)
            assert created.exit_code == 0, created.output
            refused = run("topic", "stats", *where, topic)
            assert refused.exit_code == 1
            assert "Authorization: Bearer" in refused.output
            with Process("topic", "produce", *where, topic, env={"DAYBOOK_TOKEN": token("root")}) as process:
                process.stdin.write(b"message\n")
                assert process.end()[0] == 0, process.errors
            with Process("topic", "produce", *where, topic) as process:
                assert process.end()[0] == 1
                assert "AuthenticationError" in process.errors

        await asyncio.to_thread(use)


async def test_a_connection_ends_when_its_token_expires(
    cluster: LocalCluster, settings: dict[str, Any]
) -> None:
    async with running_broker(cluster, **settings) as broker, frame_client(broker, connect=False) as client:
        answer = await client.ask(_connect("root", exp=int(time.time()) + 6))
        assert answer.type == BaseCommand.CONNECTED
        answer = await client.receive()
        assert answer.error.error == ServerError.AuthenticationError
        await client.ended()


async def test_a_client_certificate_is_a_role(cluster: LocalCluster, tmp_path: Path) -> None:
    root = new_authority()
    server, client = root.issue(tmp_path, "localhost"), root.issue(tmp_path, "app")
    changes: dict[str, Any] = {
        "authentication": ("tls",),
        "superuser_roles": ("app",),
        "tls_address": "127.0.0.1:0",
        "tls_certificate": server.certificate,
        "tls_key": server.key,
        "tls_ca": server.ca,
    }

    def publish(url: str) -> str:
        found = pulsar.Client(
            url,
            authentication=pulsar.AuthenticationTLS(str(client.certificate), str(client.key)),
            tls_trust_certs_file_path=str(client.ca),
            operation_timeout_seconds=10,
        )
        try:
            found.create_producer("persistent://t/certificates/topic").send(b"message")
        except pulsar.PulsarException as error:
            return type(error).__name__
        finally:
            found.close()
        return "ok"

    async with running_broker(cluster, **changes) as broker:
        assert await asyncio.to_thread(publish, broker.tls_url) == "ok"
        found = await asyncio.to_thread(publish, broker.service_url)
        assert found in NOT_CONNECTED


def _connect(role: str = "", **claims: Any) -> BaseCommand:
    wish = CommandConnect(client_version="by hand", protocol_version=21)
    if role:
        wish.auth_method_name, wish.auth_data = "token", token(role, **claims).encode()
    return BaseCommand(type=BaseCommand.CONNECT, connect=wish)
