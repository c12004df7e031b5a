"""What the steps of `make e2e` use: the cluster, Helm, the workload, and ways to wait until something is so."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from tests.cluster import cgroups
from tests.cluster.binaries import binaries
from tests.cluster.control_plane import KubectlError
from tests.cluster.node_files import DOMAIN, GATEWAY
from tests.cluster.nodes import NodeCluster
from tests.kubernetes.e2e.code import IN_POD
from tests.kubernetes.e2e.repairs import Repairs, StepError
from tests.paths import ROOT

Object: TypeAlias = dict[str, Any]

NAMESPACE: Final = "data"
RELEASE: Final = "daybook"
POOL: Final = "bk"
BROKER: Final = f"{RELEASE}-broker"
SERVICE_URL: Final = f"pulsar://{BROKER}.{NAMESPACE}.svc:6650"
NODES: Final = ("node-a:zone-a", "node-b:zone-b", "node-c:zone-c")
POLL_S: Final = 1.0
DIGEST_SHOWN: Final = 8
CODE_FILE: Final = "code.json"
"""In the cluster's directory: the digests of the code that its images were built from."""
ZOOKEEPER: Final = ",".join(
    f"{RELEASE}-zookeeper-{n}.{RELEASE}-zookeeper-servers.{NAMESPACE}.svc:2181" for n in range(3)
)


class Companion:
    """A process of ours in the cluster's network, with the cluster's names, that answers a line of JSON to each command."""

    def __init__(self, cluster: NodeCluster, module: str, *arguments: str) -> None:
        """Start it; returns once it says that it runs."""
        resolv = cluster.directory / "resolv.conf"
        resolv.write_text(f"nameserver {GATEWAY}\nsearch svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n")
        script = 'mount --make-rprivate / && mount --bind "$RESOLV" /etc/resolv.conf && exec "$@"'
        python = [sys.executable, "-m", f"tests.kubernetes.e2e.{module}", *arguments]
        self._name = module
        self.log = cluster.directory / f"{module}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                cluster.command("unshare", "--mount", "sh", "-euc", script, "sh", *python),
                env={**os.environ, "RESOLV": str(resolv)},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.greeting = self._answer()
        """What it said first."""

    def ask(self, command: str) -> Any:
        """Send a command; its answer. Raises StepError when the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._answer()

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """Of one step."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self.end()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _ended(self) -> StepError:
        return StepError(f"the process {self._name} ended:\n{self.log.read_text(errors='replace')[-3000:]}")


