"""The steps of `make e2e`, in order. Each ends when everything is as it should be again, and says what it saw."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.kubernetes.e2e.broker_steps import (
    install_brokers,
    kill_owner,
    roll_brokers,
    scale_brokers,
)
from tests.kubernetes.e2e.client_steps import outside_client, plugin
from tests.kubernetes.e2e.fault_steps import (
    cut_from_clients,
    cut_from_zookeeper,
    drain_node,
    kill_zookeeper,
    roll_zookeeper,
    stop_leader_node,
)
from tests.kubernetes.e2e.job_steps import spark_jobs
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.topic_steps import topic_resources
from tests.kubernetes.e2e.tutorial_step import type_tutorial
from tests.kubernetes.e2e.world import NAMESPACE, POOL, RELEASE, NotYet, Object, World, now
from tests.kubernetes.images.build import image_name
from tests.paths import ROOT

READY_S: Final = 300.0
SETTLE_S: Final = 600.0
LOST_AFTER_S: Final = 15
"""How long a bookie of the pool must be away to be lost; short, so that a run is."""
BOOKIES: Final = 5
NAMED_MIN: Final = 2
"""Ledgers on a bookie that is to be drained."""

VALUES: Final[Object] = {
    "image": {"pullPolicy": "IfNotPresent"},
    "zookeeper": {
        "heapMb": 128,
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "512Mi"}},
    },
    "broker": {
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "768Mi"}},
        "settings": {"retention_ms": "-1", "retention_bytes": "-1", "cursor_persist_ms": "200"},
    },
    "operator": {
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "512Mi"}},
        "env": [
            {"name": "DAYBOOK_OPERATOR_FULL_AUDIT_PAUSE_MS", "value": "5000"},
            {"name": "DAYBOOK_OPERATOR_RESYNC_MS", "value": "20000"},
            {"name": "DAYBOOK_AUTORECOVERY_AUDIT_INTERVAL_MS", "value": "5000"},
            {"name": "DAYBOOK_AUTORECOVERY_OPEN_GRACE_MS", "value": "5000"},
        ],
    },
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that is done to the cluster, and what must hold afterwards. `act` returns what it saw.

    `under_load`: the writer and the checker run meanwhile.
    """

    name: str
    what: str
    act: Callable[[World], str]
    under_load: bool = True


def tutorial(world: World) -> str:
    """docs/tutorial.md on an empty cluster, which is empty again afterwards."""
    _volumes(world)
    return type_tutorial(world, _values(world))


def install(world: World) -> str:
    """The chart in a namespace that enforces restricted pod security: two operators, three ZooKeeper servers."""
    _volumes(world)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    world.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(head))
    chart = str(ROOT / "charts" / "daybook")
    words = ("-n", NAMESPACE, "-f", str(_values(world)), "--wait", "--timeout", "10m")
    with world.stage("install"):
        world.helm("install", RELEASE, chart, *words)
    zones = {world.node_of(f"{RELEASE}-zookeeper-{n}") for n in range(3)}
    if len(zones) != 3:
        raise StepError(f"ZooKeeper's servers stand in {len(zones)} zones: {zones}")
    world.kubectl("rollout", "status", f"deployment/{RELEASE}-operator", "--timeout=300s")
    code = world.check_code(f"deployment/{RELEASE}-operator", "daybook", "daybook_operator")
    return f"2 operators ({code}), ZooKeeper in 3 zones"


def _volumes(world: World) -> None:
    world.cluster.create_volumes(12)
    default = "storageclass.kubernetes.io/is-default-class=true"
    world.kubectl("annotate", "storageclass", "local", "--overwrite", default)


def _values(world: World) -> Path:
    """The file of the chart's values for the images of this tree."""
    values = world.cluster.directory / "values.yaml"
    values.write_text(yaml.safe_dump({**VALUES, "image": {**VALUES["image"], "tag": world.tags[0]}}))
    return values


