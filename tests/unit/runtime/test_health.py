"""Probes get their answers from a separate port and separate threads."""

import logging
import threading
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daybook.runtime import health
from daybook.runtime.health import LIVENESS, OVERALL, READINESS, HealthServer, Progress
from daybook.runtime.ports import Address, PortInUseError

ANYWHERE = Address("127.0.0.1", 0)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Trouble:
    """A check whose result a test sets."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self) -> str | None:
        return self.reason


@pytest.fixture
def liveness() -> Trouble:
    return Trouble()


@pytest.fixture
def readiness() -> Trouble:
    return Trouble()


@pytest.fixture
def server(liveness: Trouble, readiness: Trouble) -> Iterator[HealthServer]:
    with HealthServer(ANYWHERE, liveness=[liveness], readiness=[readiness], refresh_ms=10) as running:
        yield running


@pytest.fixture
def stub(server: HealthServer) -> Iterator[health_pb2_grpc.HealthStub]:
    with grpc.insecure_channel(str(server.address)) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def ask(stub: health_pb2_grpc.HealthStub, service: str) -> int:
    """The status of `service`."""
    return int(stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status)


def test_each_service_follows_its_own_checks(
    stub: health_pb2_grpc.HealthStub, liveness: Trouble, readiness: Trouble
) -> None:
    assert [ask(stub, s) for s in (LIVENESS, OVERALL, READINESS)] == [SERVING, SERVING, SERVING]
    readiness.reason = "still replaying"
    assert [ask(stub, s) for s in (LIVENESS, OVERALL, READINESS)] == [SERVING, SERVING, NOT_SERVING]
    liveness.reason, readiness.reason = "journal is stuck", None
    assert [ask(stub, s) for s in (LIVENESS, OVERALL, READINESS)] == [NOT_SERVING, NOT_SERVING, SERVING]


def test_an_unknown_service_is_not_found(stub: health_pb2_grpc.HealthStub) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        ask(stub, "liveliness")
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_check_that_raises_is_a_problem(server: HealthServer, stub: health_pb2_grpc.HealthStub) -> None:
    def raises() -> str:
        raise KeyError("disk")

    with HealthServer(ANYWHERE, liveness=[raises], readiness=[]) as broken:
        assert broken.reasons(LIVENESS) == ["a health check failed: KeyError: 'disk'"]


def test_a_watcher_sees_changes_and_the_end(
    server: HealthServer, stub: health_pb2_grpc.HealthStub, readiness: Trouble
) -> None:
    changes = stub.Watch(health_pb2.HealthCheckRequest(service=READINESS), timeout=60)
    assert next(changes).status == SERVING
    readiness.reason = "still replaying"
    assert next(changes).status == NOT_SERVING
    readiness.reason = None
    assert next(changes).status == SERVING


def test_a_hanging_readiness_check_is_reported_and_does_not_delay_liveness(
    liveness: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_HUNG_AFTER_MS", 10)
    release = threading.Event()
    entered = threading.Event()
    hang = threading.Event()

    def slow() -> None:
        if hang.is_set():
            entered.set()
            release.wait(60)

    with (
        HealthServer(ANYWHERE, liveness=[liveness], readiness=[slow], refresh_ms=3_600_000) as server,
        grpc.insecure_channel(str(server.address)) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=READINESS)
        hang.set()
        asked = stub.Check.future(request, timeout=60)
        assert entered.wait(60)
        probes = [stub.Check.future(request, timeout=60) for _ in range(4)]
        assert [probe.result().status for probe in probes] == [NOT_SERVING] * 4
        assert "the check of readiness has made no progress" in server.reasons(READINESS)[0]
        liveness.reason = "journal is stuck"
        assert ask(stub, LIVENESS) == NOT_SERVING
        release.set()
        assert asked.result().status == SERVING


def test_changes_are_logged_once_with_reasons(
    server: HealthServer, readiness: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        readiness.reason = "still replaying"
        server.refresh()
        server.refresh()
        readiness.reason = None
        server.refresh()
    changes = [line for line in caplog.messages if "service='readiness'" in line]
    assert changes == [
        "health service='readiness' serving=False reasons=['still replaying']",
        "health service='readiness' serving=True reasons=[]",
    ]


def test_a_port_in_use_is_refused(server: HealthServer) -> None:
    with pytest.raises(
        PortInUseError, match="in use by another process: stop that one, or set another health"
    ):
        HealthServer(server.address, liveness=[], readiness=[])


def test_the_port_is_free_after_close() -> None:
    first = HealthServer(ANYWHERE, liveness=[], readiness=[])
    first.close()
    HealthServer(first.address, liveness=[], readiness=[]).close()


def test_progress_distinguishes_a_stuck_thread_from_an_idle_one() -> None:
    now_ms = 0
    journal = Progress("journal", 5_000, lambda: now_ms)
    now_ms = 60_000
    assert journal() is None, "it has not begun"
    journal.stamp()
    now_ms = 65_000
    assert journal() is None
    now_ms = 65_001
    assert journal() == "journal has made no progress for 5001 ms (allowed: 5000 ms)"
    journal.stamp()
    assert journal() is None
    journal.rest()
    now_ms = 600_000
    assert journal() is None
