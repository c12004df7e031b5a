"""Everything that the operator may do to the world outside, one frozen dataclass for each kind of write.

Nothing may write except by an effect that `reconcile.performer` carries out: a crash test kills the operator before each
effect of a plan. Every effect is safe to repeat, since a plan that was interrupted is made anew from what is true then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.metadata.bookies import Location
from daybook.metadata.store.store import Versioned

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON has it."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A Kubernetes object. `uid` guards against acting on another object of the same name; empty: any."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        """`Ledger data/orders`, for messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def ref_of(manifest: Manifest) -> Ref:
    """The object's reference, with its UID if the API server gave it one."""
    meta = manifest["metadata"]
    return Ref(
        manifest["apiVersion"],
        manifest["kind"],
        meta.get("namespace", ""),
        meta["name"],
        meta.get("uid", ""),
    )


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """A cluster: its ZooKeeper's address ("host:port,…"), and its name there."""

    zookeeper: str
    cluster: str

    def __str__(self) -> str:
        """`daybook at zk:2181`, for messages."""
        return f"{self.cluster} at {self.zookeeper}"

    @property
    def text(self) -> str:
        """`daybook@zk:2181`, for annotations."""
        return f"{self.cluster}@{self.zookeeper}"

    @classmethod
    def from_text(cls, text: str) -> "ClusterRef | None":
        """The inverse of `text`; None for anything else."""
        cluster, at, zookeeper = text.partition("@")
        return cls(zookeeper, cluster) if at and cluster and zookeeper else None


# Kubernetes.


class Propagation(StrEnum):
    """What happens to the objects that a removed one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class EventType(StrEnum):
    """The two types of events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the object, server-side and with force: fields that others own and that are not given stay theirs."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object; `ref.uid`, if given, must still be its UID. An object that is gone is no error."""

    ref: Ref
    propagation: Propagation = Propagation.BACKGROUND


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a bookie's pod, as far as PodDisruptionBudgets allow it; `ref.uid` must be its UID.

    The performer reads the cluster again just before, and refuses unless it is as it was when this was decided (see
    `pool.other_pools.why_not_now`): `boots` has the process of every bookie that was registered then. `is_strict`: each
    must be that very process, and no ledger may lack a replica; else the bookies in `away` do not count, and the others
    must only be registered. `is_idle`: no client uses this bookie, and only that must still be true.
    """

    ref: Ref
    cluster: ClusterRef
    bookie: BookieId
    boots: Mapping[BookieId, str] = field(default_factory=dict)
    away: frozenset[BookieId] = frozenset()
    is_strict: bool = True
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Set the object's status, by server-side apply on the status subresource."""

    ref: Ref
    status: Manifest


@dataclass(frozen=True, slots=True)
class PatchMeta:
    """Change the metadata of an object that others own.

    `add_finalizer` and `remove_finalizer` are names; a label or annotation of None is removed.
    """

    ref: Ref
    add_finalizer: str = ""
    remove_finalizer: str = ""
    labels: Mapping[str, str | None] | None = None
    annotations: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Report to people, as an event about the object. The same event again only increases its count."""

    ref: Ref
    type: EventType
    reason: str
    message: str


# The cluster's metadata and its bookies.


@dataclass(frozen=True, slots=True)
class SetLocations:
    """Set the locations of bookies; None removes one from the topology."""

    cluster: ClusterRef
    changes: Mapping[BookieId, Location | None]


@dataclass(frozen=True, slots=True)
class AuthoriseReplacement:
    """Let a bookie start once on empty directories (rule 29). Refused while it is registered."""

    cluster: ClusterRef
    bookie: BookieId
    by: str


@dataclass(frozen=True, slots=True)
class SetReadOnly:
    """Make a bookie read-only, or writable again."""

    cluster: ClusterRef
    bookie: BookieId
    read_only: bool


@dataclass(frozen=True, slots=True)
class MarkLeaving:
    """Have workers move what a bookie holds to others: a task for each of these ledgers, which name it."""

    cluster: ClusterRef
    bookie: BookieId
    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class UnmarkLeaving:
    """Let a bookie stay: no task says any more that it leaves. What was copied to others stays there."""

    cluster: ClusterRef
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class DeleteCookie:
    """Forget a bookie; refused unless a listing after a `sync` shows that no ledger names it (rule 29)."""

    cluster: ClusterRef
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class SetLostBookieDelay:
    """Set how long a bookie of this cluster must be away before it counts as lost (rule 33)."""

    cluster: ClusterRef
    delay_s: float


@dataclass(frozen=True, slots=True)
class CreateLedger:
    """Create the ledger of a request, once for each `request_uid`; `ensemble` is its first. A log has no `password`."""

    cluster: ClusterRef
    request_uid: str
    ensemble: tuple[BookieId, ...]
    write_quorum: int
    ack_quorum: int
    custom_metadata: Mapping[str, bytes]
    password: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class AdoptLedger:
    """Bind an existing ledger to a request; refused if the ledger changed since it was read as `ledger`."""

    cluster: ClusterRef
    request_uid: str
    ledger: Versioned[LedgerMetadata]


@dataclass(frozen=True, slots=True)
class SealLedger:
    """Close a ledger for good: fence it and recover it, if its writer has not closed it."""

    cluster: ClusterRef
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class DeleteLedger:
    """Delete a ledger; bookies reclaim its entries later. A ledger that is gone is no error."""

    cluster: ClusterRef
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Remove the record that binds a ledger to a Kubernetes object that is being deleted."""

    cluster: ClusterRef
    request_uid: str


# Topics.


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Create a topic without ledgers, with its policy; refused if it exists."""

    cluster: ClusterRef
    name: TopicName
    policy: PolicyLayer


@dataclass(frozen=True, slots=True)
class SetTopicPolicy:
    """Replace the policy that was read as `current`; refused if it changed since, or another resource than `manager_uid` manages it."""

    cluster: ClusterRef
    name: TopicName
    current: Versioned[PolicyLayer]
    policy: PolicyLayer
    manager_uid: str


@dataclass(frozen=True, slots=True)
class SetPartitions:
    """Record that a topic has so many partitions, all of which exist; fewer than are recorded change nothing."""

    cluster: ClusterRef
    name: TopicName
    partitions: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Have a broker delete a topic that the resource with this UID manages, with all messages. One that is gone is no error."""

    cluster: ClusterRef
    name: TopicName
    is_partitioned: bool
    manager_uid: str


Effect = (
    Apply
    | Remove
    | Evict
    | SetStatus
    | PatchMeta
    | Report
    | SetLocations
    | AuthoriseReplacement
    | SetReadOnly
    | MarkLeaving
    | UnmarkLeaving
    | DeleteCookie
    | SetLostBookieDelay
    | CreateLedger
    | AdoptLedger
    | SealLedger
    | DeleteLedger
    | ForgetRequest
    | CreateTopic
    | SetTopicPolicy
    | SetPartitions
    | DeleteTopic
)
