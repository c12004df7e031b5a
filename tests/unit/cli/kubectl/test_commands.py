"""The commands, on an API server that is a recording."""

import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from daybook.cli.kubectl import app
from daybook.cli.kubectl.api import Api, Object
from daybook.cli.kubectl.world import World, observe, place
from tests.unit.cli.kubectl.objects import bookie, condition, ledger, listing_of, node, pod, pool

FINE = World([pool()], [ledger()], [pod(), pod("op-0", "system", component="operator")], nodes=[node()])
BROKEN = World(
    [
        pool(
            bookie(0),
            bookie(1, state="Away", ready=False),
            bookie(2),
            conditions=[condition("Ready", "False", "Away")],
        )
    ],
    [ledger(fragments=[{"firstEntry": 0, "bookies": ["data.bk-0", "data.bk-1"], "missing": ["data.bk-1"]}])],
    [pod("bk-1", ready=False)],
    nodes=[node(ready="False", message="gone")],
)

Runs = Callable[..., Result]


class Recording:
    """An API server as `Api` shows it."""

    def __init__(self, world: World) -> None:
        self.listing = listing_of(world)
        self.world = world
        self.scaled: list[tuple[str, str, str, int]] = []
        self.watched: list[Object] = []

    def scale(self, *what: Any) -> None:
        self.scaled.append(what)

    def watch(self, _kind: str, namespace: str, name: str) -> Iterator[Object]:
        yield from [
            *self.watched,
            next(each for each in self.world.pools if place(each) == (namespace, name)),
        ]

    def log(self, _namespace: str, pod: str, _lines: int, *, previous: bool = False) -> str:
        return f"log of {pod} on worker-b{' before' if previous else ''}\n"


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Recording]:
    """Makes the commands talk to a recording."""

    def use(world: World) -> Recording:
        found = Recording(world)
        monkeypatch.setattr(Api, "connect", lambda *_: (found, "data"))
        return found

    return use


def run(*words: object) -> Result:
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    )


def test_status_is_quiet_where_all_is_well(recording: Callable[[World], Recording]) -> None:
    recording(FINE)
    done = run("status")
    assert done.exit_code == 0, done.output
    assert "3/3" in done.output
    assert "operator: 1 of 1 ready" in done.output


def test_status_names_the_deepest_trouble_and_fails(recording: Callable[[World], Recording]) -> None:
    recording(BROKEN)
    done = run("status")
    assert done.exit_code == 1
    assert "Node worker-b: Ready is False" in done.output
    record = json.loads(run("status", "--json").stdout)
    assert record["pools"][0]["ready"] == 2
    assert record["findings"][0]["subject"] == "BookiePool data/bk"


@pytest.mark.parametrize(
    "wrong",
    [
        condition("AuditHealthy", "False", "JobFailed", "2 copies are missing"),
        condition("RetentionHealthy", "False", "DoesNotRun", "its ServiceAccount is missing"),
        condition("Draining", "True", "LedgersUnreadable", "ledger 7 cannot be read"),
    ],
)
def test_a_job_that_fails_and_a_drain_without_metadata_are_problems(
    wrong: dict[str, str], recording: Callable[[World], Recording]
) -> None:
    fine = pool()["status"]["conditions"]
    recording(World([pool(conditions=[*fine, wrong])]))
    said = f"{wrong['type']} is {wrong['status']} ({wrong['reason']})"
    for command in ("status", "explain"):
        done = run(command)
        assert (done.exit_code, said in done.output) == (1, True), done.output
    assert wrong["message"] in run("explain").output


def test_explain_shows_the_way_down_and_the_next_command(recording: Callable[[World], Recording]) -> None:
    recording(BROKEN)
    done = run("explain", "bk")
    assert done.exit_code == 1
    at = [
        done.output.index(word)
        for word in ("BookiePool data/bk", "bookie data.bk-1", "Pod data/bk-1", "Node worker-b")
    ]
    assert at == sorted(at)
    assert "kubectl describe node worker-b" in done.output
    recording(FINE)
    assert run("explain").output == "everything is as it should be\n"


def test_where_no_pool_is_the_commands_say_where_else_to_try(
    recording: Callable[[World], Recording],
) -> None:
    recording(World())
    for command in ("status", "explain"):
        done = run(command)
        assert done.exit_code == 0, done.output
        assert (
            "there are no pools in namespace data; try another one with -n NAMESPACE, or all with -A\n"
            in done.output
        )
        assert "there are no pools in any namespace\n" in run(command, "-A").output


