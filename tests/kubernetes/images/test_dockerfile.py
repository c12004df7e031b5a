"""What can be said of the Dockerfile without building it; the built images are checked by `make e2e`."""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.paths import ROOT

TEXT: Final = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
TARGETS: Final = ("bookie", "broker", "operator", "spark", "zookeeper")


def stages() -> Mapping[str, tuple[str, list[str]]]:
    """Each stage's base and instructions, by name."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    found = {}
    for begin, end in pairwise([*starts, len(lines)]):
        match = re.fullmatch(r"FROM (\S+) AS (\S+)", lines[begin])
        assert match, f"a stage without a name: {lines[begin]}"
        found[match[2]] = (match[1], lines[begin + 1 : end])
    return found


def test_there_is_a_target_for_each_image() -> None:
    assert set(TARGETS) <= stages().keys()


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_user_without_rights(target: str) -> None:
    _, instructions = stages()[target]
    users = [line for line in instructions if line.startswith("USER ")]
    assert users == ["USER 65532:65532"], "by number, so that runAsNonRoot can tell"
    assert instructions[-1].startswith("CMD ["), "nothing is changed after the user was"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_is_its_base_and_what_is_copied(target: str) -> None:
    """No RUN in a final stage: no compiler, no cache and no package manager's traces can be left there."""
    base, instructions = stages()[target]
    assert base == "base"
    kinds = {line.split()[0] for line in instructions}
    assert kinds <= {"LABEL", "COPY", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert all("--from=" in line for line in instructions if line.startswith("COPY"))


def test_nothing_depends_on_what_is_latest_today() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", TEXT, re.MULTILINE))
    assert re.fullmatch(r"docker\.io/library/python:3\.14\.\d+-slim-trixie", arguments["BASE"])
    bases = {base for base, _ in stages().values()}
    known = {"${BASE}", *stages()}
    assert bases <= known
    assert "latest" not in TEXT.lower()
    (uv,) = re.findall(r"pip install \S+ \S+ (\S+)", TEXT)
    assert re.fullmatch(r"uv==\d+\.\d+\.\d+", uv)
    assert f"UV_PACKAGE := {uv}\n" in (ROOT / "Makefile").read_text(encoding="utf-8"), "one uv everywhere"
    script = (ROOT / "images" / "dependencies.sh").read_text(encoding="utf-8")
    assert re.search(r"--with pip==\d+\.\d+", script)


def test_the_build_context_is_what_the_images_need() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "*", "everything is left out that is not named"
    named = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in named)
    assert named >= {
        "uv.lock",
        "pyproject.toml",
        "daybook",
        "bookie-image",
        "broker-image",
        "operator",
        "spark-jobs",
        "images",
        "tools/compiled",
    }


def test_a_change_of_the_sources_repeats_no_download() -> None:
    """A layer is built again once something before it has changed."""
    _, instructions = stages()["dependencies"]
    copied = [source for line in instructions if line.startswith("COPY ") for source in line.split()[1:-1]]
    members = {f"{path.parent.name}/pyproject.toml" for path in ROOT.glob("*/pyproject.toml")}
    assert set(copied) == {"uv.lock", "pyproject.toml", "images/dependencies.sh"} | members
    assert stages()["wheels"][0] == "dependencies"


def test_spark_finds_its_entry_point_and_the_java_that_is_copied() -> None:
    """Spark on Kubernetes gives its containers arguments and no command."""
    _, instructions = stages()["spark"]
    (entry_point,) = [line for line in instructions if line.startswith("ENTRYPOINT ")]
    module = json.loads(entry_point.removeprefix("ENTRYPOINT "))[2]
    assert (ROOT / "spark-jobs" / f"{module.replace('.', '/')}.py").exists()
    (java,) = [line.split()[-1] for line in instructions if "/zookeeper/java " in line]
    (home,) = [line.partition("=")[2] for line in instructions if line.startswith("ENV JAVA_HOME=")]
    _, installing = stages()["spark-install"]
    assert installing[-1].endswith(f"-m daybook_spark.java {home} {java}/bin/java")
    script = (ROOT / "images" / "dependencies.sh").read_text(encoding="utf-8")
    assert 'mkdir "$directory/spark"' in script
    assert " /wheelhouse/spark/* " in installing[-1]


def test_the_entry_point_that_is_started_is_the_one_that_is_copied() -> None:
    script = (ROOT / "images" / "wheels.sh").read_text(encoding="utf-8")
    path, library = re.findall(r"^cp (\S+\.py) ", script, re.MULTILINE)
    assert (ROOT / path).exists()
    module = str(Path(library).with_suffix("")).replace("/", ".")
    assert f"from {module} import" in (ROOT / path).read_text(encoding="utf-8")
    assert f'"$directory/zookeeper/{Path(library).parent}/"' in script, (
        "beside the script, under its own name"
    )
    _, instructions = stages()["zookeeper"]
    assert f'CMD ["python3", "/opt/zookeeper/{Path(path).name}"]' in instructions
