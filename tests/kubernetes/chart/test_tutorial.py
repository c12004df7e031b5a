"""What docs/tutorial.md creates, waits for and deletes, judged by a real API server."""

from typing import Final

import yaml
from daybook_operator.plan.pool.replication import FULLY_REPLICATED
from daybook_operator.plan.stored import READY

from tests.cluster.control_plane import ControlPlane
from tests.fixtures.tutorial import Command, commands
from tests.kubernetes.chart.conftest import CHART, RELEASE, Object, Render
from tests.kubernetes.chart.test_api_server import FOREIGN, take
from tests.paths import ROOT

CONDITIONS: Final = {READY, FULLY_REPLICATED}
KINDS: Final = {
    "bookiepool": "BookiePool",
    "topic": "Topic",
    "pod": "Pod",
    "statefulset": "StatefulSet",
}


def documents(command: Command) -> list[Object]:
    """What is in the files of a command."""
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in command.values("-f")]
    return [each for text in texts for each in yaml.safe_load_all(text)]


def installed(render: Render) -> list[Object]:
    """What the page has Helm install, with the values of the page."""
    (install,) = (each for each in commands() if each.starts("helm", "install"))
    words = install.words[2:]
    assert words[:4] == [RELEASE, str(CHART.relative_to(ROOT)), "--namespace", "data"]
    values = install.values("--set")
    assert "broker.enabled=true" in values
    return render({}, *(word for value in values for word in ("--set", value)))


def test_the_api_server_takes_what_the_tutorial_installs(
    control_plane: ControlPlane, render: Render, data: str
) -> None:
    objects = installed(render)
    expected = [each for each in objects if each["kind"] not in FOREIGN]
    assert take(control_plane, objects).count("serverside-applied") == len(expected)
    pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] == "StatefulSet"]
    images = [container["image"] for pod in pods for container in pod["containers"]]
    assert all(image.startswith("registry.example.org/team/") for image in images)


def test_the_api_server_takes_what_the_tutorial_applies(control_plane: ControlPlane, data: str) -> None:
    applied = [each for each in commands() if each.starts("kubectl", "apply")]
    assert len(applied) == 3
    for command in applied:
        assert command.values("-n") == ["data"]
        found = documents(command)
        assert take(control_plane, found).count("serverside-applied") == len(found), command.line


def test_the_tutorial_waits_for_and_deletes_what_it_made(render: Render) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in installed(render)}
    for command in commands():
        if command.starts("kubectl", "apply"):
            there |= {(each["kind"], each["metadata"]["name"]) for each in documents(command)}
        elif command.starts("kubectl", "wait") or command.starts("kubectl", "rollout", "status"):
            (what,) = (word for word in command.words if word.partition("/")[0] in KINDS)
            kind, _, name = what.partition("/")
            assert (KINDS[kind], name) in there, command.line
            condition = [word.partition("=")[2] for word in command.words if word.startswith("--for=")]
            assert {each.removeprefix("condition=") for each in condition} <= CONDITIONS, command.line
        elif command.starts("kubectl", "delete"):
            gone = {(each["kind"], each["metadata"]["name"]) for each in documents(command)}
            assert gone <= there, command.line
            there -= gone
    assert not {"BookiePool", "Topic", "Pod"} & {kind for kind, _ in there if kind != "Pod"}
