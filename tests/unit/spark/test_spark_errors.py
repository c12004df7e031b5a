"""What errors of Spark say in one line: their texts, and those that a real Spark raises."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_spark.jobs.spark_errors import first_line, spark_words
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from daybook.core.errors import NotEnoughReplicasError

OF_JAVA = """An error occurred while calling o61.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2844)
"""
OF_A_TASK = """Job aborted due to stage failure: Task 3 failed: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in read
    raise KeyError
KeyError: 3

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "entries.py", line 30, in read

    raise
daybook.core.errors.NotEnoughReplicasError: no bookie has entry 2: bring one back
  which is no stack any more

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            OF_JAVA,
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times",
        ),
        (
            OF_A_TASK,
            "daybook.core.errors.NotEnoughReplicasError: no bookie has entry 2: bring one back",
        ),
        (
            "\n\n  [JAVA_GATEWAY_EXITED] Java gateway process exited\n",
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
        ),
        ("Traceback (most recent call last):\n  and nothing more", "Traceback (most recent call last):"),
        ("", ""),
    ],
)
def test_the_line_that_says_most_is_found_among_the_stacks(text: str, line: str) -> None:
    assert first_line(text) == line


def test_an_error_that_is_none_of_sparks_has_no_words() -> None:
    assert spark_words(KeyError("a")) == ""
    assert spark_words(PySparkException("")) == "PySparkException"


def test_where_java_has_ended_nobody_is_asked_for_its_text() -> None:
    def ended(_command: str) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")

    java: Any = SimpleNamespace(_target_id="o1", _gateway_client=SimpleNamespace(send_command=ended))
    words = spark_words(Py4JJavaError("An error occurred while calling o1.count.\n", java))
    assert words == "Py4JJavaError: Spark's Java process has ended, and its log says why"


def lost(_: object) -> Any:
    msg = "no bookie has entry 2: bring one back"
    raise NotEnoughReplicasError(msg)


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("work", "line"),
    [
        (lambda spark: spark.sparkContext.parallelize([1], 1).map(lost).collect(), "entry 2: bring one back"),
        (lambda spark: spark.range(1).mapInArrow(lost, "id long").collect(), "entry 2: bring one back"),
        (
            lambda spark: spark.sql("select raise_error('out of ink')").collect(),
            "[USER_RAISED_EXCEPTION] out of ink",
        ),
        (lambda spark: spark.sql("select nothing"), "[UNRESOLVED_COLUMN"),
    ],
)
def test_a_real_spark_says_in_one_line_what_failed(
    spark: SparkSession, work: Callable[[SparkSession], object], line: str
) -> None:
    with pytest.raises(Exception, match=r"entry 2|out of ink|nothing") as failed:
        work(spark)
    words = spark_words(failed.value)
    assert line in words
    assert "\n" not in words
    assert len(words) < 500
