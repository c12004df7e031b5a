"""The steps of `make e2e` that brokers have of their own."""

from typing import Final

from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import NAMESPACE, RELEASE, Companion, World
from tests.paths import ROOT

BROKER: Final = f"{RELEASE}-broker"
SERVICE_URL: Final = f"pulsar://{BROKER}-pods.{NAMESPACE}.svc:6650"
"""The headless Service: addresses of pods are reached where the producers run, those of other Services are not."""
TOPIC: Final = "persistent://public/default/ordered"
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
    """The broker that serves a topic dies at once; the other one takes the topic over."""
    assert world.topics is not None
    pod = world.topics.ask(f"owner {TOPIC}")
    world.topics.ask("gap")
    world.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
    # A broker registers once its former process is gone: the pod that comes after it is ready when the kill is over.
    world.kubectl("rollout", "status", f"statefulset/{BROKER}", "--timeout=300s")
    world.published()
    gap_s = world.topics.ask("gap")
    if gap_s > TAKE_OVER_S:
        raise StepError(f"a topic was without receipts for {gap_s:.1f} s")
    return f"{pod}; at most {gap_s:.1f} s without receipts"


def roll_brokers(world: World) -> str:
    """Brokers are restarted one by one; each names the next owner to its clients."""
    assert world.topics is not None
    world.topics.ask("gap")
    world.kubectl("rollout", "restart", f"statefulset/{BROKER}")
    world.kubectl("rollout", "status", f"statefulset/{BROKER}", "--timeout=300s")
    world.published()
    gap_s = world.topics.ask("gap")
    if gap_s > TAKE_OVER_S:
        raise StepError(f"a topic was without receipts for {gap_s:.1f} s")
    return f"at most {gap_s:.1f} s without receipts"
