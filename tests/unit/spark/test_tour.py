"""The tours of docs/spark.md and docs/spark-topics.md run line by line, as they are printed."""

import doctest
import sys
from pathlib import Path

import pulsar
import pytest
from pyspark.sql import SparkSession

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import make_cluster
from tests.fixtures.spark import where
from tests.paths import ROOT
from tests.unit.spark.kit import readable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MESSAGES = 300


def run(page: str, spark: SparkSession, cluster: LocalCluster) -> int:
    """Run all lines of a page; how many there are."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    names = {"spark": spark, "where": where(cluster)}
    tour = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    result = doctest.DocTestRunner(optionflags=FLAGS).run(tour, out=sys.stdout.write)
    assert result.failed == 0
    return len(tour.examples)


def test_every_line_of_the_tour_does_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    with make_cluster(tmp_path, bookies=3) as cluster:
        assert run("spark.md", spark, cluster) > 10


async def test_every_line_about_topics_does_what_the_page_says(
    client: daybook.Client, spark: SparkSession, cluster: LocalCluster, pulsar_client: pulsar.Client
) -> None:
    producer = pulsar_client.create_producer("events", batching_enabled=True)
    for number in range(MESSAGES - 1):
        producer.send_async(b"click %d" % number, lambda *_: None, partition_key=f"user {number % 3}")
    number = MESSAGES - 1
    last = producer.send(b"click %d" % number, partition_key=f"user {number % 3}")
    producer.close()
    await readable(client, "persistent://public/default/events", last)
    assert run("spark-topics.md", spark, cluster) > 5
