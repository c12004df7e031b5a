"""Topics of any name, and Topics in trouble, against brokers that ask for tokens, with the operator as a process.

Whatever is wrong is a condition that says what to do. It costs a bounded number of reconciles, and is over once its cause is.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import jwt
import pulsar
import pytest

from daybook.client.client import Client
from daybook.core.topics.name import TopicName
from daybook.local.cluster import CLUSTER_NAME
from daybook.local.zookeeper import EmbeddedZooKeeper
from tests.cluster.control_plane import ControlPlane
from tests.fixtures.brokers import Brokers, MakeClient, write_settings
from tests.fixtures.cluster import PooledCluster
from tests.kubernetes.api.operator_kit import FAST, OperatorProcess, condition, pool, until
from tests.kubernetes.api.topic_kit import Site, made_site, new_namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SECRET: Final = b"a secret of the tests, 32 bytes or more"
RESYNC_S: Final = int(FAST["RESYNC_MS"]) / 1000
ODD: Final = "größe x+%2F:|?#\t語"
"""The last part of a name, with characters that paths, JSON and regular expressions give a meaning."""


def token(secret: bytes = SECRET) -> str:
    return jwt.encode({"sub": "operator"}, secret, "HS256")


@pytest.fixture(scope="module")
def namespace() -> str:
    return new_namespace("odd")


@pytest.fixture(scope="module")
def shared_brokers(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Two brokers of this module alone, which let nobody but the operator's role do anything."""
    secret = tmp_path_factory.mktemp("secret") / "key"
    secret.write_bytes(SECRET)
    with PooledCluster(tmp_path_factory.mktemp("pooled"), {f"{namespace}.bk": 3}) as cluster:
        write_settings(
            cluster,
            authentication=["token"],
            token_secret_file=str(secret),
            superuser_roles=["operator"],
        )
        yield Brokers(cluster)


