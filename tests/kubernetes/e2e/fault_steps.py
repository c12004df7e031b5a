"""The steps of `make e2e` that harm brokers, and what brokers rest on: ZooKeeper, their clients' network, their node."""

from functools import partial
from typing import Final

from tests.cluster.control_plane import KubectlError
from tests.kubernetes.e2e.broker_steps import TAKE_OVER_S, longest_gap
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import BROKER, RELEASE, World, now

ZOOKEEPER: Final = f"{RELEASE}-zookeeper"
OPERATOR: Final = f"{RELEASE}-operator"
ZOOKEEPER_PORT: Final = 2181
BROKER_PORT: Final = 6650
SILENT_S: Final = 5.0
"""For how long a topic is to be without receipts before a cut ends."""
NODE_LOST_S: Final = 15.0
"""The aim for a topic whose owner's node is lost, with the operator's leader and a bookie."""
WAIT_S: Final = 300.0
TRIES: Final = 5


def cut_from_zookeeper(world: World) -> str:
    """The owner of a topic loses ZooKeeper alone: it is not ready, lets its clients go, and another broker serves them; nobody restarts it."""
    assert world.topics is not None
    pod = _owner(world)
    restarts = world.restarts(pod)
    world.topics.ask("gap")
    with world.without_port(pod, ZOOKEEPER_PORT):
        world.until(f"{pod} is not ready", lambda: not world.pod_is_ready(pod), WAIT_S)
        world.until("another broker serves the topic", lambda: _owner(world) != pod, WAIT_S)
        gap_s = longest_gap(world)
    world.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={WAIT_S:.0f}s")
    _not_restarted(world, pod, restarts)
    return f"{pod}; at most {gap_s:.1f} s without receipts"


def cut_from_clients(world: World) -> str:
    """The owner's clients cannot reach it, and everybody else can: nobody takes over, and the clients continue when the cut ends."""
    assert world.topics is not None
    topics, pod = world.topics, _owner(world)
    restarts = world.restarts(pod)
    topics.ask("gap")
    with world.without_port(pod, BROKER_PORT):
        world.until("a topic is silent", lambda: topics.ask("gap") > SILENT_S, WAIT_S)
        if not world.pod_is_ready(pod):
            raise StepError(f"{pod} is not ready, though ZooKeeper, bookies and kubelet reach it")
    after_s = world.published()
    _not_restarted(world, pod, restarts)
    return f"{pod}; receipts {after_s:.1f} s after the cut"


def roll_zookeeper(world: World) -> str:
    """ZooKeeper's servers restart one by one; nobody waits for them."""
    assert world.topics is not None
    world.topics.ask("gap")
    world.kubectl("rollout", "restart", f"statefulset/{ZOOKEEPER}")
    world.kubectl("rollout", "status", f"statefulset/{ZOOKEEPER}", f"--timeout={WAIT_S:.0f}s")
    return f"at most {longest_gap(world):.1f} s without receipts"


def kill_zookeeper(world: World) -> str:
    """All of ZooKeeper's servers die at once, and come back with their volumes: receipts wait, and nothing else happens."""
    assert world.topics is not None
    pods = [f"{BROKER}-{number}" for number in range(2)]
    restarts = {pod: world.restarts(pod) for pod in pods}
    began = now()
    world.topics.ask("gap")
    for number in range(3):
        world.kill(f"{ZOOKEEPER}-{number}")
    world.until("ZooKeeper is away", lambda: not world.pod_is_ready(f"{ZOOKEEPER}-0"), WAIT_S)
    world.kubectl("rollout", "status", f"statefulset/{ZOOKEEPER}", f"--timeout={WAIT_S:.0f}s")
    gap_s = longest_gap(world)  # receipts go on at first: sessions are certain for some seconds more
    for pod, before in restarts.items():
        _not_restarted(world, pod, before)
    world.settled(began, len(world.pool()["status"]["bookies"]), 2 * WAIT_S, harmed=began)
    return f"at most {gap_s:.1f} s without receipts"


