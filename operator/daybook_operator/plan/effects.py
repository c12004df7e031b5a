"""Everything that the operator may do to the world outside, one frozen dataclass for each kind of write.

This is the recorded list: a crash test kills the operator before each effect of a plan, so nothing may write except by
an effect that `reconcile.performer` carries out. Every effect is safe to repeat, since a plan that was cut short is made
anew from what is true then.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.bookies import Location
from daybook.metadata.store.store import Versioned

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON has it."""


@dataclass(frozen=True, slots=True)
class Ref:
    """Which Kubernetes object. `uid` guards against acting on another one that got the same name; empty: any."""

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
    """Which cluster: where its ZooKeeper answers ("host:port,…") and its name there."""

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
    """What becomes of the objects that a removed one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class EventType(StrEnum):
    """Kubernetes knows two."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Apply:
    """Make the object so, by server-side apply with force: fields that others own beside ours stay theirs."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object; `ref.uid`, when given, must still be its UID. One that is gone is done."""

    ref: Ref
    propagation: Propagation = Propagation.BACKGROUND


@dataclass(frozen=True, slots=True)
class Evict:
    """Have a bookie's pod go, by an eviction, which every PodDisruptionBudget is asked about; `ref.uid` must be its UID.

    Only if the cluster stands as it did when this was decided (see `pool_others.why_not_now`), which is read again just
    before: `boots` has the process of every bookie that was registered then. `is_strict`: each must be that very
    process, and no ledger lack a replica; else only those count that are not in `away`, as long as they are there.
    `is_idle`: nobody uses this bookie, and that alone must be so still.
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
    """Make the object's status so, by server-side apply on the status subresource."""

    ref: Ref
    status: Manifest


@dataclass(frozen=True, slots=True)
class PatchMeta:
    """Change metadata of an object that others own.

    `add_finalizer` and `remove_finalizer` are names; a label or annotation of None is removed.
    """

    ref: Ref
    add_finalizer: str = ""
    remove_finalizer: str = ""
    labels: Mapping[str, str | None] | None = None
    annotations: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Tell a person, as an event beside the object. The same words again only count it up."""

    ref: Ref
    type: EventType
    reason: str
    message: str


# The cluster's metadata and its bookies.


@dataclass(frozen=True, slots=True)
class SetLocations:
    """Say where bookies stand; None takes one out of the topology."""

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
    """Have a bookie refuse new ledgers, or take them again."""

    cluster: ClusterRef
    bookie: BookieId
    read_only: bool


@dataclass(frozen=True, slots=True)
class MarkLeaving:
    """Have workers copy away what a bookie holds: a task for each of these ledgers that names it."""

    cluster: ClusterRef
    bookie: BookieId
    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class UnmarkLeaving:
    """Let a bookie stay: no task says any more that it leaves. What was copied elsewhere stays there."""

    cluster: ClusterRef
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class DeleteCookie:
    """Forget a bookie; refused unless a listing after a `sync` shows that no ledger names it (rule 29)."""

    cluster: ClusterRef
    bookie: BookieId


@dataclass(frozen=True, slots=True)
class SetLostBookieDelay:
    """How long a bookie of this cluster must be away before it counts as lost (rule 33)."""

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
    """Let a ledger that exists stand for a request; refused if it changed since it was read as `ledger`."""

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
    """Delete a ledger; bookies reclaim its entries later. One that is gone is done."""

    cluster: ClusterRef
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Remove the record that ties a ledger to a Kubernetes object which is going."""

    cluster: ClusterRef
    request_uid: str


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
)
