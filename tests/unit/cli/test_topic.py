"""`daybook topic` against real brokers, and beside an unmodified client of Pulsar."""

import json
import signal
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pulsar
import pytest

from daybook.cli.topic.partitions import partition_of, partitions_of
from daybook.core.topics.name import TopicName
from daybook.local.cluster_file import ClusterFile
from tests.fixtures.brokers import Brokers
from tests.unit.cli.kit import WAIT_S, Process, run

pytestmark = pytest.mark.integration

RECEIVE_MS = 60_000
_numbers = count()


@pytest.fixture
def topic(brokers: Brokers) -> str:
    """A name that no other test uses; the brokers run."""
    return f"cli-{next(_numbers)}"


def produce(directory: Path, topic: str, lines: list[str], *options: str) -> None:
    """Publish lines; all of them have a receipt."""
    with Process("topic", "produce", "--dir", directory, topic, *options) as process:
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        code, _ = process.end()
        assert code == 0, process.errors
    assert f"{len(lines):,} messages acknowledged" in process.errors


def consume(directory: Path, topic: str, subscription: str, *options: object) -> list[dict[str, Any]]:
    """What a consumer prints."""
    with Process(
        "topic", "consume", "--dir", directory, topic, subscription, "--earliest", "--json", *options
    ) as each:
        code, text = each.end()
        assert code == 0, each.errors
    return [json.loads(line) for line in text.splitlines()]


def test_lines_become_messages_which_a_subscription_receives_once(topic: str, directory: Path) -> None:
    lines = [f"line {n}" for n in range(1500)]
    produce(directory, topic, lines)
    first = consume(directory, topic, "mine", "--count", 700)
    rest = consume(directory, topic, "mine", "--count", 800)
    assert [message["data"] for message in (*first, *rest)] == lines
    assert {message["topic"] for message in first} == {f"persistent://public/default/{topic}"}
    shared = consume(directory, topic, "ours", "--type", "shared", "--count", 3)
    assert [message["data"] for message in shared] == lines[:3]
    assert consume(directory, topic, "mine", "--timeout", 0.5) == []


def test_messages_of_pulsars_own_client_are_shown_with_what_they_carry(
    topic: str, directory: Path, pulsar_client: pulsar.Client
) -> None:
    plain = pulsar_client.create_producer(topic, producer_name="p")
    plain.send(b"alone", properties={"a": "b"}, partition_key="k")
    packed = pulsar_client.create_producer(
        topic, batching_enabled=True, compression_type=pulsar.CompressionType.ZLib
    )
    for n in range(3):
        packed.send_async(b"batch %d" % n, lambda *_: None)
    packed.flush()
    squeezed = pulsar_client.create_producer(topic, compression_type=pulsar.CompressionType.LZ4)
    squeezed.send(b"lz4" * 100)
    found = consume(directory, topic, "mine", "--count", 5)
    assert (found[0]["data"], found[0]["key"], found[0]["properties"]) == ("alone", "k", {"a": "b"})
    assert found[0]["producer"] == "p"
    assert [message["data"] for message in found[1:4]] == ["batch 0", "batch 1", "batch 2"]
    assert found[4]["data"] == "lz4" * 100


def test_messages_of_a_key_go_to_one_partition_in_order(
    topic: str, directory: Path, pulsar_client: pulsar.Client
) -> None:
    created = run("topic", "create", "--dir", directory, topic, "--partitions", 3)
    assert created.exit_code == 0, created.stderr
    keys = [f"key-{n}" for n in range(20)]
    produce(directory, topic, [f"{key}={n}" for n in range(3) for key in keys], "--key-separator", "=")
    consumer = pulsar_client.subscribe(topic, "theirs", initial_position=pulsar.InitialPosition.Earliest)
    places: dict[str, list[tuple[str, bytes]]] = {}
    for _ in range(3 * len(keys)):
        message = consumer.receive(timeout_millis=RECEIVE_MS)
        places.setdefault(message.partition_key(), []).append((message.topic_name(), message.data()))
    parts = [str(part) for part in partitions_of(TopicName.parse(topic), 3)]
    assert places == {key: [(parts[partition_of(key, parts)], b"%d" % n) for n in range(3)] for key in keys}
    assert len({place for found in places.values() for place, _ in found}) == 3, "all partitions have some"


