"""The life of a broker's process: it starts, says where it serves, answers probes, stops in order, and says why it cannot start."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import grpc
import pytest
from daybook_broker.process import start
from daybook_broker.settings import BrokerSettings
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daybook.core.errors import NotEnoughBookiesError
from daybook.local.child import wait_for_exit
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.allocator import ALLOCATOR
from daybook.runtime.ports import HeldPort
from tests.fixtures.forked import spawn_broker

pytestmark = pytest.mark.integration

WAIT_S: Final = 60.0


class Process:
    """A broker of a test's own."""

    def __init__(self, directory: Path, zookeeper: str, **settings: object) -> None:
        """Start it."""
        self.ready = directory / "ready.json"
        self.log = directory / "broker.log"
        values = {
            "broker_id": "alone",
            "cluster": CLUSTER_NAME,
            "zookeeper": zookeeper,
            "ready_file": str(self.ready),
            "log_format": "json",
            **settings,
        }
        config = directory / "broker.toml"
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
        self.process = spawn_broker(["start", "--config", str(config)], self.log)

    def wait_until_ready(self) -> Mapping[str, Any]:
        """What it says about where it serves."""
        while not self.ready.exists():
            assert not wait_for_exit(self.process.pid, 20), self.log.read_text()
        found: Mapping[str, Any] = json.loads(self.ready.read_text())
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait for the end."""
        code = self.process.wait(WAIT_S)
        assert code is not None
        return int(code)

    def said(self, event: str) -> dict[str, Any]:
        """The last line of its log with this event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        found: dict[str, Any] = [line for line in lines if line["event"] == event][-1]
        return found


@pytest.fixture
def started(tmp_path: Path, cluster: LocalCluster) -> Iterator[Process]:
    """A broker that starts."""
    process = Process(tmp_path, cluster.zookeeper.connect_string)
    yield process
    process.end(signal.SIGKILL)


def is_serving(address: str, service: str) -> bool:
    """What a probe finds."""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def test_a_broker_serves_answers_probes_shows_metrics_and_stops_in_order(started: Process) -> None:
    told = started.wait_until_ready()
    assert told["broker_id"] == "alone"
    assert told["pid"] == started.process.pid
    assert told["service_url"].startswith("pulsar://127.0.0.1:")
    assert is_serving(told["health_address"], "liveness")
    assert is_serving(told["health_address"], "readiness")
    with urlopen(f"http://{told['metrics_address']}/metrics") as answer:
        text = answer.read().decode()
    assert "daybook_broker_registered 1.0" in text
    assert "daybook_broker_entries_in_total 0.0" in text
    with urlopen(f"{told['admin_url']}/admin/v2/brokers/health") as answer:
        assert answer.status == 200
    assert started.end() == 0
    assert started.said("stopped")["broker"] == "alone"


async def test_rule_46_a_broker_in_doubt_of_its_session_is_alive_and_not_ready(
    tmp_path: Path, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = BrokerSettings(
        broker_id="in-doubt",
        zookeeper=cluster.zookeeper.connect_string,
        cluster=CLUSTER_NAME,
        ready_file=tmp_path / "ready.json",
    )
    async with AsyncExitStack() as stack:
        broker = await start(settings, stack)
        stack.push_async_callback(broker.stop)
        health = json.loads((tmp_path / "ready.json").read_text())["health_address"]
        assert await asyncio.to_thread(is_serving, health, "readiness")
        monkeypatch.setattr(type(broker.ownership), "is_certain", property(lambda _: False))
        assert not await asyncio.to_thread(is_serving, health, "readiness")
        assert await asyncio.to_thread(is_serving, health, "liveness")
        monkeypatch.undo()


async def test_a_broker_places_by_the_policy_of_its_variables(
    tmp_path: Path, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bookies here name no zone, so none may be chosen where zones are a condition."""
    monkeypatch.setenv("DAYBOOK_PLACEMENT_POLICY", "zone")
    monkeypatch.setenv("DAYBOOK_PLACEMENT_ENFORCE", "true")
    settings = BrokerSettings(
        broker_id="strict", zookeeper=cluster.zookeeper.connect_string, cluster=CLUSTER_NAME
    )
    async with AsyncExitStack() as stack:
        broker = await start(settings, stack)
        stack.push_async_callback(broker.stop)
        with pytest.raises(NotEnoughBookiesError, match="zone"):
            await broker.client.create_ledger()


def test_a_placement_policy_that_does_not_exist_is_named(
    tmp_path: Path, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_PLACEMENT_POLICY", "continent")
    process = Process(tmp_path, cluster.zookeeper.connect_string)
    assert process.exit_code() == 1
    assert "policy" in process.said("the broker cannot start")["reason"]


def test_a_broker_whose_zookeeper_is_missing_says_so(tmp_path: Path) -> None:
    with HeldPort() as nobody:
        process = Process(tmp_path, f"127.0.0.1:{nobody.port}", connect_timeout_ms=300)
        assert process.exit_code() == 1
    assert "no ZooKeeper answers at" in process.said("the broker cannot start")["reason"]


def test_a_broker_of_a_cluster_that_nobody_made_says_so(tmp_path: Path, zookeeper: str) -> None:
    process = Process(tmp_path, zookeeper, cluster="elsewhere", connect_timeout_ms=3_000)
    assert process.exit_code() == 1
    assert "elsewhere" in process.said("the broker cannot start")["reason"]


def test_a_port_that_is_taken_is_named(tmp_path: Path, started: Process, cluster: LocalCluster) -> None:
    told = started.wait_until_ready()
    other = tmp_path / "other"
    other.mkdir()
    taken = told["service_url"].removeprefix("pulsar://")
    process = Process(other, cluster.zookeeper.connect_string, broker_id="other", address=taken)
    assert process.exit_code() == 1
    assert "in use" in process.said("the broker cannot start")["reason"]


def test_a_stop_while_the_broker_waits_for_zookeeper_is_an_orderly_end(tmp_path: Path) -> None:
    with HeldPort() as nobody:
        process = Process(tmp_path, f"127.0.0.1:{nobody.port}", connect_timeout_ms=60_000, log_level="DEBUG")
        while not process.log.exists() or "health" not in process.log.read_text():
            assert not wait_for_exit(process.process.pid, 20), process.log.read_text()
        assert process.end() == 0


def test_bad_settings_are_all_named_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('broker_id = "a/b"\nzookeper = "x:1"\nwrite_quorum = "many"\n')
    command = [sys.executable, "-m", "daybook_broker", "start", "--config", str(config)]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **ALLOCATOR}, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 1
    assert "cannot name a broker" in ended.stderr
    assert "did you mean 'zookeeper'?" in ended.stderr
    assert "write_quorum" in ended.stderr
    assert "Traceback" not in ended.stderr