def stop_leader_node(world: World) -> str:
    """The node with the operator's leader, the owner of a topic, a bookie and a ZooKeeper server loses power, and comes back."""
    assert world.topics is not None
    node, broker = _leader_beside_a_broker(world)
    topic = world.topics.ask("topics")[0]
    if _owner(world) != broker:
        world.daybook("topic", "unload", topic, "--to", broker)
        world.until(f"{broker} serves {topic}", lambda: _owner(world) == broker, WAIT_S)
    gone, leader = world.pods_on(node), _leader(world)
    if not gone:
        raise StepError(f"{node} has no bookie")
    bookies = len(world.pool()["status"]["bookies"])
    world.topics.ask("gap")
    harmed = now()
    with world.harmed(node, world.cluster.stop, world.cluster.start):
        gap_s = longest_gap(world)
        world.until("another operator leads", partial(_is_led_by_another, world, leader), WAIT_S)
        led_s = (now() - harmed).total_seconds()
        began = now()
    world.until(f"{node} is ready", lambda: world.is_ready(node), WAIT_S)
    world.kubectl("rollout", "status", f"statefulset/{BROKER}", f"--timeout={WAIT_S:.0f}s")
    world.settled(began, bookies, 2 * WAIT_S, harmed=harmed)
    silent = world.judged("without receipts at most", gap_s, NODE_LOST_S)
    return f"{node} with {leader}, {broker}, {', '.join(gone)}; {silent}; another operator led after {led_s:.0f} s"


def drain_node(world: World) -> str:
    """`kubectl drain` empties the node of a topic's owner, as far as budgets permit, until nothing of Daybook is there; then it is used again."""
    assert world.topics is not None
    node = world.node_of(_owner(world))
    bookies = len(world.pool()["status"]["bookies"])
    world.topics.ask("gap")
    harmed = now()
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    world.until(f"{node} is drained", lambda: world.kubectl("drain", node, *flags), WAIT_S)
    gap_s = longest_gap(world)
    began = now()
    world.kubectl("uncordon", node)
    for what in (f"statefulset/{BROKER}", f"statefulset/{ZOOKEEPER}", f"deployment/{OPERATOR}"):
        world.kubectl("rollout", "status", what, f"--timeout={WAIT_S:.0f}s")
    world.settled(began, bookies, 2 * WAIT_S, harmed=harmed)
    return f"{node}; at most {gap_s:.1f} s without receipts"


def _owner(world: World) -> str:
    """The pod that serves the first topic. Raises StepError if that is not known in time."""
    assert world.topics is not None
    for _ in range(TRIES):
        if (found := world.topics.ask("owner")) is not None:
            return str(found)
    raise StepError(f"no broker says who serves the topic; the log is {world.topics.log}")


def _leader(world: World) -> str:
    """The pod that leads the operators, by the Lease; empty if nobody does."""
    return str(world.get(f"lease/{OPERATOR}")["spec"].get("holderIdentity") or "")


def _leader_beside_a_broker(world: World) -> tuple[str, str]:
    """A node with the operator's leader and a broker: if there is none, the leader is deleted until another leads.

    Two operators and two brokers, each on a node of its own, of three nodes.
    """
    for _ in range(TRIES):
        brokers = {world.node_of(f"{BROKER}-{number}"): f"{BROKER}-{number}" for number in range(2)}
        leader = _leader(world)
        try:
            node = world.node_of(leader)
        except KubectlError as error:
            raise StepError(f"the operator {leader} leads, and has no pod: {error}") from error
        if node in brokers:
            return node, brokers[node]
        world.kubectl("delete", "pod", leader)
        world.until("another operator leads", partial(_is_led_by_another, world, leader), TAKE_OVER_S)
    raise StepError("no node has the operator's leader and a broker")


def _is_led_by_another(world: World, leader: str) -> bool:
    return _leader(world) not in {"", leader}


def _not_restarted(world: World, pod: str, before: int) -> None:
    if (found := world.restarts(pod)) != before:
        raise StepError(f"{pod} was restarted {found - before} times: liveness must not depend on others")
