"""TLS of a broker's ports: files and keys that are replaced under it, https of the admin API, and the command line over both."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from daybook_broker.admin.server import AdminServer
from daybook_broker.auth.tokens import FollowedKey, Identity, secret_key
from daybook_broker.broker import Broker
from daybook_broker.errors import AuthenticationError
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.process import _serve_admin
from prometheus_client import CollectorRegistry

from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.tls import TlsFiles
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandConnect
from tests.unit.broker.admin.kit import NAMESPACE, new_namespace
from tests.unit.broker.kit import FrameClient, broker_settings, client_for_broker, running_broker
from tests.unit.cli.kit import Process, run
from tests.unit.runtime.certificates import Authority, new_authority

CA = new_authority()
OTHER_CA = new_authority("another CA")


def settings_of(files: TlsFiles) -> dict[str, Any]:
    return {
        "tls_address": "127.0.0.1:0",
        "tls_certificate": files.certificate,
        "tls_key": files.key,
        "tls_ca": files.ca,
    }


def trusting(authority: Authority, own: TlsFiles | None = None) -> ssl.SSLContext:
    """A client's context."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if own is not None:
        assert own.certificate is not None
        context.load_cert_chain(own.certificate, own.key)
    return context


@asynccontextmanager
async def over_tls(broker: Broker, context: ssl.SSLContext) -> AsyncIterator[tuple[FrameClient, int]]:
    """A client whose CONNECT is answered, and the serial number of the broker's certificate."""
    host, _, port = broker.tls_url.rpartition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    client = FrameClient(reader, writer)
    try:
        hello = CommandConnect(client_version="by hand", protocol_version=21)
        answer = await client.ask(BaseCommand(type=BaseCommand.CONNECT, connect=hello))
        assert answer.type == BaseCommand.CONNECTED
        yield client, int(writer.get_extra_info("peercert")["serialNumber"], 16)
    finally:
        client.close()


async def refuses(broker: Broker, context: ssl.SSLContext) -> bool:
    """Whether a client gets no answer; with TLS 1.3 it notices a refusal of its certificate when it reads."""
    try:
        async with over_tls(broker, context):
            return False
    except (OSError, EOFError):
        return True


@pytest.mark.integration
async def test_a_new_certificate_and_another_ca_count_for_new_connections(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    mine, theirs = CA.issue(tmp_path, "client"), OTHER_CA.issue(tmp_path, "stranger")
    files = CA.issue(tmp_path, "server")
    async with (
        running_broker(cluster, **settings_of(files)) as broker,
        over_tls(broker, trusting(CA, mine)) as (old, first),
    ):
        assert await refuses(broker, trusting(CA, theirs))
        assert files.key is not None
        key = files.key.read_bytes()
        files.key.write_bytes(b"half of a new key")
        async with over_tls(broker, trusting(CA, mine)) as (_, serial):
            assert serial == first, "the last set that can be used stays in use"
        files.key.write_bytes(key)
        OTHER_CA.issue(tmp_path, "server")
        async with over_tls(broker, trusting(OTHER_CA, theirs)) as (_, serial):
            assert serial != first
        assert await refuses(broker, trusting(OTHER_CA, mine))
        assert (await old.produce("persistent://public/tls/topic")).type == BaseCommand.PRODUCER_SUCCESS


def test_a_new_key_of_tokens_counts_for_new_connections_and_an_unusable_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    former, new = b"f" * 32, b"n" * 33
    file.write_bytes(former)
    key = FollowedKey(file, "sub", secret_key)
    old_token, token = (jwt.encode({"sub": "app"}, each, "HS256") for each in (former, new))
    assert key.identify(old_token) == Identity("app")
    for unusable in (b"short", None):
        file.unlink()
        if unusable is not None:
            file.write_bytes(unusable)
        for _ in range(2):
            assert key.identify(old_token) == Identity("app")
    file.write_bytes(new)
    assert key.identify(token) == Identity("app")
    with pytest.raises(AuthenticationError):
        key.identify(old_token)


@asynccontextmanager
async def secure_brokers(cluster: LocalCluster, number: int, **changes: Any) -> AsyncIterator[list[Broker]]:
    """Brokers whose admin HTTP is there over TLS alone."""
    async with AsyncExitStack() as stack:
        found = []
        for index in range(number):
            admin = {"admin_address": "", "admin_tls_address": "127.0.0.1:0"}
            settings = broker_settings(cluster, f"secure-{index}", **admin, **changes)
            client = await stack.enter_async_context(client_for_broker(settings))
            broker = Broker(settings, client, BrokerMetrics(CollectorRegistry()))
            server = AdminServer(broker)
            stack.push_async_callback(server.stop)
            plain, secure = await _serve_admin(server, settings)
            assert not plain
            await broker.start(admin_url=plain, admin_tls_url=secure)
            stack.push_async_callback(broker.stop)
            found.append(broker)
        started = {broker.settings.broker_id for broker in found}
        for broker in found:
            ownership = broker.ownership
            while started != ownership.view.brokers.keys() or ownership.view.leader is None:
                await ownership._members.changed()
        yield found


@pytest.mark.integration
async def test_the_admin_http_and_the_command_line_use_tls_and_certificates_are_roles(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    server, root, app = (CA.issue(tmp_path, name) for name in ("localhost", "root", "app"))
    changes = {**settings_of(server), "authentication": ("tls",), "superuser_roles": ("root",)}
    tenant, namespace = new_namespace()
    topic = TopicName(tenant, namespace, "orders")
    where = ("--zookeeper", cluster.zookeeper.connect_string, "--cluster", CLUSTER_NAME)

    def options(files: TlsFiles) -> tuple[object, ...]:
        return ("--tls-ca", files.ca, "--tls-certificate", files.certificate, "--tls-key", files.key)

    def use() -> None:
        for command in ("create", "stats"):
            found = run(*options(root), "topic", command, *where, topic)
            assert found.exit_code == 0, found.output
        with Process(*options(root), "topic", "produce", *where, topic) as process:
            process.stdin.write(b"a message\n")
            assert process.end()[0] == 0, process.errors
        refused = run(*options(app), "topic", "stats", *where, topic)
        assert refused.exit_code == 1
        assert "role 'app' may not" in " ".join(refused.output.split())
        refused = run("topic", "stats", *where, topic)
        assert refused.exit_code == 1, "the system's authorities did not sign the broker's certificate"

    async with secure_brokers(cluster, 2, **changes) as brokers, aiohttp.ClientSession() as session:
        for broker, files, status in ((brokers[0], root, 204), (brokers[1], app, 403)):
            url = f"{broker.admin_tls_url}{NAMESPACE}/{tenant}/{namespace}"
            async with session.put(url, ssl=trusting(CA, files)) as answer:
                assert answer.status == status
        await asyncio.to_thread(use)
        path = f"/lookup/v2/topic/persistent/{tenant}/{namespace}/orders"
        for broker in brokers:  # one of them sends the request on, over https
            async with session.get(broker.admin_tls_url + path, ssl=trusting(CA, root)) as answer:
                assert answer.status == 200
                found = await answer.json()
        assert found["httpUrl"] is None
        assert found["httpUrlTls"] in {broker.admin_tls_url for broker in brokers}
        assert found["brokerUrlTls"] in {broker.tls_url for broker in brokers}
