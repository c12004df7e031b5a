"""What makes a pod of a Kubernetes Job Spark's driver."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from daybook_spark.driver import DriverError, environment_of

SETTINGS = {"spark.driver.host": "10.0.0.1", "spark.app.name": "a 'b' c"}
EXECUTOR = {"kind": "Pod", "spec": {"containers": [{"name": "executor"}]}}


def test_settings_become_options_and_the_template_a_file(tmp_path: Path) -> None:
    given = {
        "DAYBOOK_SPARK_SETTINGS": json.dumps(SETTINGS),
        "DAYBOOK_SPARK_EXECUTOR": json.dumps(EXECUTOR),
        "HOME": "/",
    }
    found = environment_of(given, tmp_path)
    *words, last = shlex.split(found.pop("PYSPARK_SUBMIT_ARGS"))
    assert found == {"HOME": "/"}
    assert last == "pyspark-shell"
    assert set(words[::2]) == {"--conf"}
    options = dict(word.split("=", 1) for word in words[1::2])
    template = Path(options.pop("spark.kubernetes.executor.podTemplateFile"))
    assert options == SETTINGS
    assert json.loads(template.read_text()) == EXECUTOR


def test_without_variables_it_is_an_ordinary_session(tmp_path: Path) -> None:
    assert environment_of({}, tmp_path) == {"PYSPARK_SUBMIT_ARGS": "pyspark-shell"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[1]"])
@pytest.mark.parametrize("name", ["DAYBOOK_SPARK_SETTINGS", "DAYBOOK_SPARK_EXECUTOR"])
def test_what_the_operator_does_not_set_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=f"{name} is no JSON"):
        environment_of({name: text}, tmp_path)


def test_the_process_becomes_the_command_or_says_why_not() -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "daybook_spark.driver", *command],
            env={**os.environ, "DAYBOOK_SPARK_SETTINGS": '{"a": "b"}'},
            capture_output=True,
            text=True,
            check=False,
        )

    said = run(sys.executable, "-c", "import os; print(os.environ['PYSPARK_SUBMIT_ARGS'])")
    assert said.stdout == "--conf a=b pyspark-shell\n"
    nothing = run()
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)
    assert "nothing to run: give a command" in nothing.stderr
    assert "no-such-program cannot be run" in run("no-such-program").stderr
