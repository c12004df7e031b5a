"""What is true of a Ledger resource now, as plain values; `reconcile.ledger` fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daybook.core.ids import BookieId, LedgerId, pool_of
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import PlacementSettings
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.judgement import HARMLESS, Reason
from daybook.core.repair.task import RepairTask
from daybook.metadata.store.store import Versioned
from daybook_operator.plan.effects import ClusterRef, Manifest, Ref, ref_of
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.ledger.spec import LedgerSpec
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.names import pool_in_cluster
from daybook_operator.plan.spec_part import parse_spec
from daybook_operator.plan.stored import Failure

_AWAY: Final = frozenset({Reason.MISSING.value, Reason.UNLISTED.value})
"""A bookie that is unavailable, or does not report, may have all that it owes."""


@dataclass(frozen=True, slots=True)
class LedgerInCluster:
    """What ZooKeeper says. `ledger_id` is the one that is bound to the resource's UID; `metadata` None: it is not there.

    `bookies` are those of the cluster, registered or only known by their place. `audited`: this operator has
    completed an audit. `verdict`: what is known of an entry that the last repair found on no bookie.
    """

    ledger_id: LedgerId | None
    metadata: Versioned[LedgerMetadata] | None = None
    bookies: Mapping[BookieId, BookieInfo] = field(default_factory=dict)
    registered: frozenset[BookieId] = frozenset()
    task: RepairTask | None = None
    verdict: Verdict | None = None
    adoptee: Versioned[LedgerMetadata] | None = None
    """The ledger that the spec names, while none is bound to the resource; None also if there is no such ledger."""
    holder: str = ""
    """Another resource that has this ledger, or the adoptee, as `namespace/name`; "" if none is known."""
    audited: bool = False
    recovery_job: str = ""
    problems: tuple[str, ...] = ()
    """What the last audit found wrong with it that no worker can repair now."""

    @property
    def lacks_replicas(self) -> bool:
        """Whether the ledger's task is about a replica that is missing or doubtful, and not only badly placed."""
        if set(self.problems) - _AWAY:
            return True
        if self.task is None:
            return False
        words = {reason.partition(" ")[0] for reason in self.task.reasons}
        return bool(words - {reason.value for reason in HARMLESS})


@dataclass(frozen=True, slots=True)
class ObservedLedger:
    """Everything that a plan for one Ledger may depend on.

    `pool` None: there is no such BookiePool. `cluster` None: ZooKeeper does not answer, `cluster_error` says more; or
    `cluster_ref` is None, since no pool names a cluster.
    """

    manifest: Manifest
    pool: Manifest | None
    cluster_ref: ClusterRef | None
    cluster: LedgerInCluster | None
    placement: PlacementSettings
    cluster_error: str = ""
    password: bytes | None = field(default=b"", repr=False)
    """None: it cannot be read, `password_error` says why."""
    password_error: str = ""
    namespace_is_terminating: bool = False
    finalizers: FinalizerRules = field(default_factory=FinalizerRules)
    failure: Failure | None = None

    @property
    def ref(self) -> Ref:
        """The resource."""
        return ref_of(self.manifest)

    @property
    def spec(self) -> LedgerSpec:
        """What is asked for. Raises SpecError."""
        return parse_spec(LedgerSpec, self.manifest)

    @property
    def status(self) -> Mapping[str, Any]:
        """What the status says now."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def uid(self) -> str:
        """The resource's UID, which the ledger is bound to."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def pool_name(self) -> str:
        """The pool that is to store it."""
        return self.spec.pool_ref.name

    @property
    def pool_in_cluster(self) -> str:
        """The pool as ids of bookies name it."""
        return pool_in_cluster(self.manifest["metadata"]["namespace"], self.pool_name)

    def is_of_pool(self, bookie: BookieId) -> bool:
        """Whether the bookie belongs to the ledger's pool."""
        return pool_of(bookie) == self.pool_in_cluster
