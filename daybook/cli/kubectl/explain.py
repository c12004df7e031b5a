"""Why something is not as it should be: from the resource down to pods, volumes, nodes, bookies and ledgers.

Each finding has its evidence, quoted from where it was read, and the next command. Whoever is woken at night reads from
the top down, and the deepest finding is the one to act on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.world import (
    World,
    bookies_of,
    condition,
    is_paused,
    is_ready,
    is_stale,
    place,
    rack_of,
    status_of,
    title,
    wrong_conditions,
)

EVIDENCE_MAX: Final = 4
LEDGERS_MAX: Final = 10
FINE_STATES: Final = ("Writable", "Stopped", "Unknown")
"""Nothing is known against these; while ZooKeeper is away, which makes all of them unknown, the pool says so."""
AWAY_STATES: Final = ("Away", "Lost", "Starting", "DiskLost")
PULL_REASONS: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, what shows it, what to do next, and what lies beneath it."""

    subject: str
    what: str
    evidence: tuple[str, ...] = ()
    next_command: str = ""
    causes: tuple["Finding", ...] = ()

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "subject": self.subject,
            "what": self.what,
            "evidence": list(self.evidence),
            "nextCommand": self.next_command,
            "causes": [cause.record() for cause in self.causes],
        }


def explain(world: World, name: str = "") -> list[Finding]:
    """What is wrong with all pools and ledgers, or with those of one name; empty if nothing is."""
    found: list[Finding] = []
    explained = set()
    for pool in world.pools:
        of_pool = explain_pool(world, pool)
        if of_pool:
            explained.add(place(pool))
        if name in ("", place(pool)[1]):
            found += of_pool
    for ledger in world.ledgers:
        namespace, ledger_name = place(ledger)
        of_explained_pool = (namespace, ledger["spec"]["poolRef"]["name"]) in explained
        if name == ledger_name or (not name and not of_explained_pool):  # a pool's findings cover its ledgers
            found += explain_ledger(world, ledger)
    return found


def explain_pool(world: World, pool: Object) -> list[Finding]:
    """What is wrong with a pool."""
    namespace, name = place(pool)
    next_step = f"kubectl describe bookiepool -n {namespace} {name}"
    if is_paused(pool):
        unpause = f"kubectl annotate bookiepool -n {namespace} {name} daybook.dev/pause-"
        return [Finding(title(pool), "it is paused: the operator leaves it alone", (), unpause)]
    wrong = wrong_conditions(pool)
    stale = is_stale(pool) or not status_of(pool)
    if not wrong and not stale:
        return []
    causes = [
        *(_operator(world) if stale else ()),
        *(finding for bookie in bookies_of(pool) for finding in _bookie(world, pool, bookie)),
        *_missing_pods(world, pool),
        *_progress(pool),
        *_ledgers(pool),
    ]
    what = ", ".join(f"{each['type']} is {each['status']} ({each['reason']})" for each in wrong)
    if stale:
        unseen = "the operator has not reconciled its last change yet"
        what = f"{what}; {unseen}" if what else unseen
    evidence = tuple(each["message"] for each in wrong if each.get("message"))
    return [Finding(title(pool), what, evidence[:EVIDENCE_MAX], next_step, tuple(causes))]


def explain_ledger(world: World, ledger: Object) -> list[Finding]:
    """What is wrong with a Ledger resource."""
    namespace, name = place(ledger)
    wrong = wrong_conditions(ledger)
    stale = is_stale(ledger) or not status_of(ledger)
    if not wrong and not stale and not _is_degraded(ledger):
        return []
    pool_name = ledger["spec"]["poolRef"]["name"]
    pool = next((each for each in world.pools if place(each) == (namespace, pool_name)), None)
    causes: list[Finding] = []
    if pool is None:
        command = f"kubectl get bookiepools -n {namespace}"
        causes.append(Finding(f"BookiePool {namespace}/{pool_name}", "it does not exist", (), command))
    else:
        causes += explain_pool(world, pool)
        causes += _operator(world) if stale and not causes else ()
    parts = [f"{each['type']} is {each['status']} ({each['reason']})" for each in wrong]
    if stale:
        parts.append("the operator has not reconciled its last change yet")
    evidence = [each["message"] for each in wrong if each.get("message")]
    for first, missing in _missing(ledger):
        parts.append(f"entries from {first} on lack a replica on {', '.join(missing)}")
    command = f"kubectl daybook ledger map -n {namespace} {name}"
    return [Finding(title(ledger), "; ".join(parts), tuple(evidence[:EVIDENCE_MAX]), command, tuple(causes))]


# -- what lies beneath ---------------------------------------------------------------------------------------------


def _operator(world: World) -> list[Finding]:
    """Whether an operator reconciles at all."""
    pods = world.component("operator")
    if "Pod" in world.unread:
        return [Finding("operator", "its pods cannot be read", (world.unread["Pod"],))]
    if not pods:
        return [
            Finding(
                "operator",
                "no operator runs",
                (),
                "kubectl get deployments -A -l app.kubernetes.io/name=daybook",
            )
        ]
    if any(is_ready(pod) for pod in pods):
        namespace, _ = place(pods[0])
        return [
            Finding(
                "operator",
                "it runs; it may be about to reconcile, or fail to",
                (),
                f"kubectl logs -n {namespace} -l app.kubernetes.io/component=operator --tail 100",
            )
        ]
    return [finding for pod in pods for finding in explain_pod(world, pod)]