def test_a_producer_continues_when_the_owner_of_its_topic_is_killed(
    topic: str, directory: Path, brokers: Brokers
) -> None:
    produce(directory, topic, ["first"])
    with Process("topic", "consume", "--dir", directory, topic, "mine", "--earliest") as consumer:
        consumer.wait_for_line("first")
        with Process("topic", "produce", "--dir", directory, topic) as process:
            process.stdin.write(b"before\n")
            process.stdin.flush()
            consumer.wait_for_line("before")
            brokers.kill(owner_of(brokers, topic))
            process.stdin.write(b"after\n")
            process.stdin.flush()
            consumer.wait_for_line("after")
            code, _ = process.end()
            assert code == 0, process.errors
        consumer.send(signal.SIGINT)
        assert consumer.end()[0] == 130, consumer.errors
    assert "2 messages acknowledged" in process.errors


def owner_of(brokers: Brokers, topic: str) -> str:
    """The broker that owns a topic."""
    path = f"/lookup/v2/topic/persistent/public/default/{topic}"
    with urlopen(f"{brokers.entry(brokers.ids[0]).admin_url}{path}") as answer:
        url = json.load(answer)["brokerUrl"]
    (found,) = [each for each in brokers.ids if brokers.entry(each).service_url == url]
    return found


def test_a_subscription_is_peeked_at_skipped_and_moved(topic: str, directory: Path) -> None:
    where = ("--dir", directory)
    lines = [f"line {n}" for n in range(30)]
    for n in range(0, 30, 10):
        produce(directory, topic, lines[n : n + 10])
    assert peek(directory, topic, "none") is None
    consume(directory, topic, "mine", "--count", 10)
    assert peek(directory, topic, "mine", "--count", 3) == lines[10:13]
    assert run("topic", "skip", *where, topic, "mine", 1).exit_code == 0
    assert peek(directory, topic, "mine", "--count", 10) == lines[20:], "an entry is skipped as a whole"
    assert [each["data"] for each in consume(directory, topic, "mine", "--count", 1)] == [lines[20]]
    assert run("topic", "seek", *where, topic, "mine", "earliest").exit_code == 0
    assert peek(directory, topic, "mine", "--count", 30) == lines
    assert run("topic", "seek", *where, topic, "mine", "latest").exit_code == 0
    assert peek(directory, topic, "mine", timeout_s=0.5) == [], "what a command without news waits for"
    (stats,) = json.loads(run("topic", "stats", *where, topic, "--json").stdout).values()
    assert stats["msgInCounter"] == 30
    assert stats["subscriptions"]["mine"]["msgBacklog"] == 0
    shown = run("topic", "stats", *where, topic, env={"COLUMNS": "200"}).stdout
    assert all(each in shown for each in ("mine", "semi-sync", "to-ack-quorum"))
    assert "degraded" not in shown


def peek(
    directory: Path, topic: str, subscription: str, *options: object, timeout_s: float = WAIT_S
) -> list[str] | None:
    """What is next for a subscription, up to the count that is asked for; None if there is no such subscription."""
    with Process(
        "topic", "peek", "--dir", directory, topic, subscription, "--timeout", timeout_s, *options
    ) as process:
        code, text = process.end()
    if code:
        assert f"has no subscription '{subscription}'" in process.errors
        return None
    return text.decode().splitlines()


