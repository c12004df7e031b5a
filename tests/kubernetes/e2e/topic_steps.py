"""The step of `make e2e` that creates and deletes Topics, and looks at what becomes of their messages."""

from typing import Final

from tests.kubernetes.e2e.messages import MESSAGES
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import RELEASE, SERVICE_URL, ZOOKEEPER, Companion, World
from tests.paths import ROOT

RETAINED: Final = "persistent://public/default/orders"
DELETED: Final = "persistent://public/default/parcels"


def topic_resources(world: World) -> str:
    """Two Topics are created, and messages published to both; the one with Retain leaves its messages behind, a broker deletes those of the one with Delete."""
    example = (ROOT / "examples" / "topic.yaml").read_text(encoding="utf-8")
    deleted = example.replace("name: orders", "name: parcels").replace(
        "spec:\n", "spec:\n  reclaimPolicy: Delete\n"
    )
    for manifest in (example, deleted):
        world.kubectl("apply", "-f", "-", stdin=manifest)
    world.kubectl("wait", "--for=condition=Ready", "topic/orders", "topic/parcels", "--timeout=60s")
    with message_companion(world) as messages:
        for topic in (RETAINED, DELETED):
            expect(messages, f"write {topic}")
            expect(messages, f"read {topic}")
        retained, deletable = messages.ask(f"ledgers {RETAINED}"), messages.ask(f"ledgers {DELETED}")
        if not (retained and deletable):
            raise StepError(f"ledgers of {RETAINED}: {retained}, of {DELETED}: {deletable}")
        world.kubectl("delete", "topic/orders", "topic/parcels", "--timeout=60s")
        if left := messages.ask(f"ledgers {DELETED}"):
            raise StepError(f"the Topic parcels is gone, and the ledgers {left} of its topic are not")
        expect(messages, f"read {RETAINED}")
    return f"{MESSAGES} messages each; {len(retained)} ledgers retained and read, {len(deletable)} deleted"


def message_companion(world: World) -> Companion:
    """See messages.py."""
    return Companion(world.cluster, "messages", SERVICE_URL, ZOOKEEPER, RELEASE)


def expect(messages: Companion, command: str) -> None:
    """Raises StepError unless all is as it should be."""
    if wrong := messages.ask(command):
        raise StepError(f"{command}: {wrong}; the log is {messages.log}")
