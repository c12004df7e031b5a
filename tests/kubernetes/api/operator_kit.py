"""The operator as a process of its own, to be killed, doubled and cut off, and what a cluster is made of beside it."""

import asyncio
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from daybook.client.client import Client
from daybook.client.connecting import connect
from tests.cluster.control_plane import ControlPlane
from tests.fixtures.forked import Forked, zygote
from tests.unit.bookie.server_kit import eventually
from tests.unit.bookie.service.process_kit import BookieProcess

T = TypeVar("T")

PATIENCE_S: Final = 180.0
"""For anything that is waited for: on a machine that does much else, one step of many takes minutes."""
KILLED: Final = -signal.SIGKILL

FAST: Final = {
    "LEASE_DURATION_MS": "15000",
    "LEASE_RENEW_MS": "300",
    "RESYNC_MS": "2000",
    "RECOVERY_LOOK_MS": "300",
    "NEEDLESS_JOB_MS": "500",
    "FULL_AUDIT_PAUSE_MS": "300",
    "FINALIZER_BOUND_MS": "2000",
    "ZOOKEEPER_TIMEOUT_MS": "1000",
    "LOG_FORMAT": "json",
}
SESSION_MS: Final = 9_000
"""As long as the server grants: on a machine that does much else, a pause is no end."""
AUDITING: Final = {"AUDIT_INTERVAL_MS": "1000", "OPEN_GRACE_MS": "2000"}


@dataclass(frozen=True, slots=True)
class Noted:
    """An effect: its class, all of it as text, and whether the operator lived on to carry it out."""

    kind: str
    effect: str
    done: bool


class OperatorProcess:
    """`daybook-operator run` for one namespace; `start` it as often as it was killed."""

    def __init__(
        self, plane: ControlPlane, namespace: str, directory: Path, zookeeper: str, **settings: str
    ) -> None:
        """Its files are under `directory`; `settings` are those of DAYBOOK_OPERATOR_*."""
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "operator.log"
        self._ready = directory / "ready.json"
        self._notes = directory / "effects"
        values = {
            "KUBECONFIG": str(plane.kubeconfig),
            "NAMESPACES": namespace,
            "LEASE_NAMESPACE": namespace,
            "ZOOKEEPER": zookeeper,
            "BOOKIE_IMAGE": "local/bookie:1",
            "READY_FILE": str(self._ready),
            "IDENTITY": "pod-0",  # a pod whose container is started again: it need not wait for its own Lease
            **FAST,
            **settings,
        }
        self._environment = {
            **os.environ,
            **{f"DAYBOOK_OPERATOR_{name}": value for name, value in values.items()},
            **{f"DAYBOOK_AUTORECOVERY_{name}": value for name, value in AUDITING.items()},
            "DAYBOOK_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        }
        self.process: Forked | None = None

    def start(self, entry: str = "daybook_operator", **environment: str) -> None:
        """Start it; `entry` is the module that is run."""
        self._ready.unlink(missing_ok=True)
        self.log.touch()
        self.process = zygote().fork(entry, ["run"], {**self._environment, **environment}, self.log)

    def start_dying(self, before: int, *, about: str = "", steps: bool = False) -> None:
        """Start one that is SIGKILLed before its n-th effect; see `dying_operator`. `effects` tells what it did."""
        self._notes.write_text("", encoding="utf-8")
        self.start(
            "tests.kubernetes.api.dying_operator",
            DAYBOOK_TEST_KILL_BEFORE=str(before),
            DAYBOOK_TEST_EFFECTS=str(self._notes),
            DAYBOOK_TEST_ABOUT=about,
            DAYBOOK_TEST_STEPS=str(int(steps)),
        )

    def effects(self) -> list[Noted]:
        """What it was about to do, in order, since it was started to die."""
        return [Noted(**json.loads(line)) for line in self._notes.read_text(encoding="utf-8").splitlines()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait; its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)
        return self.process.wait(PATIENCE_S)

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def probe(self, path: str) -> int:
        """The status of /healthz or /readyz; 0 while nobody listens."""
        return self._fetch("health_address", path)[0]

    def metric(self, line: str) -> float:
        """The value of a sample, like `daybook_operator_leading`; 0 where there is none."""
        for each in self._fetch("metrics_address", "/metrics")[1].splitlines():
            name, _, value = each.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0

    def leads(self) -> bool:
        """Whether it holds the Lease."""
        return self.metric("daybook_operator_leading") == 1

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def _fetch(self, which: str, path: str) -> tuple[int, str]:
        if not self._ready.exists() or not (text := self._ready.read_text(encoding="utf-8")):
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://{json.loads(text)[which]}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def another_operator(
    plane: ControlPlane, namespace: str, directory: Path, zookeeper: str, **settings: str
) -> OperatorProcess:
    """One that is not started, and whose files are in a folder of its own below `directory`."""
    number = 1 + sum(1 for _ in directory.glob("operator-*"))
    return OperatorProcess(plane, namespace, directory / f"operator-{number}", zookeeper, **settings)