def _bookie(world: World, pool: Object, bookie: dict[str, Any]) -> list[Finding]:
    """A bookie that does not take writes; its pod, and the entries that miss it."""
    if bookie.get("state") in FINE_STATES:
        return []
    namespace, name = place(pool)
    pod_name = bookie.get("pod") or str(bookie["id"]).partition(".")[2]
    pod = world.pod(namespace, pod_name)
    causes = [] if pod is None else explain_pod(world, pod)
    since = f" since {bookie['since']}" if bookie.get("since") else ""
    what = f"it is {bookie.get('state', 'unknown')}{since}"
    evidence = [bookie["message"]] if bookie.get("message") else []
    evidence += [f"it stands in {rack_of(bookie)} on node {bookie['node']}"] if bookie.get("node") else []
    missed = [
        f"{title(ledger)} lacks it for entries from {first} on"
        for ledger in world.ledgers_of(pool)
        for first, missing in _missing(ledger)
        if bookie["id"] in missing
    ]
    return [
        Finding(
            f"bookie {bookie['id']}",
            what,
            (*evidence, *missed[:LEDGERS_MAX]),
            _next_for_bookie(bookie, namespace, name, pod_name, pod),
            tuple(causes),
        )
    ]


def _next_for_bookie(
    bookie: dict[str, Any], namespace: str, pool: str, pod_name: str, pod: Object | None
) -> str:
    match bookie.get("state"):
        case "Draining":
            return f"kubectl daybook drain -n {namespace} {pool} --watch"
        case "DiskLost":
            return f"kubectl get bookiepool -n {namespace} {pool} -o jsonpath='{{.spec.lostDisk.policy}}'"
        case "Lost":
            return f"kubectl daybook recover watch -n {namespace} {pool}"
        case "ReadOnly":
            return f"kubectl exec -n {namespace} {pod_name} -- df -h /var/lib/daybook/journal /var/lib/daybook/store"
    if pod is None:
        return f"kubectl get events -n {namespace} --field-selector involvedObject.name={pool}"
    return f"kubectl logs -n {namespace} {pod_name} --tail 50"


def _missing_pods(world: World, pool: Object) -> list[Finding]:
    """Bookies that should be and of which the status knows nothing, because there is no pod."""
    namespace, name = place(pool)
    if pool["spec"].get("hibernate") or "Pod" in world.unread:
        return []
    known = {bookie.get("pod") or str(bookie["id"]).partition(".")[2] for bookie in bookies_of(pool)}
    wanted = [f"{name}-{ordinal}" for ordinal in range(pool["spec"].get("replicas", 0))]
    missing = [pod for pod in wanted if pod not in known]
    found = []
    for pod_name in missing:
        pod = world.pod(namespace, pod_name)
        if pod is not None:
            found += explain_pod(world, pod)
    absent = [pod_name for pod_name in missing if world.pod(namespace, pod_name) is None]
    if absent:
        command = f"kubectl describe statefulset -n {namespace} {name}"
        found.append(Finding(f"pods {', '.join(absent)}", "they do not exist", (), command))
    return found


def _progress(pool: Object) -> Iterator[Finding]:
    """What a roll or a drain that is under way waits for."""
    namespace, name = place(pool)
    for what, command in (
        ("rollout", f"kubectl describe bookiepool -n {namespace} {name}"),
        ("drain", f"kubectl daybook drain -n {namespace} {name} --watch"),
    ):
        state = status_of(pool).get(what)
        if state and state.get("message"):
            left = f", {state['ledgersRemaining']} ledgers to go" if state.get("ledgersRemaining") else ""
            progress = f"{what} of {state.get('bookie', 'the bookies')} is at {state.get('stage', 'its start')}{left}"
            yield Finding(title(pool), progress, (state["message"],), command)


def _ledgers(pool: Object) -> list[Finding]:
    """Entries that no bookie has any more, and repair that makes no progress."""
    namespace, name = place(pool)
    recovery = status_of(pool).get("recovery") or {}
    found = []
    if lost := recovery.get("unrecoverableLedgers"):
        found.append(
            Finding(
                f"ledgers {', '.join(map(str, lost[:LEDGERS_MAX]))}",
                f"{recovery['unrecoverable']} have an entry that no bookie has any more: disks that had it are lost",
                (),
                f"what is left can be read; to close an open one: daybook ledger recover {lost[0]} --accept-loss; to give one up: "
                f"daybook ledger delete {lost[0]} --without-recovery",
            )
        )
    if awaited := recovery.get("unreachableLedgers"):
        away = [bookie["id"] for bookie in bookies_of(pool) if bookie.get("state") in AWAY_STATES]
        found.append(
            Finding(
                f"ledgers {', '.join(map(str, awaited[:LEDGERS_MAX]))}",
                f"{recovery['unreachable']} have an entry that no bookie returned at the last repair; nothing is "
                "known to be lost",
                tuple(f"bookie {each} is away" for each in away),
                f"restore the bookies that are away: kubectl daybook bookies -n {namespace} {name}",
            )
        )
    waiting = recovery.get("underReplicated", 0)
    if waiting and not recovery.get("activeJobs") and condition(pool, "FullyReplicated")["status"] == "False":
        found.append(
            Finding(
                title(pool),
                f"{waiting} ledgers lack a replica, and no recovery Job runs",
                tuple(_why_no_job(pool)),
                f"kubectl daybook recover plan -n {namespace} {name}",
            )
        )
    return found