def quickstart(world: World) -> str:
    """examples/quickstart.yaml as it is: three bookies over the zones, and a ledger."""
    text = (ROOT / "examples" / "quickstart.yaml").read_text(encoding="utf-8")
    with world.stage("pool"):
        world.kubectl("apply", "-f", "-", stdin=text)
        patch = f'{{"spec":{{"recovery":{{"lostBookieDelaySeconds":{LOST_AFTER_S}}}}}}}'
        world.kubectl("patch", "bookiepool", POOL, "--type=merge", "-p", patch)
        world.kubectl("wait", "--for=condition=Ready", f"bookiepool/{POOL}", f"--timeout={READY_S:.0f}s")
        world.kubectl("wait", "--for=condition=Ready", "ledger/first", f"--timeout={READY_S:.0f}s")
    code = world.check_code(f"{POOL}-0", "daybook", "daybook_bookie")
    racks = world.pool()["status"]["racks"]
    if len(racks) != 3:
        raise StepError(f"three bookies stand in racks {racks}")
    return f"racks {', '.join(racks)} ({code})"


def helm_test(world: World) -> str:
    """`helm test` writes, reads and verifies."""
    output = world.helm("test", RELEASE, "-n", NAMESPACE, "--logs", "--timeout", "5m")
    if "all as they were written" not in output:
        raise StepError(f"helm test said:\n{output}")
    if world.topics is not None and "consumed the 1000 messages" not in output:
        raise StepError(f"helm test said:\n{output}")
    return "1,000 entries read back" + (", 1,000 messages consumed" if world.topics else "")


def five(world: World) -> str:
    """Three bookies become five."""
    began = now()
    world.kubectl("scale", "bookiepool", POOL, f"--replicas={BOOKIES}")
    world.settled(began, BOOKIES, SETTLE_S, harmed=began)
    return f"{BOOKIES} bookies in {world.pool()['status']['rackCount']} racks"


def kill_pod(world: World) -> str:
    """A bookie's pod dies at once."""
    began = now()
    world.kubectl("delete", "pod", f"{POOL}-1", "--force", "--grace-period=0")
    world.settled(began, BOOKIES, SETTLE_S, harmed=began)
    return f"{POOL}-1 is back"


def lose_disk(world: World) -> str:
    """Everything that a bookie stored is gone: the operator authorises the empty disk, Jobs give back what it owes."""
    pod = f"{POOL}-2"
    folders = world.volumes_of(pod)
    owed = world.naming(pod)
    began = now()
    world.freeze(
        pod
    )  # a bookie that still runs would put files that it makes ahead into the empty directories
    for folder in folders:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    world.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
    world.settled(began, BOOKIES, SETTLE_S, harmed=began, owed=owed)
    events = world.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}")
    if not any(any(folder.iterdir()) for folder in folders):
        raise StepError(f"the volumes of {pod} are still empty")
    reported = ", reported" if "Disk" in events or "Replac" in events else ""
    return f"replaced{reported}; it owed {len(owed)} ledgers"


def stop_node(world: World) -> str:
    """A node loses power for longer than a bookie may be away, and comes back.

    No two replicas may share a node, so of three nodes none is left to copy to: what is missing is reported, and given back
    when the node is.
    """
    return _without(world, "node-c", world.cluster.stop, world.cluster.start)


def cut_network(world: World) -> str:
    """A node's network is cut while its processes go on, and comes back."""
    return _without(world, "node-b", world.cluster.cut, world.cluster.join)


def _without(world: World, node: str, harm: Callable[[str], None], repair: Callable[[str], None]) -> str:
    """Harm a node until it is not ready and its bookies are lost, and repair it."""
    gone = world.pods_on(node)
    harmed = now()
    with world.harmed(node, harm, repair):
        world.until(
            f"{node} and its bookies are missed",
            lambda: (
                (_states(world, gone) <= {"Lost"} and not world.is_ready(node))
                or NotYet((_states(world, gone), world.is_ready(node)))
            ),
            READY_S,
        )
        began = now()
    world.until(f"{node} is ready", lambda: world.is_ready(node), READY_S)
    world.settled(began, BOOKIES, SETTLE_S, harmed=harmed)
    return f"{', '.join(gone)} lost for a while"


