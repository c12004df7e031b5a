"""What a container of the image `spark` runs: the interface between Spark on Kubernetes and the image of its pods.

Spark starts its pods with one argument, `executor` or `driver`, and passes the rest in environment variables
(https://spark.apache.org/docs/latest/running-on-kubernetes.html, "Docker Images"). PySpark's package has Spark, but no program that
takes these. Other arguments are a command of the user's, such as a job that is a driver in client mode.

The program replaces itself, so that Java is the container's first process and receives the signals of the kubelet.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

from daybook.runtime.allocator import missing_settings

EXECUTOR_CLASS: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
"""Begins the names of variables that carry an option of Java each, and end in its place."""
EXECUTOR_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
USAGE_ERROR: Final = 2


class EntryPointError(Exception):
    """The container was not started as Spark on Kubernetes does it; the message says what is missing."""


def command(arguments: Sequence[str], environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """What to run. Raises EntryPointError."""
    match arguments:
        case ["executor"]:
            return _executor(environment, spark_home)
        case ["driver", *rest]:
            return _driver(rest, environment, spark_home)
        case [_, *_]:
            return list(arguments)
        case _:
            msg = "nothing to run: give `executor` or `driver`, as Spark on Kubernetes does, or a command"
            raise EntryPointError(msg)


def _executor(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    options = [
        word
        for option, name in EXECUTOR_OPTIONS.items()
        for word in (option, _required(environment, name, "executor"))
    ]
    memory = _required(environment, "SPARK_EXECUTOR_MEMORY", "executor")
    java = str(Path(_required(environment, "JAVA_HOME", "executor")) / "bin" / "java")
    heap = [f"-Xms{memory}", f"-Xmx{memory}"]
    return [
        java,
        *_java_options(environment),
        *heap,
        "-cp",
        _class_path(environment, spark_home),
        EXECUTOR_CLASS,
        *options,
    ]


def _driver(rest: Sequence[str], environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """`spark-submit` in client mode, which this pod is to Spark; it makes its class path itself."""
    address = _required(environment, "SPARK_DRIVER_BIND_ADDRESS", "driver")
    submit = str(spark_home / "bin" / "spark-submit")
    return [submit, "--conf", f"spark.driver.bindAddress={address}", "--deploy-mode", "client", *rest]


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """By their places: as words, the tenth would come before the second."""
    places = sorted(
        int(name.removeprefix(JAVA_OPTION)) for name in environment if name.startswith(JAVA_OPTION)
    )
    return [environment[f"{JAVA_OPTION}{place}"] for place in places]


def _class_path(environment: Mapping[str, str], spark_home: Path) -> str:
    """What the user gave comes first, then folders of configuration, then Spark."""
    given = [environment.get(name, "") for name in ("SPARK_CLASSPATH", "SPARK_CONF_DIR", "HADOOP_CONF_DIR")]
    return os.pathsep.join([*filter(None, given), str(spark_home / "jars" / "*")])


def _required(environment: Mapping[str, str], name: str, role: str) -> str:
    value = environment.get(name)
    if not value:
        msg = f"{name} is not set: Spark on Kubernetes sets it for every {role}; to run something else, give its command"
        raise EntryPointError(msg)
    return value


def main() -> NoReturn:
    """Become what is asked for; exit with 2 where that is not possible."""
    spec = find_spec("pyspark")  # without its import, which takes a second
    assert spec is not None, "the image has PySpark"
    assert spec.origin is not None, "PySpark is a package of files"
    spark_home = Path(spec.origin).parent
    try:
        words = command(sys.argv[1:], os.environ, spark_home)
        environment = {**os.environ, **missing_settings(), "SPARK_HOME": str(spark_home)}
        os.execvpe(words[0], words, environment)  # noqa: S606 - no shell on purpose
    except EntryPointError as error:
        print(f"daybook_spark.entrypoint: {error}", file=sys.stderr)
    except OSError as error:
        print(f"daybook_spark.entrypoint: {words[0]} cannot be run: {error.strerror}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


if __name__ == "__main__":
    main()