def until(condition: Callable[[], bool], operator: OperatorProcess | None = None, what: str = "") -> None:
    """Wait until `condition` holds, for a bounded time."""
    if not eventually(condition, PATIENCE_S):
        log = operator.tail() if operator is not None else ""
        raise AssertionError(f"never: {what}\n{log}")


def until_dead_or(operator: OperatorProcess, is_done: Callable[[], bool], what: str) -> bool:
    """Wait until the operator was killed (False), or lives on and `is_done` (True)."""
    until(lambda: not operator.is_running() or is_done(), operator, what)
    if operator.is_running():
        return True
    assert operator.end() == KILLED, operator.tail()
    return False


def die_before_every_effect(
    make_operator: Callable[[], OperatorProcess],
    names: list[str],
    about: Callable[[str], str],
    begin: Callable[[str], object],
    is_done: Callable[[str], bool],
) -> list[str]:
    """For each resource an operator that dies one effect later than the one before; the effects of the whole plan.

    What an operator leaves half done the next ones find and finish beside their own.
    """
    for number, name in enumerate(names, 1):
        begin(name)
        operator = make_operator()
        operator.start_dying(number, about=about(name))
        survived = until_dead_or(operator, lambda name=name: is_done(name), f"{name} is done")  # type: ignore[misc] # bound
        effects = [each.kind for each in operator.effects()]
        if survived:
            begun = names[:number]
            until(lambda: all(map(is_done, begun)), operator, "what was left half done is finished")  # noqa: B023 - at once
            assert operator.end() == 0
            return effects
        assert len(effects) == number
    raise AssertionError(f"{len(names)} resources were not enough: {effects}")


def bookies(
    directory: Path, zookeeper: str, cluster: str, namespace: str, number: int = 3, pool: str = "bk"
) -> list[BookieProcess]:
    """Bookies of a pool as its pods would run them, in racks of their own; started, not awaited."""
    made = [
        BookieProcess(
            directory / f"{pool}-{ordinal}",
            zookeeper,
            cluster=cluster,
            bookie_id=f"{namespace}.{pool}-{ordinal}",
            rack=f"rack-{ordinal}",
            zone=f"zone-{ordinal}",
            node=f"node-{ordinal}",
            session_timeout_ms=SESSION_MS,
        )
        for ordinal in range(number)
    ]
    for bookie in made:
        bookie.spawn()
    return made


def with_client(zookeeper: str, cluster: str, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run `work` with a client of the cluster."""

    async def run() -> T:
        async with connect(zookeeper, cluster=cluster) as client:
            return await work(client)

    return asyncio.run(run())


def pool(name: str, zookeeper: str, cluster: str, *, is_paused: bool = False, **spec: Any) -> dict[str, Any]:
    """A BookiePool; a paused one is left alone, so that a test can play its bookies."""
    annotations = {"daybook.dev/pause": "true"} if is_paused else {}
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "BookiePool",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "image": "local/bookie:1",
            "metadata": {"zookeeper": zookeeper, "cluster": cluster},
            "storage": {"store": {"size": "1Gi"}},
            **spec,
        },
    }


def ledger(name: str, **spec: Any) -> dict[str, Any]:
    """A Ledger of pool bk."""
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Ledger",
        "metadata": {"name": name},
        "spec": {"poolRef": {"name": "bk"}, **spec},
    }


def condition(resource: dict[str, Any], type_: str) -> dict[str, Any]:
    """One condition of its status; {} while it is not said."""
    found = (resource.get("status") or {}).get("conditions", ())
    return next((each for each in found if each["type"] == type_), {})


def topic(name: str, namespace: str, *, adopts: bool = False, **spec: Any) -> dict[str, Any]:
    """A Topic of pool bk, in Pulsar's namespace public/`namespace`."""
    annotations = {"daybook.dev/adopt": "true"} if adopts else {}
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"poolRef": {"name": "bk"}, "topicNamespace": namespace, **spec},
    }
