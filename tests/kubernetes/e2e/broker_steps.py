"""The steps of `make e2e` that brokers have of their own."""

from typing import Final

from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import NAMESPACE, RELEASE, Companion, World
from tests.paths import ROOT

BROKER: Final = f"{RELEASE}-broker"
SERVICE_URL: Final = f"pulsar://{BROKER}-pods.{NAMESPACE}.svc:6650"
"""The headless Service: addresses of pods are reached where the producers run, those of other Services are not."""
TAKE_OVER_S: Final = 60.0
"""A bound for failure, not the aim: the machine also runs a cluster."""
BROKERS: Final = 2


def install_brokers(world: World) -> str:
    """`helm upgrade` adds two brokers; producers and consumers run from here on."""
    chart = str(ROOT / "charts" / "daybook")
    flags = ("--reuse-values", "--set", "broker.enabled=true", "--wait", "--timeout", "5m")
    world.helm("upgrade", RELEASE, chart, "-n", NAMESPACE, *flags)
    world.check_code(f"{BROKER}-0", "daybook", "daybook_broker")
    nodes = {world.node_of(f"{BROKER}-{number}") for number in range(BROKERS)}
    if len(nodes) != BROKERS:
        raise StepError(f"{BROKERS} brokers stand on {nodes}")
    world.topics = Companion(world.cluster, "topics", SERVICE_URL)
    return (
        f"{BROKERS} brokers on {' and '.join(sorted(nodes))}; first receipts after {world.published():.1f} s"
    )


def kill_owner(world: World) -> str:
    """The broker that serves a topic dies without a word; the other one takes the topic over once its session has expired."""
    assert world.topics is not None
    pod = world.topics.ask("owner")
    world.topics.ask("gap")
    world.kill(pod)
    gap_s = _longest_gap(world)
    world.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=300s")
    return f"{pod}; at most {gap_s:.1f} s without receipts"


def roll_brokers(world: World) -> str:
    """Brokers are restarted one by one; each names the next owner to its clients."""
    assert world.topics is not None
    world.topics.ask("gap")
    world.kubectl("rollout", "restart", f"statefulset/{BROKER}")
    world.kubectl("rollout", "status", f"statefulset/{BROKER}", "--timeout=300s")
    return f"at most {_longest_gap(world):.1f} s without receipts"


def _longest_gap(world: World) -> float:
    """Seconds that a topic was without receipts at most, once all have one again."""
    assert world.topics is not None
    world.published()
    gap_s = float(world.topics.ask("gap"))
    if gap_s > TAKE_OVER_S:
        raise StepError(f"a topic was without receipts for {gap_s:.1f} s")
    return gap_s
