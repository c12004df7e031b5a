"""What containers of the image `spark` run, and what they say when they were not started as Spark does it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pyspark
import pytest
from daybook_spark.entrypoint import EXECUTOR_CLASS, EXECUTOR_OPTIONS, EntryPointError, command
from daybook_spark.java import make_java_home

from daybook.runtime.allocator import ALLOCATOR

HOME: Final = Path("/spark")
OF_AN_EXECUTOR: Final = {
    "JAVA_HOME": "/java",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_an_executor_gets_everything_that_spark_passed() -> None:
    words = command(["executor"], OF_AN_EXECUTOR, HOME)
    assert words[:5] == ["/java/bin/java", "-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*"]
    main, *options = words[5:]
    assert main == EXECUTOR_CLASS
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        option: OF_AN_EXECUTOR[name] for option, name in EXECUTOR_OPTIONS.items()
    }


def test_options_of_java_keep_their_order_and_their_blanks() -> None:
    given = {f"SPARK_JAVA_OPT_{place}": f"-Dx{place}=a b" for place in (10, 2, 0, 1)}
    words = command(["executor"], {**OF_AN_EXECUTOR, **given}, HOME)
    assert words[1:5] == ["-Dx0=a b", "-Dx1=a b", "-Dx2=a b", "-Dx10=a b"]


def test_what_the_user_puts_on_the_class_path_comes_before_spark() -> None:
    given = {"SPARK_CLASSPATH": "/mine/*", "SPARK_CONF_DIR": "/opt/spark/conf", "HADOOP_CONF_DIR": ""}
    words = command(["executor"], {**OF_AN_EXECUTOR, **given}, HOME)
    assert words[words.index("-cp") + 1] == "/mine/*:/opt/spark/conf:/spark/jars/*"


@pytest.mark.parametrize("name", OF_AN_EXECUTOR)
def test_an_executor_that_lacks_a_variable_names_it(name: str) -> None:
    with pytest.raises(EntryPointError, match=f"{name} is not set"):
        command(["executor"], {**OF_AN_EXECUTOR, name: ""}, HOME)


def test_a_driver_submits_in_client_mode_and_listens_where_spark_says() -> None:
    arguments = [
        "driver",
        "--properties-file",
        "/p",
        "--class",
        "org.apache.spark.deploy.PythonRunner",
        "/a.py",
    ]
    assert command(arguments, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}, HOME) == [
        "/spark/bin/spark-submit",
        "--conf",
        "spark.driver.bindAddress=10.0.0.1",
        "--deploy-mode",
        "client",
        *arguments[1:],
    ]
    with pytest.raises(EntryPointError, match="SPARK_DRIVER_BIND_ADDRESS is not set"):
        command(arguments, {}, HOME)


def test_anything_else_is_a_command() -> None:
    assert command(["python3", "job.py"], {}, HOME) == ["python3", "job.py"]
    with pytest.raises(EntryPointError, match="nothing to run"):
        command([], {}, HOME)


def test_spark_has_the_class_and_takes_the_options() -> None:
    """Of the release that is locked: its classes hold their words in plain text."""
    words = _constants(EXECUTOR_CLASS.replace(".", "/") + "$.class")
    assert all(option in words for option in EXECUTOR_OPTIONS)
    names = _constants("org/apache/spark/deploy/k8s/Constants$.class")
    asked = {
        *EXECUTOR_OPTIONS.values(),
        "SPARK_EXECUTOR_MEMORY",
        "SPARK_JAVA_OPT_",
        "SPARK_DRIVER_BIND_ADDRESS",
    }
    assert not [name for name in asked if name not in names]
    assert (Path(pyspark.__path__[0]) / "bin" / "spark-submit").exists()


def _constants(name: str) -> str:
    """A class of Spark on Kubernetes, whose constants are legible."""
    (jar,) = Path(pyspark.__path__[0], "jars").glob("spark-kubernetes_*.jar")
    with ZipFile(jar) as archive:
        return archive.read(name).decode("latin-1")


def test_the_program_becomes_the_command_with_spark_and_an_allocator_that_keeps_memory() -> None:
    show = "import os; print(os.getpid(), *map(os.environ.get, ['SPARK_HOME', *os.environ['SHOW'].split()]))"
    program = [sys.executable, "-m", "daybook_spark.entrypoint", sys.executable, "-c", show]
    first, *others = ALLOCATOR
    own_environment = {name: value for name, value in _without_spark().items() if name not in others}
    given = {**own_environment, "SHOW": " ".join(ALLOCATOR), first: "1"}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=given) as process:
        output, _ = process.communicate()
    kept = ["1", *(ALLOCATOR[name] for name in others)]
    assert output.split() == [str(process.pid), pyspark.__path__[0], *kept], "what was given stays"


def test_the_program_refuses_in_one_line() -> None:
    done = _run("executor")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "is not set" in done.stderr
    missing = _run("/no/such/program")
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "daybook_spark.entrypoint", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_without_spark())


def _without_spark() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}


def test_java_is_started_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    home = make_java_home(tmp_path / "home", java)
    given = ["-Xmx1m", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main", ""]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-Xmx1m", "-Da=b c", "Main", ""]
