"""Every command of `daybook spark` that the pages show is one that the command line takes, with the settings that go with it."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml
from daybook_spark.driver import SETTINGS, environment_of
from typer.core import TyperGroup

from daybook.cli.main import app
from tests.paths import ROOT

PAGES: Final = ("docs/spark.md", "docs/offload.md")
_BLOCK: Final = re.compile(r"(?:^    (?!>>> |\.\.\. ).*\n)+", re.MULTILINE)
_YAML: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_START: Final = ["daybook", "spark"]


def lines() -> Iterator[list[str]]:
    """The commands of indented blocks, as a shell splits them; a line may go on in the next one."""
    for page in PAGES:
        for block in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if " ".join(_START) in line:
                    yield shlex.split(line)


def driver_of_the_job() -> dict[str, Any]:
    """The container of the Job of docs/spark.md."""
    (text,) = _YAML.findall((ROOT / "docs/spark.md").read_text(encoding="utf-8"))
    job = yaml.safe_load(text)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of a command as it would get them. Raises click's errors for those that do not exist."""
    at = words.index("daybook")
    assert words[at : at + 2] == _START
    group: Any = typer.main.get_command(app)
    rest = words[at + 1 :]
    while isinstance(group, TyperGroup):
        _, group, rest = group.resolve_command(typer.Context(group), rest)
    found: dict[str, Any] = group.make_context("daybook spark", rest).params
    return found


def settings_of(text: str, scratch: Path) -> dict[str, str]:
    """What the driver makes of DAYBOOK_SPARK_SETTINGS."""
    given = environment_of({SETTINGS: text}, scratch)["PYSPARK_SUBMIT_ARGS"]
    words = shlex.split(given)
    return dict(word.split("=", 1) for word in words[1:-1:2])


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAYBOOK_DIR", "DAYBOOK_ZOOKEEPER", "DAYBOOK_CLUSTER"):
        monkeypatch.delenv(name, raising=False)


def test_the_command_line_takes_every_command_of_the_pages() -> None:
    found = [parsed(words) for words in lines()]
    assert len(found) >= 9
    masters = {options["master"].partition(":")[0] for options in found}
    assert masters == {"local[*]", "spark"}


def test_the_command_for_a_cluster_of_ones_own_has_settings_that_a_driver_takes(tmp_path: Path) -> None:
    (words,) = [words for words in lines() if "daybook_spark.driver" in words]
    variables = dict(word.split("=", 1) for word in words[: words.index("python3")])
    settings = settings_of(variables[SETTINGS], tmp_path)
    assert settings["spark.executorEnv.DAYBOOK_TOKEN_FILE"] == variables["DAYBOOK_TOKEN_FILE"]


def test_the_job_for_kubernetes_has_a_command_and_settings_that_a_driver_takes(tmp_path: Path) -> None:
    container = driver_of_the_job()
    assert container["args"][:3] == ["python3", "-m", "daybook_spark.driver"]
    assert parsed(container["args"])["master"] == "k8s://https://kubernetes.default.svc:443"
    variables = {each["name"]: each for each in container["env"]}
    settings = settings_of(variables[SETTINGS]["value"], tmp_path)
    assert settings["spark.kubernetes.container.image"] == container["image"]
    names = re.findall(r"\$\((\w+)\)", json.dumps(settings))
    before = list(variables)[: list(variables).index(SETTINGS)]
    assert set(names) == {"POD_NAME", "POD_IP"} <= set(before), "a kubelet fills in what stands before"
