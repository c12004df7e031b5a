"""The tour of docs/spark.md runs line by line, as it is printed."""

import doctest
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.fixtures.cluster import make_cluster
from tests.fixtures.spark import where
from tests.paths import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def test_every_line_of_the_tour_does_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "spark.md").read_text("utf-8")
    with make_cluster(tmp_path, bookies=3) as cluster:
        names = {"spark": spark, "where": where(cluster)}
        tour = doctest.DocTestParser().get_doctest(text, names, "docs/spark.md", "docs/spark.md", 0)
        assert len(tour.examples) > 10
        result = doctest.DocTestRunner(optionflags=FLAGS).run(tour, out=sys.stdout.write)
    assert result.failed == 0
