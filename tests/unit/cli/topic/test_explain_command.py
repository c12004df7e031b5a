"""`daybook topic explain` against real brokers, bookies and ZooKeeper."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import daybook
from daybook.cli.connection import find_cluster, with_client
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.partitions import PartitionManager
from tests.fixtures.brokers import Brokers
from tests.unit.cli.kit import Process, run

pytestmark = pytest.mark.integration

_numbers = count()


@pytest.fixture
def topic(brokers: Brokers) -> str:
    """A name that no other test uses; the brokers run."""
    return f"explained-{next(_numbers)}"


def explained(directory: Path, topic: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the steps of the topic by name."""
    done = run("topic", "explain", "--dir", directory, topic, "--json")
    (record,) = json.loads(done.stdout)
    return done.exit_code, {step["step"]: step for step in record["steps"]}


def test_a_backlog_without_a_consumer_is_found_and_everything_else_is_fine(
    brokers: Brokers, topic: str, cluster: LocalCluster, directory: Path
) -> None:
    assert run("topic", "create", "--dir", directory, topic).exit_code == 0
    for words in (("consume", topic, "billing", "--timeout", 0.1), ("produce", topic)):
        with Process("topic", words[0], "--dir", directory, *words[1:]) as process:
            process.stdin.write(b"one\ntwo\n")
            process.end()
    code, steps = explained(directory, topic)
    assert code == 1
    assert [name for name, step in steps.items() if step["verdict"] != "ok"] == ["permits"], steps
    assert steps["permits"]["nextCommand"].startswith("daybook topic peek ")
    assert "session 0x" in steps["session"]["what"]
    assert "is open" in steps["fencing"]["what"]
    assert any(entry.id in steps["ensemble"]["what"] for entry in cluster.file.bookies)
    assert run("topic", "skip", "--dir", directory, topic, "billing").exit_code == 0
    done = run("topic", "explain", "--dir", directory, topic, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"persistent://public/default/{topic}\n  ok ")


def test_a_policy_that_cannot_hold_is_found_also_of_a_partition(topic: str, directory: Path) -> None:
    """More bookies than there are, and never fewer: the next ledger cannot be created, and nothing is published."""
    assert run("topic", "create", "--dir", directory, topic, "--partitions", 2).exit_code == 0
    part = f"{topic}-partition-1"
    changes = ("ensembleSize=64", "durability=sync", "degrade=never")
    options = [word for change in changes for word in ("--set", change)]
    assert run("topic", "policy", "--dir", directory, part, *options).exit_code == 0
    done = run("topic", "explain", "--dir", directory, topic, env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "and the topic's next ledger needs 64" in done.stdout
    assert "1 of 2 partitions are as they should be" in done.stdout
    assert f"{topic}-partition-0" not in done.stdout


def test_of_a_topic_that_is_being_deleted_the_unfinished_deletion_is_the_answer(
    topic: str, directory: Path
) -> None:
    assert run("topic", "create", "--dir", directory, topic, "--partitions", 2).exit_code == 0

    async def begin(client: daybook.Client) -> None:
        partitions = PartitionManager(client.store, client.layout)
        await partitions.begin_deletion(TopicName.parse(topic), force=True)

    with_client(find_cluster(directory, None, None), begin)
    done = run("topic", "explain", "--dir", directory, topic, env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert f"`daybook topic delete --force persistent://public/default/{topic}`" in done.output
    assert run("topic", "delete", "--dir", directory, "--force", topic).exit_code == 0


def test_a_topic_that_does_not_exist_is_an_error(topic: str, directory: Path) -> None:
    done = run("topic", "explain", "--dir", directory, topic)
    assert done.exit_code == 1
    assert "does not exist" in done.stderr