class World:
    """A cluster with Daybook in it."""

    def __init__(self, cluster: NodeCluster, tags: Sequence[str]) -> None:
        """`tags` of the images: the first is installed, the second is rolled out later."""
        self.cluster = cluster
        self.tags = tags
        self.workload: Companion | None = None
        """Writes and checks ledgers: workload.py."""
        self.topics: Companion | None = None
        """Publishes and consumes, once there are brokers: topics.py."""
        self.repairs = Repairs()
        self.by_jobs = ""
        """What recovery Jobs did in the step that goes on."""
        self.missed: list[str] = []
        """What took longer than is asked in the step that goes on."""
        self.stages: dict[str, float] = {}
        """Seconds that each stage took from `helm install` to the first message consumed."""

    def load(self) -> None:
        """Let somebody write and check from here on."""
        if self.workload is None:
            self.workload = Companion(self.cluster, "workload", ZOOKEEPER, RELEASE)
        if self.topics is None and self.kubectl("get", "statefulset", BROKER, "--ignore-not-found"):
            self.use_topics()  # of an earlier run: the steps of this one are a part of all

    def use_topics(self) -> None:
        """Let somebody publish and consume from here on."""
        self.topics = Companion(self.cluster, "topics", SERVICE_URL)

    def check(self) -> str:
        """Everything that was acknowledged to the writer, read back now. Raises StepError if anything is lost or changed."""
        if self.workload is None:
            return ""
        tally = self.workload.ask("check")
        if tally["lost"] or tally["changed"] or tally["unreadable"]:
            raise StepError(f"acknowledged entries are gone: {tally}; the log is {self.workload.log}")
        return f"{tally['acknowledged']:,} acknowledged, {tally['lost']} lost"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One of the stages up to the first message consumed."""
        began = time.monotonic()
        yield
        self.stages[name] = time.monotonic() - began

    def judged(self, what: str, seconds: float, asked_s: float) -> str:
        """What took how long, beside what is asked. A step that takes longer goes on, and the run fails in the end."""
        said = f"{what} {seconds:.1f} s (asked: {asked_s:.0f})"
        if seconds > asked_s:
            self.missed.append(said)
        return said

    def published(self) -> float:
        """Seconds until each topic has acknowledged a message that is published from now on. Raises StepError."""
        assert self.topics is not None
        found = self.topics.ask("publish")
        if found is None:
            raise StepError(f"a topic takes no messages; the log is {self.topics.log}")
        return float(found)

    def end(self) -> None:
        """End the processes of ours that are left."""
        for companion in (self.workload, self.topics):
            if companion is not None:
                companion.end()

    # Commands.

    def helm(self, *words: str) -> str:
        """Run Helm in the cluster's network. Raises StepError."""
        return self._run(str(binaries(("helm",))["helm"]), *words)

    def daybook(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """Run `kubectl daybook` in the cluster's network. Raises StepError at an exit code that is not among `codes`."""
        command = str(Path(sys.executable).parent / "kubectl-daybook")
        return self._run(command, *words, "-n", NAMESPACE, codes=codes)

    def daybook_json(self, *words: str, codes: Sequence[int] = (0,)) -> Any:
        """What `kubectl daybook … --json` prints. Raises StepError."""
        return json.loads(self.daybook(*words, "--json", codes=codes))

    def _run(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        done = subprocess.run(
            self.cluster.command(*words),
            env={**os.environ, **self.cluster.environment()},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in codes:
            raise StepError(f"`{' '.join(words[:6])}` failed:\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl("-n", NAMESPACE, *words, stdin=stdin)

    # Looks.

    def get(self, what: str, *flags: str) -> Object:
        """An object, or a list."""
        found: Object = json.loads(self.kubectl("get", what, "-o", "json", *flags))
        return found

    def pool(self) -> Object:
        """The pool."""
        return self.get(f"bookiepool/{POOL}")

    def node_of(self, pod: str) -> str:
        """The node that a pod runs on."""
        return str(self.get(f"pod/{pod}")["spec"]["nodeName"])

    def is_ready(self, node: str) -> bool:
        """Whether Kubernetes takes the node for ready."""
        found = {each["type"]: each["status"] for each in self.get(f"node/{node}")["status"]["conditions"]}
        return found.get("Ready") == "True"

    def pods_on(self, node: str) -> list[str]:
        """The bookies' pods on a node."""
        found = self.get("pods", "-l", f"daybook.dev/pool={POOL},app.kubernetes.io/component=bookie")
        return sorted(
            pod["metadata"]["name"] for pod in found["items"] if pod["spec"].get("nodeName") == node
        )

    def volumes_of(self, pod: str) -> list[Path]:
        """The directories of a bookie's volumes."""
        claims = [self.get(f"pvc/{role}-{pod}") for role in ("journal", "store")]
        return [self.cluster.volume_folder(claim["spec"]["volumeName"]) for claim in claims]

    def freeze(self, pod: str) -> None:
        """Stop the pod's processes where they are: until they are killed, they write nothing more."""
        self._signal(pod, signal.SIGSTOP)

    def kill(self, pod: str) -> None:
        """End the pod's processes with SIGKILL, which leaves them no time for anything; the kubelet starts them again."""
        self._signal(pod, signal.SIGKILL)

    def _signal(self, pod: str, number: signal.Signals) -> None:
        for pid in self._processes(pod):
            os.kill(pid, number)

    def _processes(self, pod: str) -> set[int]:
        node = self.cluster.nodes[self.node_of(pod)]
        found = cgroups.processes_of_pod(node.cgroup, self.get(f"pod/{pod}")["metadata"]["uid"])
        if not found:
            raise StepError(f"{pod} has no process on {node.name}")
        return found

    @contextmanager
    def without_port(self, pod: str, port: int) -> Iterator[None]:
        """Drop what the pod sends to this TCP port, or from it, and what comes from there; everything else of it goes on."""
        network = f"--net=/proc/{min(self._processes(pod))}/ns/net"

        def all_rules(act: str) -> None:
            for chain in ("INPUT", "OUTPUT"):
                for side in ("--sport", "--dport"):
                    rule = (chain, "-p", "tcp", side, str(port), "-j", "DROP")
                    self._run("nsenter", network, "iptables", act, *rule)

        all_rules("-A")
        try:
            yield
        finally:
            all_rules("-D")

    def restarts(self, pod: str) -> int:
        """How often the kubelet has started the pod's containers again."""
        found = self.get(f"pod/{pod}")
        return sum(each["restartCount"] for each in found["status"]["containerStatuses"])

    def pod_is_ready(self, pod: str) -> bool:
        """Whether the pod is ready."""
        found = self.get(f"pod/{pod}")["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in found)

    def note_jobs(self) -> None:
        """Remember recovery Jobs: they are deleted some time after they end."""
        self.repairs.note(self.get("jobs", "-l", "app.kubernetes.io/component=recovery")["items"])

    def naming(self, pod: str) -> list[int]:
        """The ledgers that name the pod's bookie, but for the one that is being written."""
        if self.workload is None:
            return []
        found: list[int] = self.workload.ask(f"naming {NAMESPACE}.{pod}")
        return found

    def check_code(self, pod: str, *packages: str) -> str:
        """The beginning of the digest of the code that the pod runs. Raises StepError unless the images were to be built from it."""
        known = self.cluster.directory / CODE_FILE
        wanted: dict[str, str] = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
        said: list[str] = []
        for package in packages:
            found = self.kubectl("exec", pod, "--", "python3", "-c", IN_POD, package).strip()
            if found != wanted.get(package, found):
                raise StepError(f"{pod} runs another {package} than this tree's: build the images anew")
            said.append(f"{package} {found[:DIGEST_SHOWN]}")
        return ", ".join(said)

    # Waits.

    def until(self, what: str, check: Callable[[], object], timeout_s: float) -> None:
        """Return once `check()` says something true. Raises StepError with what it said last."""
        deadline = time.monotonic() + timeout_s
        last: object = None
        while True:
            try:
                self.note_jobs()
                last = check()
                if last and not isinstance(last, NotYet):
                    return
            except (KubectlError, StepError, KeyError) as error:
                last = error
            if time.monotonic() > deadline:
                raise StepError(f"{what}: not so after {timeout_s:.0f} s; {self.last_words(last)}")
            time.sleep(POLL_S)

    def last_words(self, last: object) -> str:
        """What explains best why something was waited for in vain."""
        lines = [f"seen last: {last}"]
        for words in (("get", "pods", "-o", "wide"), ("get", "bookiepools", "-o", "wide"), ("get", "jobs")):
            try:
                lines.append(self.kubectl(*words))
            except KubectlError as error:
                lines.append(str(error))
        try:
            lines.append(self.daybook("explain"))
        except StepError as error:
            lines.append(str(error))
        return "\n".join(lines)

    def settled(
        self, since: datetime, bookies: int, timeout_s: float, *, harmed: datetime, owed: Sequence[int] = ()
    ) -> None:
        """Wait until all bookies serve and a full audit that began after `since` found every entry in its place.

        Recovery Jobs alone must have repaired what had to be repaired since `harmed`, and `owed` ledgers in any case.
        """

        def check() -> object:
            pool = self.pool()
            status = pool.get("status", {})
            audit = (status.get("recovery") or {}).get("lastFullAudit") or {}
            replicated = {each["type"]: each["status"] for each in status.get("conditions", ())}.get(
                "FullyReplicated"
            )
            facts = {
                "replicas": status.get("replicas"),
                "ready": status.get("readyReplicas"),
                "writable": status.get("writableReplicas"),
                "FullyReplicated": replicated,
                "jobs": (status.get("recovery") or {}).get("activeJobs"),
                "audit": audit,
            }
            serve = {"replicas": bookies, "ready": bookies, "writable": bookies}
            wanted = {**serve, "FullyReplicated": "True", "jobs": 0}
            fresh = audit.get("clean") and datetime.fromisoformat(audit["startedAt"]) >= since
            return bool(fresh and wanted.items() <= facts.items()) or NotYet(facts)

        self.until("fully replicated again", check, timeout_s)
        self.note_jobs()
        holders = self.workload.ask("holders") if self.workload is not None else {}
        self.by_jobs = self.repairs.account(harmed, owed, holders)

    @contextmanager
    def harmed(self, node: str, harm: Callable[[str], None], repair: Callable[[str], None]) -> Iterator[None]:
        """Do something to a node, and undo it whatever happens meanwhile."""
        harm(node)
        try:
            yield
        finally:
            repair(node)


class NotYet:
    """What was seen instead of what is waited for."""

    def __init__(self, seen: object) -> None:
        """Keep it for the error."""
        self._seen = seen

    def __repr__(self) -> str:
        """As it was seen."""
        return repr(self._seen)


def now() -> datetime:
    """The time in whole seconds, as Kubernetes writes it."""
    return datetime.now(UTC).replace(microsecond=0)