def test_a_name_that_is_not_there_is_said(recording: Callable[[World], Recording]) -> None:
    recording(FINE)
    done = run("explain", "bkk")
    assert done.exit_code == 1
    assert "no BookiePool and no Ledger 'bkk'" in done.output
    assert "there are: bk" in run("bookies", "bkk").output


def test_bookies_and_where_their_entries_are(recording: Callable[[World], Recording]) -> None:
    recording(BROKEN)
    assert "zone-b/zone-b" in run("bookies").output
    assert [each["state"] for each in json.loads(run("bookies", "--json").stdout)] == [
        "Writable",
        "Away",
        "Writable",
    ]
    done = run("ledger", "map", "first")
    assert "data.bk-1 missing" in done.output
    assert "0 – …" in done.output


def test_a_closed_ledger_has_an_end(recording: Callable[[World], Recording]) -> None:
    fragments = [{"firstEntry": 0, "bookies": ["data.bk-0"]}, {"firstEntry": 10, "bookies": ["data.bk-1"]}]
    recording(World([pool()], [ledger(fragments=fragments, lastEntry=1234, state="Closed")]))
    output = run("ledger", "map").output
    assert "0 – 9" in output
    assert "10 – 1,234" in output


def test_drain_asks_then_scales_then_follows(recording: Callable[[World], Recording]) -> None:
    api = recording(FINE)
    api.watched = [
        pool(drain={"bookie": "data.bk-2", "stage": "ReadOnly"}),
        pool(drain={"bookie": "data.bk-2", "stage": "Replicating", "ledgersRemaining": 2}),
    ]
    refused = run("drain", "bk")  # three bookies carry a ledger that is striped over three
    assert refused.exit_code == 1
    assert "the copies have no place" in refused.output
    assert not api.scaled
    without_ledgers = recording(World([pool()]))
    without_ledgers.watched = api.watched
    assert run("drain", "bk", "--to", 2).exit_code == 1, "nobody said yes"
    assert not without_ledgers.scaled
    done = run("drain", "bk", "--yes")
    assert done.exit_code == 0, done.output
    assert without_ledgers.scaled == [("BookiePool", "data", "bk", 2)]
    assert "data.bk-2: Replicating, 2 ledgers still name it" in done.output


def test_a_drain_is_called_off_by_keeping_what_is_there(recording: Callable[[World], Recording]) -> None:
    draining = pool(spec={"replicas": 2}, replicas=3)
    api = recording(World([draining]))
    assert run("drain", "bk", "--cancel", "--no-wait").exit_code == 0
    assert api.scaled == [("BookiePool", "data", "bk", 3)]


def test_recover_shows_and_follows(recording: Callable[[World], Recording]) -> None:
    api = recording(FINE)
    api.watched = [pool(conditions=[condition("FullyReplicated", "False", "UnderReplicated")])]
    assert "data/bk" in run("recover", "plan").output
    assert json.loads(run("recover", "plan", "--json").stdout)[0]["fullyReplicated"] == "True"
    lines = run("recover", "watch").output.splitlines()
    assert lines[0].startswith("FullyReplicated False")
    assert lines[-1].startswith("FullyReplicated True")


def test_a_report_has_resources_logs_and_no_machine(
    recording: Callable[[World], Recording], tmp_path: Path
) -> None:
    recording(BROKEN)
    done = run("report", "--to", tmp_path / "mine.tar.gz")
    assert done.exit_code == 0, done.output
    with tarfile.open(tmp_path / "mine.tar.gz") as tar:
        log = tar.extractfile("mine/logs/data.bk-1.log")
        assert log is not None
        assert log.read() == b"log of bk-1 on node-1\n"


def test_what_may_not_be_read_is_said_and_the_rest_is_shown() -> None:
    world = observe(listing_of(FINE, "Node", "Event"), "data")
    assert world.unread == {"Node": "Node is forbidden", "Event": "Event is forbidden"}
    assert len(world.pools) == 1
    assert len(world.pods) == 2, "the operator's pod is in another namespace"


def test_the_plugin_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    done = run("status")
    assert done.exit_code == 1
    assert "pip install '.[kubernetes]' in a checkout" in done.output, "on PyPI the name is another project's"
