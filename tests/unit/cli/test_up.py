"""`daybook up` as users run it: its cluster file, the failures that it survives, the processes that it leaves."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from daybook.local.child import processes_with, wait_for_exit
from daybook.local.cluster_file import ClusterFile
from daybook.runtime.ports import HeldPort, parse_address
from tests.unit.cli.kit import WAIT_S, Process, run, write
from tests.unit.runtime.certificates import new_authority

pytestmark = pytest.mark.integration

TWO = ("--ensemble-size", 2, "--write-quorum", 2, "--ack-quorum", 2)


def file_of(directory: Path) -> Any:
    """The cluster file."""
    return json.loads((directory / "cluster.json").read_text())


def start(directory: Path, *arguments: object) -> Process:
    """`daybook up`, once it serves."""
    process = Process("up", "--dir", directory, *arguments)
    process.wait_for_line("The cluster serves")
    return process


def still_there(directory: Path) -> list[int]:
    """Processes of the cluster that run."""
    settings = [str(file) for kind in ("bookie", "broker") for file in directory.glob(f"*/{kind}.toml")]
    return processes_with([*settings, str(directory / "zookeeper" / "zoo.cfg")])


def kill(directory: Path, bookie: str) -> int:
    """Kill a bookie; its process id."""
    pid = ClusterFile.read(directory).bookie(bookie).pid
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_cluster_runs_until_sigterm_and_a_killed_bookie_stays_dead(tmp_path: Path) -> None:
    files = new_authority().issue(tmp_path, "server")
    directory = tmp_path / "cluster"
    tls = ("--tls-certificate", files.certificate, "--tls-key", files.key)
    with start(directory, "--bookies", 2, "--racks", "r1,r2", *tls) as up:
        told = file_of(directory)
        assert told.keys() == {"zookeeper", "cluster", "bookies", "brokers"}
        fields = {"id", "address", "pid", "rack", "dir", "health_address", "metrics_address"}
        assert [bookie.keys() for bookie in told["bookies"]] == [fields, fields]
        assert [bookie["rack"] for bookie in told["bookies"]] == ["r1", "r2"]

        second = run("up", "--dir", directory)
        assert second.exit_code == 1
        assert f"a cluster runs in {directory} already" in second.stderr

        gone = kill(directory, "bookie-1")
        up.wait_for_error(f"`daybook bookie start --dir {directory} bookie-1`")
        assert not Path(f"/proc/{gone}").exists(), "its parent has taken note of its end"
        assert run("bookie", "start", "--dir", directory, "bookie-1").exit_code == 0
        again = file_of(directory)["bookies"][1]
        assert again["pid"] != gone

        env = {"DAYBOOK_TLS_CA": str(files.ca)}
        ledger = _written(directory, env)
        assert run("ledger", "read", ledger, "--dir", directory, env=env).stdout == "over TLS\n"
        refused = run("bookie", "info", "bookie-0", "--dir", directory)
        assert "it may serve TLS only, which needs the CA file" in refused.stderr

        up.send(signal.SIGTERM)
        code, _ = up.end()
        assert code == 0, up.errors
    assert still_there(directory) == []
    assert not (directory / "cluster.json").exists()


def _written(directory: Path, env: dict[str, str]) -> int:
    with Process("ledger", "write", *TWO, "--dir", directory, env=env) as process:
        process.stdin.write(b"over TLS\n")
        code, told = process.end()
        assert code == 0, process.errors
    return int(told)


def test_data_survives_a_restart_a_kill_and_a_port_in_use(tmp_path: Path) -> None:
    with start(tmp_path, "--bookies", 2, "--restart") as up:
        ledger = write(tmp_path, b"kept\n", *TWO)
        before = ClusterFile.read(tmp_path).bookie("bookie-0")
        old = kill(tmp_path, "bookie-0")
        wanted = parse_address(before.metrics_address).port
        with HeldPort(wanted=wanted) as other:
            assert other.port != wanted, "it is kept for the bookie"
        up.wait_for_error("it is restarted")
        address = ClusterFile.read(tmp_path).bookie("bookie-0").address
        assert address == before.address
        up.send(signal.SIGKILL)
        up.end()
    left = still_there(tmp_path)
    assert left, "after SIGKILL it cannot clean up"
    assert old not in left

    with start(tmp_path, "--bookies", 1) as up:
        assert not set(left) & set(still_there(tmp_path)), "remaining processes are ended first"
        assert len(file_of(tmp_path)["bookies"]) == 2, "the bookies that have data all start"
        assert run("ledger", "read", ledger, "--dir", tmp_path).stdout == "kept\n"
        up.send(signal.SIGINT)
        assert up.end()[0] == 0

    with HeldPort(wanted=parse_address(address).port), start(tmp_path, "--bookies", 1) as up:
        assert ClusterFile.read(tmp_path).bookie("bookie-0").address != address
        assert run("ledger", "read", ledger, "--dir", tmp_path).stdout == "kept\n"
        up.send(signal.SIGINT)
        assert up.end()[0] == 0
    assert still_there(tmp_path) == []


def test_a_bookie_that_was_there_before_keeps_its_rack_and_the_command_says_so(tmp_path: Path) -> None:
    with start(tmp_path, "--bookies", 1, "--racks", "a") as up:
        up.send(signal.SIGTERM)
        assert up.end()[0] == 0, up.errors
        assert "rack" not in up.errors
    with start(tmp_path, "--bookies", 2, "--racks", "b,c") as up:
        assert [bookie["rack"] for bookie in file_of(tmp_path)["bookies"]] == ["a", "c"]
        up.wait_for_error(
            "bookies keep the racks that they started with: bookie-0 in a; --racks is for new ones"
        )
        up.send(signal.SIGTERM)
        assert up.end()[0] == 0, up.errors


def test_wrong_usage_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    told = run("up", "--dir", file)
    assert (told.exit_code, "is not a directory" in told.stderr) == (1, True)
    assert run("up", "--dir", tmp_path / "new", "--tls-key", file).exit_code == 2
    tls = ("--tls-certificate", file, "--tls-key", file)
    assert run("up", "--dir", tmp_path / "new", "--brokers", 1, *tls).exit_code == 2
    assert run("up", "--dir", tmp_path / "new", "--bookies", 0).exit_code == 2
    assert not (tmp_path / "new").exists()


def test_waiting_for_an_exit_ends_when_the_process_does() -> None:
    with subprocess.Popen(["true"]) as child:
        assert wait_for_exit(child.pid, round(WAIT_S * 1000))


def test_brokers_start_with_the_cluster_and_start_again_where_they_were(tmp_path: Path) -> None:
    with start(tmp_path, "--bookies", 1, "--brokers", 2) as up:
        brokers = file_of(tmp_path)["brokers"]
        fields = {"id", "service_url", "admin_url", "pid", "health_address", "metrics_address"}
        assert [broker.keys() for broker in brokers] == [fields, fields]
        assert [broker["id"] for broker in brokers] == ["broker-0", "broker-1"]
        assert brokers[0]["service_url"].startswith("pulsar://127.0.0.1:")

        os.kill(brokers[1]["pid"], signal.SIGKILL)
        up.wait_for_error(f"`daybook broker start --dir {tmp_path} broker-1`")
        again = run("broker", "start", "--dir", tmp_path, "broker-1")
        assert again.exit_code == 0, again.stderr
        assert brokers[1]["service_url"] in again.stdout
        twice = run("broker", "start", "--dir", tmp_path, "broker-1")
        assert "runs already" in twice.stderr

        up.send(signal.SIGTERM)
        assert up.end()[0] == 0, up.errors
    assert still_there(tmp_path) == []


def test_with_restart_a_broker_that_ends_by_itself_serves_again_where_it_was(tmp_path: Path) -> None:
    topic = "public/default/kept"
    with start(tmp_path, "--bookies", 2, "--brokers", 1, "--restart") as up:
        before = ClusterFile.read(tmp_path).broker("broker-0")
        with Process("topic", "produce", "--dir", tmp_path, topic) as process:
            process.stdin.write(b"before\n")
            assert process.end()[0] == 0, process.errors
        os.kill(before.pid, signal.SIGKILL)
        up.wait_for_error("it is restarted")
        with Process("topic", "produce", "--dir", tmp_path, topic) as process:
            process.stdin.write(b"after\n")
            assert process.end()[0] == 0, process.errors
        after = ClusterFile.read(tmp_path).broker("broker-0")
        assert (after.service_url, after.admin_url) == (before.service_url, before.admin_url)
        assert after.pid != before.pid
        told = run("topic", "consume", "--dir", tmp_path, topic, "s", "--earliest", "--count", 2, "--json")
        assert [json.loads(line)["data"] for line in told.stdout.splitlines()] == ["before", "after"], (
            told.stderr
        )
        up.send(signal.SIGTERM)
        assert up.end()[0] == 0, up.errors
    assert still_there(tmp_path) == []
