"""A session of Spark on this machine, and one query over each source: all columns of all rows, to Spark's sink that drops them."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from daybook_spark.session import local_session
from pyspark.sql import DataFrame, SparkSession

from bench.spark.costs import Costs, java_of
from bench.spark.data import Recorded
from bench.spark.null_source import NullSource
from bench.spark.workloads import NULL, OURS, PARQUET, Run

T = TypeVar("T")


@contextmanager
def session(scratch: Path, tasks: int) -> Iterator[SparkSession]:
    """With so many tasks at a time; its workers are new."""
    scratch.mkdir(exist_ok=True)
    spark = local_session(scratch, master=f"local[{tasks}]", name="bench")
    spark.dataSource.register(NullSource)
    try:
        yield spark
    finally:
        spark.stop()


def table(spark: SparkSession, source: str, recorded: Recorded) -> DataFrame:
    """The same rows from a source; Parquet has its files after `write_parquet`."""
    if source == PARQUET:
        return spark.read.parquet(_parquet(recorded))
    if source == NULL:
        reader = spark.read.format("bench_null").option("directory", str(recorded.directory))
        return reader.schema(recorded.schema).load()
    assert source == OURS, source
    return spark.read.format("daybook").options(**recorded.options).load()


def write_parquet(spark: SparkSession, recorded: Recorded) -> None:
    """As Spark writes it, with Snappy."""
    table(spark, NULL, recorded).write.parquet(_parquet(recorded))


def _parquet(recorded: Recorded) -> str:
    return str(recorded.directory.with_suffix(".parquet"))


def read_all(frame: DataFrame, bookies: Sequence[int]) -> Run:
    """Read every row once."""
    return timed(lambda: frame.write.format("noop").mode("overwrite").save(), bookies)[1]


def timed(work: Callable[[], T], bookies: Sequence[int]) -> tuple[T, Run]:
    """What `work` returns, and what it took."""
    costs = Costs(java_of(os.getpid()), bookies)
    begin = time.perf_counter()
    done = work()
    return done, Run(time.perf_counter() - begin, costs.since())