def _why_no_job(pool: Object) -> Iterator[str]:
    if (pool["spec"].get("recovery") or {}).get("paused"):
        yield "spec.recovery.paused is true"
    delay = (pool["spec"].get("recovery") or {}).get("lostBookieDelaySeconds")
    if delay and any(bookie.get("state") == "Away" for bookie in bookies_of(pool)):
        yield f"a bookie that is away counts as lost after {delay} s"


def explain_pod(world: World, pod: Object) -> list[Finding]:
    """What keeps a pod from being ready."""
    if is_ready(pod):
        return []
    namespace, name = place(pod)
    status = status_of(pod)
    describe = f"kubectl describe pod -n {namespace} {name}"
    what, evidence, command = f"it is {status.get('phase', 'unknown')}", [], describe
    for each in status.get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            what, evidence = "no node takes it", [each.get("message", "")]
    for container in status.get("containerStatuses", ()):
        problem = _container(container)
        if problem:
            what, more = problem
            evidence += more
            if "pulled" not in what:
                previous = " --previous" if container.get("restartCount") else ""
                command = f"kubectl logs -n {namespace} {name}{previous} --tail 50"
    evidence += world.events_of(pod)[:2]
    causes = [*_claims(world, pod), *_node(world, pod)]
    return [
        Finding(
            title(pod), what, tuple(each for each in evidence[:EVIDENCE_MAX] if each), command, tuple(causes)
        )
    ]


def _container(container: dict[str, Any]) -> tuple[str, list[str]] | None:
    """What a container does instead of serving, and its last message."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    if reason in PULL_REASONS:
        return f"its image {container.get('image', '')} cannot be pulled", [waiting.get("message", reason)]
    ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get(
        "terminated"
    )
    if ended:
        why = (
            "was killed: it needs more memory than its limit"
            if ended.get("reason") == "OOMKilled"
            else "ended"
        )
        what = f"its container {why}, with exit code {ended.get('exitCode')}, {container.get('restartCount', 0)} restarts"
        return what, [line for line in (ended.get("message") or "").strip().splitlines()[-2:] if line]
    if reason and reason not in ("ContainerCreating", "PodInitializing"):
        return f"its container waits: {reason}", [waiting.get("message", "")]
    if not container.get("ready"):
        return "its container runs and is not ready", []
    return None


def _claims(world: World, pod: Object) -> Iterator[Finding]:
    namespace, _ = place(pod)
    for volume in pod["spec"].get("volumes", ()):
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if not name or "PersistentVolumeClaim" in world.unread:
            continue
        claim = world.claim(namespace, name)
        command = f"kubectl describe pvc -n {namespace} {name}"
        if claim is None:
            yield Finding(f"PersistentVolumeClaim {namespace}/{name}", "it does not exist", (), command)
        elif status_of(claim).get("phase") != "Bound":
            phase = status_of(claim).get("phase", "Pending")
            wanted = claim["spec"].get("storageClassName", "the default class")
            evidence = (f"it asks for {wanted}", *world.events_of(claim)[:2])
            yield Finding(title(claim), f"it is {phase}: it has no volume", evidence, command)


def _node(world: World, pod: Object) -> Iterator[Finding]:
    name = pod["spec"].get("nodeName")
    node = world.node(name) if name and "Node" not in world.unread else None
    if node is None:
        if name and "Node" not in world.unread:
            yield Finding(f"Node {name}", "it is gone", (), "kubectl get nodes")
        return
    ready = condition(node, "Ready")
    if ready["status"] != "True":
        evidence = (ready["message"],) if ready.get("message") else ()
        yield Finding(title(node), f"Ready is {ready['status']}", evidence, f"kubectl describe node {name}")


def _missing(ledger: Object) -> list[tuple[int, Sequence[str]]]:
    """First entry, and the bookies that lack what follows."""
    return [
        (fragment["firstEntry"], fragment["missing"])
        for fragment in status_of(ledger).get("fragments", ())
        if fragment.get("missing")
    ]


def _is_degraded(ledger: Object) -> bool:
    return bool(wrong_conditions(ledger) or _missing(ledger) or status_of(ledger).get("underReplicated"))


def deepest(findings: Iterable[Finding]) -> list[Finding]:
    """The findings beneath which there is no other: where to begin."""
    ends: list[Finding] = []
    for finding in findings:
        ends += deepest(finding.causes) if finding.causes else [finding]
    return ends
