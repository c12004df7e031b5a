"""Topic resources: what the operator and the API server do to create the topics of many of them, and while nothing changes.

The operator has its default intervals and runs as a process of its own on a real API server, beside a cluster with one broker. The rest
lasts longer than the pause between two resyncs, so that whatever a resync costs is in it.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from tests.cluster.binaries import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.process import Process
from tests.paths import ROOT
from tools.growth.measure import Note, cpu_s

NAMESPACE: Final = "default"
BOOKIES: Final = 3
REST_S: Final = 200.0
CREATION_TIMEOUT_S: Final = 3600.0
_START_TIMEOUT_S: Final = 60.0
_WRITES: Final = re.compile(
    r'^apiserver_request_total\{[^}]*verb="(?:APPLY|DELETE|PATCH|POST|PUT)"[^}]*\} (\S+)$', re.MULTILINE
)


def measure_topic_resources(sizes: list[int], directory: Path, note: Note) -> None:
    """At each of `sizes`: create as many Topics, wait until each is ready, then rest."""
    say = Console(stderr=True, highlight=False).print
    programs = binaries(say=say)
    for size in sizes:
        place = directory / str(size)
        with (
            LocalCluster(
                place / "cluster", bookies=BOOKIES, brokers=1, settings={"log_level": "WARNING"}
            ) as cluster,
            ControlPlane(place / "plane", programs) as plane,
        ):
            _prepare(plane, cluster.zookeeper.connect_string)
            with _operator(plane, place) as operator:
                note("create", size, **_while(plane, operator, partial(_create, plane, size)))
                note("rest", size, **_per_second(_while(plane, operator, _rest)))


def _prepare(plane: ControlPlane, zookeeper: str) -> None:
    """The CRDs, and a pool that the operator leaves alone: it stands for bookies and brokers that run already."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        plane.apply(path)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(ROOT / "crds"))
    pool = {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "BookiePool",
        "metadata": {"name": "bk", "namespace": NAMESPACE, "annotations": {"daybook.dev/pause": "true"}},
        "spec": {
            "metadata": {"zookeeper": zookeeper, "cluster": CLUSTER_NAME},
            "storage": {"store": {"size": "1Gi"}},
        },
    }
    plane.apply([pool])


@contextmanager
def _operator(plane: ControlPlane, directory: Path) -> Iterator[Process]:
    ready = directory / "operator.json"
    values = {
        "KUBECONFIG": plane.kubeconfig,
        "NAMESPACES": NAMESPACE,
        "READY_FILE": ready,
        "LOG_LEVEL": "WARNING",
    }
    environment = {f"DAYBOOK_OPERATOR_{name}": str(value) for name, value in values.items()}
    command = [sys.executable, "-m", "daybook_operator", "run"]
    operator = Process("operator", command, directory / "operator.log", environment=environment)
    operator.start()
    try:
        operator.wait_until(ready.exists, _START_TIMEOUT_S)
        yield operator
    finally:
        operator.stop()


def _create(plane: ControlPlane, size: int) -> None:
    """Create the resources, and return once each of them is ready."""
    manifests = [
        {
            "apiVersion": "daybook.dev/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": f"topic-{number}", "namespace": NAMESPACE},
            "spec": {"poolRef": {"name": "bk"}, "messageTTLSeconds": 3600},
        }
        for number in range(size)
    ]
    plane.apply(manifests)
    timeout = f"--timeout={CREATION_TIMEOUT_S:.0f}s"
    plane.kubectl("wait", "--for=condition=Ready", timeout, "topics", "--all", "-n", NAMESPACE)


def _rest() -> None:
    time.sleep(REST_S)


def _while(plane: ControlPlane, operator: Process, work: Callable[[], object]) -> dict[str, Any]:
    """What the operator used and the API server was asked to write during `work`."""
    assert operator.pid is not None
    begin, cpu_before, writes_before = time.perf_counter(), cpu_s(operator.pid), _writes(plane)
    work()
    seconds = time.perf_counter() - begin
    return {
        "seconds": round(seconds, 2),
        "operator_cpu_s": round(cpu_s(operator.pid) - cpu_before, 2),
        "api_writes": round(_writes(plane) - writes_before),
    }


def _per_second(figures: dict[str, Any]) -> dict[str, Any]:
    seconds = figures["seconds"]
    return {
        "operator_cpu_percent": round(100 * figures["operator_cpu_s"] / seconds, 2),
        "api_writes_per_s": round(figures["api_writes"] / seconds, 2),
    }


def _writes(plane: ControlPlane) -> float:
    """The writing requests that the API server has answered so far, those of its controllers too."""
    return sum(float(value) for value in _WRITES.findall(plane.kubectl("get", "--raw", "/metrics")))
