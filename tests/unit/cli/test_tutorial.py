"""What docs/tutorial.md has people type into the pod `client`, typed on a cluster of processes, in which a node dies as on the page."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml
from typer.core import TyperGroup

from daybook.cli.kubectl.commands import app as kubectl_app
from daybook.local.cluster import LocalCluster
from tests.fixtures.brokers import Brokers, write_settings
from tests.fixtures.cluster import make_cluster
from tests.fixtures.tutorial import POD, Command, commands
from tests.paths import ROOT
from tests.unit.cli.kit import run

BOOKIES: Final = 3
"""As many as the pool of the page has: nothing can take the place of a dead one."""
DEATH: Final = 4
"""The part of the page in which the node dies, before the first command in the pod."""
COMMAND_S: Final = 240


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Two of them on bookies of the test's own."""
    with make_cluster(tmp_path / "cluster", bookies=BOOKIES) as cluster:
        write_settings(cluster)
        started = Brokers(cluster)
        started.whole()
        yield started


def typed(command: Command, cluster: LocalCluster) -> str:
    """What a shell prints for the command, with the local cluster in the pod's place."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DAYBOOK_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", POD.sub("", command.line)],
        env={**environment, "PATH": path, "DAYBOOK_DIR": str(cluster.directory)},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, f"{command.line}: {done.stderr}"
    return done.stdout


def node_dies(brokers: Brokers) -> None:
    """One that has a bookie and a broker loses its power."""
    brokers.kill("broker-0")
    brokers.cluster.kill_bookie("bookie-0")


@pytest.mark.integration
@pytest.mark.timeout(900)  # five starts of the command, and a pause of twenty seconds that the page asks for
def test_every_message_of_the_tutorial_survives_the_death_of_its_node(brokers: Brokers) -> None:
    (resource,) = yaml.safe_load_all((ROOT / "examples" / "topic.yaml").read_text(encoding="utf-8"))
    name, partitions = resource["metadata"]["name"], resource["spec"]["partitions"]
    made = run("topic", "create", name, "--partitions", partitions, "--dir", brokers.cluster.directory)
    assert made.exit_code == 0, made.output
    is_alive = True
    in_pod = [command for command in commands() if command.is_in_pod]
    assert [command.part for command in in_pod] == [3, 3, 4, 5, 5]
    for command in in_pod:
        if is_alive and command.part >= DEATH:
            node_dies(brokers)
            is_alive = False
        assert typed(command, brokers.cluster).split() == command.output.split(), command.line
    assert not is_alive


def options_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command of the plugin that these words lead to, and the words that are left for it."""
    group: Any = typer.main.get_command(kubectl_app)
    while isinstance(group, TyperGroup):
        _, group, words = group.resolve_command(typer.Context(group), words)
    return group, words


def test_the_plugin_has_the_commands_of_the_tutorial() -> None:
    used = [command for command in commands() if command.starts("kubectl", "daybook")]
    assert len(used) >= 3
    for command in used:
        found, words = options_of(command.words[2:])
        found.make_context("kubectl daybook", words)


def test_the_tutorial_runs_nothing_that_no_test_knows() -> None:
    """A command of another kind needs a test of its own."""
    known = ("daybook", "wait", "apply", "delete", "rollout", "get")
    for command in commands():
        is_known = any(command.starts("kubectl", each) for each in known)
        assert is_known or command.is_in_pod or command.words[0] == "helm", command.line