def scale_up(world: World) -> str:
    """A sixth bookie joins. No data moves; ledgers that begin from now on name it, so that the drain has what to do."""
    began = now()
    world.kubectl("scale", "bookiepool", POOL, "--replicas=6")
    world.settled(began, 6, SETTLE_S, harmed=began)
    sixth = f"{POOL}-5"
    world.until(f"ledgers name {sixth}", lambda: len(world.naming(sixth)) >= NAMED_MIN, SETTLE_S)
    return f"6 bookies; the new one in {len(world.naming(sixth))} new ledgers"


def drain(world: World) -> str:
    """`kubectl daybook drain` takes the sixth out again: nothing names it any more, and its cookie is gone."""
    owed = world.naming(f"{POOL}-5")
    began = now()
    output = world.daybook("drain", POOL, "--to", "5", "--yes")
    world.settled(began, BOOKIES, SETTLE_S, harmed=began, owed=owed)
    if world.get("pods", "-l", f"statefulset.kubernetes.io/pod-name={POOL}-5")["items"]:
        raise StepError(f"{POOL}-5 still runs")
    stages = [
        stage
        for stage in ("ReadOnly", "Replicating", "Verifying", "CookieRemoved", "Lowered")
        if stage in output
    ]
    return f"{', '.join(stages)}; {len(owed)} ledgers named it"


def roll(world: World) -> str:
    """A new image, one bookie after the other, each gated on full replication."""
    began = now()
    image = image_name("bookie", world.tags[1])
    patch = f'{{"spec":{{"image":"{image}"}}}}'
    world.kubectl("patch", "bookiepool", POOL, "--type=merge", "-p", patch)
    world.until(
        "every bookie runs the new image",
        lambda: (
            world.pool()["status"].get("currentImage") == image
            or NotYet(world.pool()["status"].get("rollout"))
        ),
        2 * SETTLE_S,
    )
    world.settled(began, BOOKIES, SETTLE_S, harmed=began)
    return f"{image} ({world.check_code(f'{POOL}-0', 'daybook', 'daybook_bookie')})"


def _states(world: World, pods: list[str]) -> set[str]:
    bookies = world.pool()["status"]["bookies"]
    return {
        bookie["state"]
        for bookie in bookies
        if bookie.get("pod") in pods or bookie["id"].split(".")[1] in pods
    }


STEPS: Final = (
    Step("tutorial", "docs/tutorial.md", tutorial, under_load=False),
    Step("install", "helm install", install, under_load=False),
    Step("quickstart", "quickstart.yaml", quickstart, under_load=False),
    Step("brokers", "add brokers", install_brokers, under_load=False),
    Step("test", "helm test", helm_test, under_load=False),
    Step("five", "scale 3 → 5", five),
    Step("kill", "kill a bookie's pod", kill_pod),
    Step("disk", "lose a bookie's disk", lose_disk),
    Step("node", "stop a node, start it", stop_node),
    Step("cut", "cut a node's network", cut_network),
    Step("up", "scale 5 → 6", scale_up),
    Step("drain", "drain 6 → 5", drain),
    Step("roll", "roll the image", roll),
    Step("owner", "kill a topic's owner", kill_owner),
    Step("brokers-roll", "roll the brokers", roll_brokers),
    Step("brokers-scale", "scale brokers 2 → 3 → 1 → 2", scale_brokers),
    Step("broker-zookeeper", "cut a broker from ZooKeeper", cut_from_zookeeper),
    Step("broker-clients", "cut a broker from its clients", cut_from_clients),
    Step("zookeeper-roll", "restart ZooKeeper's servers one by one", roll_zookeeper),
    Step("zookeeper-kill", "kill ZooKeeper's servers at once", kill_zookeeper),
    Step("leader", "stop the node of leader, broker, bookie", stop_leader_node),
    Step("node-drain", "drain a node with a broker", drain_node),
    Step("plugin", "kubectl daybook topic", plugin),
    Step("outside", "a client outside the cluster", outside_client),
    Step("topics", "Topics with Retain and Delete", topic_resources),
    Step("spark", "compaction, offload, retention", spark_jobs),
)
