"""The steps of `make e2e` that brokers have of their own."""

from functools import partial
from typing import Final

from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import BROKER, NAMESPACE, RELEASE, World
from tests.paths import ROOT

LISTENER: Final = "external"
NODE_PORT: Final = 31650
"""Of the first broker, for clients outside the cluster."""
TAKE_OVER_S: Final = 60.0
"""After which a step fails at once, where nothing shorter is asked."""
KILLED_S: Final = 8.0
"""The aim for a topic whose broker is killed."""
ROLLED_S: Final = 1.0
"""The aim for each topic while brokers are rolled."""
FIRST_MESSAGE_S: Final = 60.0
"""The aim from `helm install` to the first message consumed."""
BROKERS: Final = 2


def install_brokers(world: World) -> str:
    """`helm upgrade` adds two brokers, which clients outside reach by node ports; producers and consumers run from here on."""
    address = next(iter(world.cluster.nodes.values())).address
    external = {"type": "NodePort", "listener": LISTENER, "host": address, "nodePort": NODE_PORT}
    flags = [word for key, value in external.items() for word in ("--set", f"broker.external.{key}={value}")]
    with world.stage("brokers"):
        upgrade(world, "--set", "broker.enabled=true", *flags)
    nodes = {world.node_of(f"{BROKER}-{number}") for number in range(BROKERS)}
    if len(nodes) != BROKERS:
        raise StepError(f"{BROKERS} brokers stand on {nodes}")
    with world.stage("first message consumed"):
        world.use_topics()
        assert world.topics is not None
        if not world.topics.ask("consumed"):
            raise StepError(f"a subscription receives nothing; the log is {world.topics.log}")
    code = world.check_code(f"{BROKER}-0", "daybook", "daybook_broker")
    total_s = sum(world.stages.values())
    stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in world.stages.items())
    total = world.judged("from `helm install` to the first message consumed", total_s, FIRST_MESSAGE_S)
    return f"{BROKERS} brokers on {' and '.join(sorted(nodes))} ({code}); {total}: {stages}"


def upgrade(world: World, *flags: str) -> None:
    """Change the release's values, and wait until everything is as they say."""
    chart = str(ROOT / "charts" / "daybook")
    world.helm(
        "upgrade",
        RELEASE,
        chart,
        "-n",
        NAMESPACE,
        "--reset-then-reuse-values",
        *flags,
        "--wait",
        "--timeout",
        "5m",
    )


def kill_owner(world: World) -> str:
    """The broker that serves a topic dies without a word; the other one takes the topic over once its session has expired."""
    assert world.topics is not None
    pod = world.topics.ask("owner")
    world.topics.ask("gap")
    world.kill(pod)
    gap_s = longest_gap(world)
    world.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=300s")
    return f"{pod}; {world.judged('without receipts at most', gap_s, KILLED_S)}"


def roll_brokers(world: World) -> str:
    """Brokers are restarted one by one; each names the next owner to its clients."""
    assert world.topics is not None
    world.topics.ask("gap")
    world.kubectl("rollout", "restart", f"statefulset/{BROKER}")
    world.kubectl("rollout", "status", f"statefulset/{BROKER}", "--timeout=300s")
    silent = world.judged("without receipts at most", longest_gap(world), ROLLED_S)
    return f"{silent} ({world.check_code(f'{BROKER}-0', 'daybook', 'daybook_broker')})"


def scale_brokers(world: World) -> str:
    """A third broker joins; then two leave at once, and hand their topics to the one that stays."""
    assert world.topics is not None
    world.topics.ask("gap")
    for number in (3, 1, BROKERS):
        upgrade(world, "--set", f"broker.replicas={number}")
        world.until(f"{number} brokers run", partial(_are_there, world, number), TAKE_OVER_S)
        world.published()
    return f"2 → 3 → 1 → 2; at most {longest_gap(world):.1f} s without receipts"


def _are_there(world: World, number: int) -> bool:
    return len(world.get("pods", "-l", "app.kubernetes.io/component=broker")["items"]) == number


def longest_gap(world: World) -> float:
    """Seconds that a topic was without receipts at most, once all have one again."""
    assert world.topics is not None
    world.published()
    gap_s = float(world.topics.ask("gap"))
    if gap_s > TAKE_OVER_S:
        raise StepError(f"a topic was without receipts for {gap_s:.1f} s")
    return gap_s
