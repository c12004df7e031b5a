"""What is true of a Topic resource now, as plain values; `reconcile.topic` fills it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daybook.core.topics.job_result import JobResult
from daybook.core.topics.ledger_list import LedgerList
from daybook.core.topics.manager import Manager
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.metadata.partitions import partition
from daybook.metadata.store.store import Versioned
from daybook_operator.plan.effects import ClusterRef, Manifest, Ref, ref_of
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.names import ADOPT
from daybook_operator.plan.spark_jobs import JobsReport
from daybook_operator.plan.spec_part import parse_spec
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.reports import OwnersReports, TopicAtOwner
from daybook_operator.plan.topic.spec import TopicSpec


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic in ZooKeeper: the ledgers it consists of, what is set for it, and what jobs did for it the last time."""

    ledger_list: LedgerList
    policy: Versioned[PolicyLayer]
    results: tuple[JobResult, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInCluster:
    """What ZooKeeper says of a name.

    `partitions` is the recorded number, None without a record. `plain` is the topic of this very name, `parts` are the partitions by
    number, as many as are recorded or wanted, whichever is more; None where there is no such topic. `is_being_deleted`: the record
    says that a deletion has begun, which is not finished.
    """

    partitions: int | None = None
    plain: TopicNode | None = None
    parts: tuple[TopicNode | None, ...] = ()
    is_being_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """Everything that a plan for one Topic may depend on; see `plan.stored.Stored` for what it shares with Ledgers.

    `reports` are of all topics of the cluster; None: nobody could be asked. `jobs` are those of the pool; None: not known yet. `unreadable` says what of the topic's metadata cannot be read, where ZooKeeper answers.
    """

    manifest: Manifest
    pool: Manifest | None
    cluster_ref: ClusterRef | None
    cluster: TopicInCluster | None
    reports: OwnersReports | None = None
    jobs: JobsReport | None = None
    cluster_error: str = ""
    unreadable: str = ""
    namespace_is_terminating: bool = False
    finalizers: FinalizerRules = field(default_factory=FinalizerRules)
    failure: Failure | None = None
    spec: TopicSpec = field(init=False, repr=False, compare=False)
    """What is asked for, parsed once: a plan asks for it a dozen times."""

    def __post_init__(self) -> None:
        """Parse the spec. Raises SpecError."""
        object.__setattr__(self, "spec", parse_spec(TopicSpec, self.manifest))

    @property
    def ref(self) -> Ref:
        """The resource."""
        return ref_of(self.manifest)

    @property
    def status(self) -> Mapping[str, Any]:
        """What the status says now."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def pool_name(self) -> str:
        """The pool that is to store it."""
        return self.spec.pool_ref.name

    @property
    def name(self) -> TopicName:
        """The topic's name."""
        return name_of(self.manifest, self.spec)

    @property
    def manager(self) -> Manager:
        """The resource, as policies name it."""
        meta = self.manifest["metadata"]
        return Manager(meta["namespace"], meta["name"], str(meta["uid"]))

    @property
    def may_adopt(self) -> bool:
        """Whether a person allowed the resource to take over a topic that nobody manages."""
        return (self.manifest["metadata"].get("annotations") or {}).get(ADOPT) == "true"

    @property
    def topics(self) -> tuple[tuple[TopicName, TopicNode | None], ...]:
        """The topics that the resource stands for: itself, or its partitions."""
        if self.cluster is None:
            return ()
        if not self.spec.partitions:
            return ((self.name, self.cluster.plain),)
        name = self.name
        return tuple((partition(name, index), node) for index, node in enumerate(self.cluster.parts))

    @property
    def at_owners(self) -> tuple[TopicAtOwner, ...]:
        """What the owners report of those of them that clients use now."""
        if self.reports is None:
            return ()
        found = (self.reports.topics.get(str(name)) for name, _ in self.topics)
        return tuple(each for each in found if each is not None)

    @property
    def own(self) -> tuple[tuple[TopicName, TopicNode], ...]:
        """Those of them whose policy names this resource."""
        manager = self.manager
        return tuple(
            (name, node)
            for name, node in self.topics
            if node is not None and node.policy.value.managed_by == manager
        )


def name_of(manifest: Manifest, spec: TopicSpec) -> TopicName:
    """The name of the topic that a resource stands for."""
    return TopicName(spec.tenant, spec.topic_namespace, spec.topic_name or manifest["metadata"]["name"])
