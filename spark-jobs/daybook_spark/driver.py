"""Makes the process that it becomes a driver in client mode: `python3 -m daybook_spark.driver COMMAND…`, in the pod of a Kubernetes Job.

What Spark needs to know comes in two variables, because the operator that makes the Job has no right to make ConfigMaps:
DAYBOOK_SPARK_SETTINGS, Spark's settings as a JSON object, and DAYBOOK_SPARK_EXECUTOR, the template of executor pods as JSON, which Spark
wants as a file. The settings are in PYSPARK_SUBMIT_ARGS then, so that any program that makes a session has them.
"""

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

SETTINGS: Final = "DAYBOOK_SPARK_SETTINGS"
EXECUTOR: Final = "DAYBOOK_SPARK_EXECUTOR"
TEMPLATE: Final = "spark.kubernetes.executor.podTemplateFile"
USAGE_ERROR: Final = 2


class DriverError(Exception):
    """The variables are not what the operator sets; the message says which."""


def environment_of(given: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The variables of the driver; a template of executors is written into `scratch`. Raises DriverError."""
    settings = _object(given, SETTINGS)
    executor = _object(given, EXECUTOR)
    if executor:
        template = scratch / "executor.json"
        template.write_text(json.dumps(executor), encoding="utf-8")  # JSON is YAML, which Spark reads
        settings[TEMPLATE] = str(template)
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    rest = {name: value for name, value in given.items() if name not in {SETTINGS, EXECUTOR}}
    return {**rest, "PYSPARK_SUBMIT_ARGS": shlex.join([*words, "pyspark-shell"])}


def _object(given: Mapping[str, str], name: str) -> dict[str, object]:
    try:
        found = json.loads(given.get(name) or "{}")
    except ValueError as error:
        msg = f"{name} is no JSON ({error}): the operator sets it in the pods of its CronJobs"
        raise DriverError(msg) from error
    if not isinstance(found, dict):
        msg = f"{name} is no JSON object: the operator sets it in the pods of its CronJobs"
        raise DriverError(msg)
    return found


def main() -> NoReturn:
    """Become the command; exit with 2 where that is not possible."""
    command: Sequence[str] = sys.argv[1:]
    try:
        if not command:
            msg = "nothing to run: give a command, such as `daybook spark audit`"
            raise DriverError(msg)
        scratch = Path(tempfile.mkdtemp(prefix="daybook-driver-"))
        os.execvpe(command[0], [*command], environment_of(os.environ, scratch))  # noqa: S606 - no shell on purpose
    except DriverError as error:
        print(f"daybook_spark.driver: {error}", file=sys.stderr)
    except OSError as error:
        print(f"daybook_spark.driver: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


if __name__ == "__main__":
    main()
