"""The part of docs/slo.md about pods, nodes and zones: figures of `make e2e`, which docs/kubernetes.md has with the run that measured them.

They are copied by hand as that table is; a test compares the two pages.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Interruption:
    """One loss: the `step` of docs/kubernetes.md that measured it, and the `figure` as it stands there."""

    loss: str
    step: str
    figure: str
    asked: str = ""


INTERRUPTIONS: Final = (
    Interruption("a pod: the owner of a topic, SIGKILLed", "SIGKILL of a topic's owner", "5.3 s", "8 s"),
    Interruption("pods: the brokers, rolled one after the other", "roll the brokers", "0.3 s", "1 s"),
    Interruption("pods: brokers scaled from 2 to 3, 1 and 2", "scale brokers 2 → 3 → 1 → 2", "0.3 s"),
    Interruption(
        "pods: ZooKeeper's servers, one after the other", "restart ZooKeeper's servers one by one", "0.1 s"
    ),
    Interruption("pods: all of ZooKeeper's servers at once", "kill ZooKeeper's servers at once", "3.1 s"),
    Interruption(
        "a node without notice, with a broker, a bookie, a ZooKeeper server and the operator's leader",
        "stop the node with the operator's leader, a broker and a bookie",
        "4.7 s",
        "15 s",
    ),
    Interruption("a node, drained", "`kubectl drain` of a node with a broker", "1.0 s"),
    Interruption("a broker's connection to ZooKeeper alone", "cut a broker from ZooKeeper alone", "2.8 s"),
    Interruption(
        "a broker's connection to its clients alone, from the end of the cut",
        "cut a broker from its clients alone",
        "0.9 s",
    ),
)

KUBERNETES: Final = """
## Pods, nodes and zones

One complete run of `make e2e` on a cluster of three nodes, each a zone of its own: [kubernetes.md](kubernetes.md#tests) has the run, and each step that is named here. "Without a receipt" (RTO) is of the topic that was silent longest, and runs
from the loss to the next receipt, what Kubernetes and the network need included. **RPO 0**: no step lost an acknowledged entry or message. From `helm install` to the first message
consumed took 29.0 s (asked: 60).

"""

KUBERNETES_NOTES: Final = """
- A node without notice took 5.2 to 6.5 s in seven more runs of that step alone, since a take-over asks no DNS server for bookies; before, it took 5.1 to 74 s in six, in one of which (19.6 s) the log shows that the new owner waited for a DNS server that had died with the node ([ADR 14](adr/0014-bookies-register-their-ip-address.md)).
- A bookie's pod, a bookie's disk and a node's network: those steps asked for all acknowledged entries, and lost none. They did not measure the writer's pause; the table of a bookie's loss above has it.
- **A zone**: the node that was stopped was all of its zone, with one of three ZooKeeper servers, so its line is that of a zone of one node. A zone with several nodes, and so with several bookies
  of a pool or several brokers, was not measured; nor was the loss of two zones, with which ZooKeeper loses its majority. The tables below say how many bookies of an ensemble may be lost.
- Not measured either: a node that returns with an empty disk, and the restore of ZooKeeper's data from an export, whose RPO is the age of the export for metadata
  ([restore.md](operations/restore.md)).
"""


def kubernetes_rows() -> list[list[str]]:
    """loss, longest time without a receipt, what was asked for, lost, the step of docs/kubernetes.md."""
    return [[each.loss, each.figure, each.asked, "0", each.step] for each in INTERRUPTIONS]