@pytest.fixture(scope="module")
def site(
    control_plane: ControlPlane,
    namespace: str,
    shared_brokers: Brokers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    with made_site(control_plane, namespace, shared_brokers, tmp_path_factory.mktemp("odd")) as made:
        yield made


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's token, as kubelets mount it."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(token(), encoding="utf-8")
    return file


@pytest.fixture
def operator(site: Site, token_file: Path) -> Iterator[OperatorProcess]:
    """A running operator with a token."""
    process = site.operator(BROKER_TOKEN_FILE=str(token_file))
    process.start()
    yield process
    process.end()


def test_a_name_of_any_characters_is_created_reported_and_deleted(
    site: Site, operator: OperatorProcess, brokers: Brokers, make_client: MakeClient
) -> None:
    odd = {"plain": ODD, "parts": f"{ODD} too", "long": "語" * 336}
    names = {each: site.topic_name(local) for each, local in odd.items()}
    for each, local in odd.items():
        site.create(each, topicName=local, partitions=2 * (each != "plain"), reclaimPolicy="Delete")
    for each, name in names.items():
        until(partial(site.is_ready, each), operator, f"{each} is created")
        assert site.get(each)["status"]["topicName"] == str(name)
    assert site.manager(names["plain"]) == "plain"
    assert [site.partitions(name) for name in names.values()] == [None, 2, 2]

    client = make_client(authentication=pulsar.AuthenticationToken(token()))
    used: list[pulsar.Consumer | pulsar.Producer] = []
    for name in names.values():
        used += client.subscribe(str(name), "slow"), client.create_producer(str(name))
        used[-1].send(b"message")
    for each in odd:
        until(
            partial(site.has_reason, each, "WithinQuota", "BacklogHealthy"),
            operator,
            f"{each} is reported",
        )
    assert site.get("plain")["status"]["owner"] in brokers.ids

    for user in used:
        user.close()  # one that connects again would make the topic anew
    for each in odd:
        site.resources.delete("Topic", each)
    for each, name in names.items():
        until(partial(site.is_gone, each), operator, f"{each} is deleted by its broker")
        assert site.policy(name) is None
        assert site.partitions(name) is None


LATER: Final = "later"
"""Its list of ledgers is of a later release."""
GARBAGE: Final = "garbage"
"""Its policy is no policy; it is to be deleted."""
REFUSED: Final = "refused"
"""Brokers refuse the token that is to delete it."""
USED: Final = "used"
"""Nothing is wrong with it but the report of the brokers."""
POOLLESS: Final = "poolless"
"""Its pool does not exist."""
UNANSWERED: Final = "unanswered"
"""The ZooKeeper of its pool does not answer."""

SAID: Final = {
    LATER: ("MetadataUnreadable", "has format 99", "Use an operator of the release that wrote it"),
    GARBAGE: ("DeletionWaits", "policy of persistent://", "is no JSON"),
    REFUSED: ("DeletionWaits", "the token was not signed with HS256", "operator.brokerToken"),
    POOLLESS: ("PoolNotFound", "There is no BookiePool other", "Create it"),
    UNANSWERED: ("MetadataUnavailable", "does not answer", "check that ZooKeeper runs"),
}
"""The reason of the condition Ready, what is wrong, and what to do."""


def reconciles(operator: OperatorProcess) -> float:
    return sum(
        operator.metric(f'daybook_operator_reconciles_total{{kind="Topic",result="{result}"}}')
        for result in ("ok", "error")
    )


def failures(operator: OperatorProcess) -> float:
    return operator.metric('daybook_operator_reconciles_total{kind="Topic",result="error"}')


def rewrite(site: Site, name: TopicName, part: str, data: bytes) -> bytes:
    """Write the topic's node, or its `part`, as no release of ours would; what it was."""

    async def write(client: Client) -> bytes:
        path = client.layout.topic(name) + part
        before = await client.store.get(path)
        await client.store.put(path, data, before.version)
        return before.value

    return site.ask(write)


def test_what_is_wrong_is_a_condition_costs_little_and_ends_with_its_cause(
    site: Site,
    operator: OperatorProcess,
    brokers: Brokers,
    token_file: Path,
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    own_zookeeper.pause()
    for each in (LATER, GARBAGE, REFUSED, USED):
        site.create(each, reclaimPolicy="Delete")
        until(partial(site.is_ready, each), operator, f"{each} is created")
    lists = rewrite(site, site.topic_name(LATER), "", b'{"formatVersion":99}')
    policy = rewrite(site, site.topic_name(GARBAGE), "/policy", b"\xff{")
    token_file.write_text(token(b"x" * 32), encoding="utf-8")

    began_s, before = time.monotonic(), reconciles(operator)
    for each in (GARBAGE, REFUSED):
        site.resources.delete("Topic", each)
    site.create(POOLLESS, poolRef={"name": "other"})
    site.resources.create(pool("away", own_zookeeper.connect_string, CLUSTER_NAME, is_paused=True))
    site.create(UNANSWERED, poolRef={"name": "away"})
    for each, (reason, *texts) in SAID.items():
        until(partial(site.has_reason, each, reason), operator, f"{each} is {reason}")
        message = condition(site.get(each), "Ready")["message"]
        for text in texts:
            assert text in message
    until(
        partial(site.has_reason, USED, "BrokersSilent", "BacklogHealthy"),
        operator,
        "the report is refused",
    )
    assert "the token was not signed" in condition(site.get(USED), "BacklogHealthy")["message"]
    assert site.is_ready(USED), "clients can use it all the same"

    failed = failures(operator) + 3
    until(lambda: failures(operator) >= failed, operator, "a deletion that fails is tried again")
    cycles = 1 + (time.monotonic() - began_s) / RESYNC_S
    assert reconciles(operator) - before <= (len(SAID) + 1) * (cycles + 4), (
        "each resync is one, and each news"
    )
    assert operator.is_running()

    rewrite(site, site.topic_name(LATER), "", lists)
    rewrite(site, site.topic_name(GARBAGE), "/policy", policy)
    token_file.write_text(token(), encoding="utf-8")
    site.resources.create(pool("other", site.zookeeper, CLUSTER_NAME, is_paused=True))
    own_zookeeper.resume()
    for each in (LATER, POOLLESS, UNANSWERED):
        until(partial(site.is_ready, each), operator, f"{each} is ready")
    for each in (GARBAGE, REFUSED):
        until(partial(site.is_gone, each), operator, f"{each} is deleted")
        assert site.policy(site.topic_name(each)) is None
    until(
        lambda: condition(site.get(USED), "BacklogHealthy").get("status") == "True",
        operator,
        "the report is there again",
    )
    assert operator.end() == 0
