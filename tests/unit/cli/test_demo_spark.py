"""The demo's third act: what it counts as wrong, what it says where Spark is missing, and its steps over a small topic."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest
from rich.console import Console
from rich.progress import Progress

import daybook
from daybook.cli import demo_spark, demo_topics
from daybook.cli.demo import further_acts
from daybook.cli.demo_compaction import CompactionResults, last_of_keys, run_compaction
from daybook.cli.demo_input import messages
from daybook.cli.demo_spark import SparkResults, count_by_key, spark_summary
from daybook.cli.demo_stage import Stage
from daybook.cli.demo_topics import TopicResults
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.spark.kit import new_topic, readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = 400


@pytest.mark.parametrize(
    ("found", "differing"),
    [({"a": 2, "b": 1}, 0), ({"a": 2, "b": 2}, 1), ({"a": 2}, 1), ({"a": 2, "c": 1}, 2), ({}, 2)],
)
def test_every_key_must_have_its_count(found: Mapping[str, int], differing: int) -> None:
    results = SparkResults({"a": 2, "b": 1}, found, sum(found.values()))
    assert results.differing == differing
    assert results.is_good is not bool(differing)
    assert ("COUNTS DIFFER" in shown(results)) is bool(differing)


def test_messages_that_were_sent_again_are_no_fault_and_are_shown() -> None:
    results = SparkResults({"a": 2}, {"a": 2}, stored=5)
    assert results.is_good
    assert "5, 3 of them stored twice" in shown(results)


@pytest.mark.parametrize(
    ("left", "wrong"),
    [
        ([("b", b"3"), ("a", b"2")], 0),
        ([("a", b"2")], 1),
        ([("a", b"1"), ("b", b"3")], 1),
        ([("a", b"2"), ("a", b"2"), ("b", b"3")], 1),
        ([("a", b"1"), ("a", b"2"), ("b", b"3")], 1),
        ([("a", b"2"), ("b", b"3"), ("c", b"4")], 1),
        ([], 2),
    ],
)
def test_a_compaction_leaves_the_last_message_of_each_key_once_and_nothing_else(
    left: list[tuple[str, bytes]], wrong: int
) -> None:
    compaction = CompactionResults({"a": b"2", "b": b"3"}, 3, left)
    assert compaction.wrong == wrong
    results = SparkResults({}, {}, compaction=compaction)
    assert results.is_good is not bool(wrong)
    assert ("THE COMPACTION DIFFERS" in shown(results)) is bool(wrong)
    assert f"of 3 messages a reader receives {len(left)}, for 2 keys" in shown(results)


def test_without_spark_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo_topics, "run_topics", lambda *_: TopicResults(0, consumed={}))
    monkeypatch.setattr(demo_topics, "topic_summary", lambda _: None)
    monkeypatch.setattr(TopicResults, "is_good", True)
    monkeypatch.setattr(demo_spark, "find_spec", lambda name: None if name == "daybook_spark" else name)
    cluster = LocalCluster(tmp_path)
    _, act = further_acts(cluster, None, 0, Stage(Progress(console=Console(quiet=True))))
    text = StringIO()
    Console(file=text, width=200).print(act.report)
    assert "`uv sync --inexact --extra spark` in a checkout" in text.getvalue()
    assert act.is_good, "what is not installed is no failure"


@pytest.mark.integration
@pytest.mark.timeout(900)
async def test_spark_compacts_counts_lines_once_and_misses_what_is_missing(
    client: daybook.Client,
    pulsar_client: pulsar.Client,
    cluster: LocalCluster,
    spark: "SparkSession",
    tmp_path: Path,
) -> None:
    """Three lines are sent again, and the last one is not sent."""
    source = tmp_path / "input"
    source.mkdir()
    for name in ("one", "two"):
        (source / name).write_bytes(b"".join(b"line %d\n" % number for number in range(LINES // 2)))
    topic = new_topic()
    sent = list(messages(source, LINES))
    producer = pulsar_client.create_producer(topic)
    for key, content in [*sent[:-1], *sent[:2]]:
        producer.send_async(content, lambda *_: None, partition_key=key)
    producer.flush()
    await readable(client, topic, producer.send(sent[2][1], partition_key=sent[2][0]))
    producer.close()
    expected = Counter(key for key, _ in sent)

    found, stored = await asyncio.to_thread(count_by_key, spark, cluster, TopicName.parse(topic))

    assert found == {"one": LINES // 2, "two": LINES // 2 - 1}
    assert stored == LINES + 2
    assert SparkResults(expected, found, stored).differing == 1

    compaction = await asyncio.to_thread(
        run_compaction, spark, cluster, TopicName.parse(topic), last_of_keys(source, LINES)
    )
    assert compaction.read == LINES + 2
    assert sorted(compaction.left) == [("one", sent[2][1]), ("two", sent[-2][1])]
    assert compaction.wrong == 2, "what was sent last is not what the input has last"


def shown(results: SparkResults) -> str:
    """The table at the end, as text."""
    text = StringIO()
    Console(file=text, width=120).print(spark_summary(results))
    return text.getvalue()