def test_a_topic_is_handed_over_and_deleted(brokers: Brokers, topic: str, directory: Path) -> None:
    where = ("--dir", directory)
    for name, partitions in ((topic, 0), (f"{topic}-many", 3)):
        assert run("topic", "create", *where, name, "--partitions", partitions).exit_code == 0
        for broker in (*brokers.ids, *brokers.ids):
            assert run("topic", "unload", *where, name, "--to", broker).exit_code == 0
            stats = json.loads(run("topic", "stats", *where, name, "--json").stdout)
            assert {each["ownerBroker"] for each in stats.values()} == {broker}
        assert run("topic", "delete", *where, name, "--force").exit_code == 0
        assert run("topic", "stats", *where, name).exit_code == 1
    unknown = run("topic", "unload", *where, topic, "--to", "nobody")
    assert unknown.exit_code == 1


def test_an_interrupted_consumer_leaves_its_subscription(topic: str, directory: Path) -> None:
    produce(directory, topic, ["one", "two"])
    with Process("topic", "consume", "--dir", directory, topic, "mine", "--earliest") as process:
        process.wait_for_line("two")
        process.send(signal.SIGINT)
        assert process.end()[0] == 130
    produce(directory, topic, ["three"])
    assert [each["data"] for each in consume(directory, topic, "mine", "--count", 1)] == ["three"]


def test_topics_are_listed_with_their_subscriptions(topic: str, directory: Path) -> None:
    produce(directory, topic, ["one"])
    consume(directory, topic, "mine", "--count", 1)
    records = json.loads(run("topic", "list", "--dir", directory, "--json").stdout)
    (record,) = [each for each in records if each["topic"].endswith(f"/{topic}")]
    assert (record["ledgers"], record["subscriptions"]) == (1, ["mine"])
    table = run("topic", "list", "public/default", "--dir", directory, env={"COLUMNS": "200"}).stdout
    assert topic in table
    refused = run("topic", "list", "public", "--dir", directory)
    assert "is not TENANT/NAMESPACE" in refused.stderr


def test_a_policy_is_set_shown_and_refused_where_it_contradicts_itself(topic: str, directory: Path) -> None:
    assert run("topic", "create", "--dir", directory, topic, "--partitions", 2).exit_code == 0
    where = ("--dir", directory, topic)
    refused = run("topic", "policy", *where, "--set", "durability=sync")
    assert (refused.exit_code, "set degrade=never" in refused.stderr) == (1, True)
    unknown = run("topic", "policy", *where, "--set", "speed=9")
    assert "there is no setting 'speed'" in unknown.stderr
    both = ("--set", "durability=sync", "--set", "degrade=never", "--set", "ttlMs=9")
    found = json.loads(run("topic", "policy", *where, *both, "--json").stdout)
    wanted = {"durability": "sync", "degrade": "never", "ttlMs": 9}
    assert list(found.values()) == [wanted, wanted], "of each partition"
    less = json.loads(run("topic", "policy", *where, "--unset", "ttlMs", "--json").stdout)
    assert [each.keys() for each in less.values()] == [{"durability", "degrade"}] * 2
    table = run("topic", "policy", *where, env={"COLUMNS": "200"}).stdout
    assert "retentionMs" in table
    assert run("topic", "policy", *where, "--set", "ttlMs").exit_code == 2


def test_wrong_usage_is_explained(topic: str, directory: Path, tmp_path: Path) -> None:
    where = ("--dir", directory)
    missing = run("topic", "consume", *where, "never-was", "s", "--timeout", 1)
    assert (missing.exit_code, "never-was" in missing.stderr) == (1, True), missing.stderr
    assert run("topic", "consume", *where, topic, "s", "--type", "some").exit_code == 2
    assert "not-persistent" in run("topic", "consume", *where, "not-persistent://a/b/c", "s").stderr
    bad = run("topic", "seek", *where, topic, "s", "someday")
    assert "is no position" in bad.stderr, bad.stderr
    file = ClusterFile.read(directory)
    nobody = ("--zookeeper", file.zookeeper, "--cluster", "elsewhere")
    assert run("topic", "list", *nobody).exit_code == 1
