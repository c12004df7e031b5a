"""Topic resources against a real API server, ZooKeeper, bookies and brokers, with the operator as a process that may die."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from daybook.client.broker_admin import Admin, AdminError
from daybook.core.topics.policy import PolicyLayer
from daybook.metadata.partitions import PartitionManager, partition
from tests.cluster.control_plane import ControlPlane
from tests.fixtures.brokers import Brokers, MakeClient, write_settings
from tests.fixtures.cluster import PooledCluster
from tests.kubernetes.api.operator_kit import (
    OperatorProcess,
    condition,
    die_before_every_effect,
    until,
)
from tests.kubernetes.api.topic_kit import Site, made_site, new_namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def namespace() -> str:
    return new_namespace("topics")


@pytest.fixture(scope="module")
def shared_brokers(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Brokers of this module alone: a Topic's messages lie on bookies of its pool, which the pool's name is part of (rule 69)."""
    with PooledCluster(tmp_path_factory.mktemp("pooled"), {f"{namespace}.bk": 3}) as cluster:
        write_settings(cluster)
        yield Brokers(cluster)


@pytest.fixture(scope="module")
def site(
    control_plane: ControlPlane,
    namespace: str,
    shared_brokers: Brokers,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    with made_site(control_plane, namespace, shared_brokers, tmp_path_factory.mktemp("topics")) as made:
        yield made


@pytest.fixture
def empty_site(
    control_plane: ControlPlane, namespace: str, shared_brokers: Brokers, tmp_path: Path
) -> Iterator[Site]:
    """A namespace without the Topics of other tests."""
    with made_site(control_plane, f"{namespace}-empty", shared_brokers, tmp_path) as made:
        yield made


@pytest.fixture
def operator(site: Site) -> Iterator[OperatorProcess]:
    """A running operator."""
    process = site.operator()
    process.start()
    yield process
    process.end()


def test_a_topic_is_created_used_grown_and_kept(
    site: Site, operator: OperatorProcess, brokers: Brokers, make_client: MakeClient
) -> None:
    site.create("life", partitions=2, durability="Sync", messageTTLSeconds=600)
    until(lambda: site.is_ready("life"), operator, "it is created")
    name = site.topic_name("life")
    policy = site.policy(partition(name, 1))
    assert policy is not None
    assert (policy.ttl_ms, policy.managed_by and policy.managed_by.name) == (600_000, "life")
    assert policy.pool == f"{site.namespace}.bk", "rule 69"

    client = make_client()
    client.subscribe(str(name), "slow")
    producer = client.create_producer(str(name))
    for number in range(10):
        producer.send(b"%d" % number)
    assert site.pools_of_ledgers() == {f"{site.namespace}.bk"}, "rule 69"
    site.patch("life", '{"spec":{"partitions":3,"messageTTLSeconds":900}}')
    until(lambda: site.partitions(name) == 3 and site.is_ready("life"), operator, "it grows")
    until(
        lambda: [site.policy(partition(name, each)).ttl_ms for each in range(3)] == [900_000] * 3,  # type: ignore[union-attr] # a Topic that is ready has set it
        operator,
        "each partition has the policy",
    )
    watchers: list[dict[str, Any]] = []

    def is_reported() -> bool:
        """Figures are shown at once the first time alone, and by a report of brokers that may be older than the messages."""
        watcher = f"watcher-{len(watchers)}"
        site.create(watcher, topicName="life", partitions=3, managed=False)
        until(lambda: site.reason(watcher) == "Observed", operator, "it can be watched")
        watchers.append(site.get(watcher))
        return bool(watchers[-1]["status"]["backlogEntries"] == 10)

    until(is_reported, operator, "the brokers' report has the messages")
    shown = watchers[-1]["status"]
    assert shown["ledgerCount"] == 2
    assert [each["name"] for each in shown["subscriptions"]] == ["slow"]
    assert condition(watchers[-1], "BacklogHealthy")["status"] == "True"

    admin = Admin([brokers.entry(each).admin_url for each in brokers.ids])
    with pytest.raises(AdminError, match=rf"Topic {site.namespace}/life") as refused:
        admin.ask("POST", partition(name, 0), "messageTTL", 5)
    assert refused.value.status == HTTPStatus.CONFLICT

    site.resources.delete("Topic", "life")
    until(lambda: site.get("life") == {}, operator, "it is released")
    assert site.partitions(name) == 3, "reclaimPolicy is Retain"
    assert {site.manager(partition(name, each)) for each in range(3)} == {None}


def test_what_the_operator_writes_on_a_topic_has_it_reconciled_by_nobody(empty_site: Site) -> None:
    """One reconcile creates, one more finds the topic and says so; then each change of a person is its own.

    One event may overtake the API server's answer to the write that it is about, and is not recognised then.
    """
    site, overtaking = empty_site, 1
    operator = site.operator(RESYNC_MS="600000")
    operator.start()

    def reconciles_until_ready(name: str) -> float:
        """The events of one watch come in order, so those about earlier topics were seen once a later one is ready."""
        site.create(name)
        until(lambda: site.is_ready(name), operator, f"{name} is created")
        return operator.metric('daybook_operator_reconciles_total{kind="Topic",result="ok"}')

    until(operator.leads, operator, "it leads")
    assert reconciles_until_ready("quiet") <= 2 + overtaking
    assert reconciles_until_ready("after-creation") <= 4 + overtaking
    site.patch("quiet", '{"metadata":{"finalizers":[]}}')
    until(lambda: bool(site.get("quiet")["metadata"].get("finalizers")), operator, "the claim is made again")
    assert reconciles_until_ready("after-claim") <= 4 + 1 + 2 + overtaking
    site.patch("quiet", '{"spec":{"messageTTLSeconds":60}}')
    generation = site.get("quiet")["metadata"]["generation"]
    until(
        lambda: site.get("quiet")["status"]["observedGeneration"] == generation,
        operator,
        "the change is seen",
    )
    assert reconciles_until_ready("after-change") <= 7 + 2 + 2 + overtaking
    assert operator.end() == 0


def test_a_second_resource_and_a_topic_of_others_are_conflicts(site: Site, operator: OperatorProcess) -> None:
    site.create("first", topicName="one")
    until(lambda: site.is_ready("first"), operator, "it is created")
    site.create("second", topicName="one")
    until(lambda: site.reason("second") == "ResourceConflict", operator, "the second one says so")
    assert f"{site.namespace}/first" in condition(site.get("second"), "ResourceConflict")["message"]
    assert site.manager(site.topic_name("one")) == "first"
    site.resources.delete("Topic", "second")
    until(lambda: site.get("second") == {}, operator, "it goes, and the topic stays")
    assert site.manager(site.topic_name("one")) == "first"

    theirs = site.topic_name("theirs")
    site.made_by_a_client(theirs)
    site.create("theirs", messageTTLSeconds=60)
    until(lambda: site.reason("theirs") == "ResourceConflict", operator, "it is somebody's")
    assert "daybook.dev/adopt" in condition(site.get("theirs"), "Ready")["message"]
    assert site.policy(theirs) == PolicyLayer()
    site.patch("theirs", '{"metadata":{"annotations":{"daybook.dev/adopt":"true"}}}')
    until(lambda: site.is_ready("theirs"), operator, "it is adopted")
    assert site.manager(theirs) == "theirs"


def test_a_deletion_waits_for_a_broker(
    site: Site, operator: OperatorProcess, shared_brokers: Brokers, no_brokers: None
) -> None:
    site.create("waits", reclaimPolicy="Delete")
    until(lambda: site.is_ready("waits"), operator, "it is created")
    site.resources.delete("Topic", "waits")
    until(lambda: site.reason("waits") == "DeletionWaits", operator, "it says what it waits for")
    assert "no broker" in condition(site.get("waits"), "Ready")["message"]
    assert site.manager(site.topic_name("waits")) == "waits"
    shared_brokers.whole()
    until(lambda: site.get("waits") == {}, operator, "a broker deletes it")
    assert site.policy(site.topic_name("waits")) is None


def test_a_deletion_that_was_begun_is_finished_with_the_resource(
    site: Site, operator: OperatorProcess, brokers: Brokers
) -> None:
    site.create("begun", partitions=2, reclaimPolicy="Delete")
    until(lambda: site.is_ready("begun"), operator, "it is created")
    name = site.topic_name("begun")
    site.deletion_begins(name)
    site.resources.delete("Topic", "begun")
    until(lambda: site.get("begun") == {}, operator, "a broker finishes the deletion")
    assert (site.partitions(name), site.policy(partition(name, 0))) == (None, None)


def test_a_topic_waits_until_the_deletion_of_the_one_before_it_is_finished(
    site: Site, operator: OperatorProcess, brokers: Brokers
) -> None:
    name = site.topic_name("left")
    site.ask(lambda client: PartitionManager(client.store, client.layout).create(name, 2))
    site.deletion_begins(name)
    site.create("left", partitions=2, reclaimPolicy="Delete")
    until(lambda: site.has_reason("left", "ResourceConflict"), operator, "it waits for the deletion")
    assert "its deletion is not finished" in condition(site.get("left"), "Ready")["message"]
    assert site.policy(partition(name, 0)) is None
    Admin([brokers.entry(each).admin_url for each in brokers.ids]).ask("DELETE", name, "partitions")
    until(lambda: site.is_ready("left"), operator, "it is created afterwards")
    assert site.partitions(name) == 2


def test_an_operator_that_dies_before_any_effect_creates_grows_and_deletes_all_the_same(
    site: Site, brokers: Brokers
) -> None:
    names = [f"born-{number}" for number in range(8)]
    creating = die_before_every_effect(
        site.operator,
        names,
        about=lambda name: rf"{name}\b",
        begin=lambda name: site.create(name, partitions=1, reclaimPolicy="Delete"),
        is_done=site.is_ready,
    )
    assert creating == ["PatchMeta", "Report", "CreateTopic", "SetPartitions", "SetStatus"]
    born = names[: len(creating) + 1]
    for name in born:
        assert site.partitions(site.topic_name(name)) == 1

    growing = die_before_every_effect(
        site.operator,
        born,
        about=lambda name: rf"{name}\b",
        begin=lambda name: site.patch(name, '{"spec":{"partitions":2}}'),
        is_done=lambda name: site.get(name)["status"].get("partitions") == 2,
    )
    assert growing == ["Report", "CreateTopic", "SetPartitions", "SetStatus"]
    for name in born[: len(growing) + 1]:
        assert site.manager(partition(site.topic_name(name), 1)) == name

    deleting = die_before_every_effect(
        site.operator,
        born,
        about=lambda name: rf"{name}\b",
        begin=lambda name: site.resources.delete("Topic", name),
        is_done=lambda name: site.get(name) == {},
    )
    assert deleting == ["DeleteTopic", "Report", "PatchMeta"]
    for name in born[: len(deleting) + 1]:
        assert site.partitions(site.topic_name(name)) is None
        assert site.policy(partition(site.topic_name(name), 0)) is None


def test_an_operator_that_dies_before_any_effect_adopts_and_releases_all_the_same(
    site: Site, brokers: Brokers
) -> None:
    def policies(name: str) -> list[tuple[str | None, int | None]]:
        """Who manages each partition, and the TTL that is set for it."""
        found = [site.policy(partition(site.topic_name(name), number)) for number in range(2)]
        return [
            (None if each.managed_by is None else each.managed_by.name, each.ttl_ms) for each in found if each
        ]

    def adopt(name: str) -> None:
        site.made_by_a_client(site.topic_name(name), partitions=2)
        site.create(name, adopts=True, partitions=2, messageTTLSeconds=60)

    names = [f"theirs-{number}" for number in range(8)]
    adopting = die_before_every_effect(
        site.operator, names, about=lambda name: rf"{name}\b", begin=adopt, is_done=site.is_ready
    )
    assert adopting == ["PatchMeta", "Report", "SetTopicPolicy", "SetTopicPolicy", "SetStatus"]
    adopted = names[: len(adopting) + 1]
    for name in adopted:
        assert policies(name) == [(name, 60_000)] * 2

    releasing = die_before_every_effect(
        site.operator,
        adopted,
        about=lambda name: rf"{name}\b",
        begin=lambda name: site.resources.delete("Topic", name),
        is_done=lambda name: site.get(name) == {},
    )
    assert releasing == ["SetTopicPolicy", "SetTopicPolicy", "Report", "PatchMeta"]
    for name in adopted[: len(releasing) + 1]:
        assert site.partitions(site.topic_name(name)) == 2, "reclaimPolicy is Retain"
        assert policies(name) == [(None, 60_000)] * 2
