"""A Topic's spec as values."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pydantic import Field

from daybook_operator.plan.decision import is_paused, is_terminating
from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.spark_jobs import JobOfTopics
from daybook_operator.plan.spec_part import SpecPart, parse_spec
from daybook_operator.plan.stored import PoolRef

Times: TypeAlias = tuple[str, str]
"""A schedule and a time zone, as they are written."""


class SegmentSpec(SpecPart):
    """When a topic continues in a new ledger."""

    max_size: str = "2Gi"
    max_age_seconds: int = 14_400
    max_entries: int = 50_000


class RetentionSpec(SpecPart):
    """How long messages are kept that every subscription has acknowledged."""

    policy: Literal["Discard", "Limit", "Forever"] = "Discard"
    time_seconds: int | None = None
    size: str | None = None


class BacklogQuotaSpec(SpecPart):
    """How much may wait for the slowest subscription."""

    size: str | None = None
    age_seconds: int | None = None
    action: Literal["Hold", "Refuse", "Evict"] = "Hold"


class CompactionSpec(SpecPart):
    """When the topic is compacted."""

    enabled: bool = False
    schedule: str | None = None
    time_zone: str = "Etc/UTC"
    keep_keyless: bool = True
    suspend: bool = False

    @property
    def asks(self) -> bool:
        """Whether a job is to compact the topic now."""
        return self.enabled and not self.suspend


class OffloadSpec(SpecPart):
    """When the topic's closed ledgers are copied, and to where. Rules of the CRD, which say what to write, ask for both."""

    schedule: str = ""
    time_zone: str = "Etc/UTC"
    to: str = ""
    lag_seconds: int = 14_400
    rows: bool = False
    suspend: bool = False


class TopicSpec(SpecPart):
    """What topic is asked for. `partitions` 0: it has none. `topic_name` None: it is the resource's name."""

    pool_ref: PoolRef
    tenant: str = "public"
    topic_namespace: str = "default"
    topic_name: str | None = None
    partitions: int = 0
    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int | None = None
    durability: Literal["Sync", "SemiSync", "Async"] | None = None
    degrade: Literal["Never", "ToAckQuorum"] | None = None
    managed: bool = True
    segment: SegmentSpec = Field(default_factory=SegmentSpec)
    retention: RetentionSpec = Field(default_factory=RetentionSpec)
    message_ttl_seconds: int = Field(0, alias="messageTTLSeconds")
    backlog_quota: BacklogQuotaSpec | None = None
    deduplication: bool = False
    compaction: CompactionSpec = Field(default_factory=CompactionSpec)
    offload: OffloadSpec | None = None
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"

    @property
    def deletes_topic(self) -> bool:
        """Whether the topic goes with the resource."""
        return self.reclaim_policy == "Delete"

    @property
    def timings(self) -> Mapping[JobOfTopics, Times]:
        """The schedule and the time zone of each job that the topic asks for now."""
        found: dict[JobOfTopics, Times] = {}
        if self.compaction.asks and self.compaction.schedule is not None:
            found["compaction"] = (self.compaction.schedule, self.compaction.time_zone)
        if self.offload is not None and not self.offload.suspend:
            found["offload"] = (self.offload.schedule, self.offload.time_zone)
        return found

    @property
    def unsupported(self) -> tuple[str, ...]:
        """The fields that are set and that nothing carries out in this release."""
        found = {
            "deduplication": self.deduplication,
            "segment": self.segment != SegmentSpec(),
        }
        return tuple(f"spec.{name}" for name, is_set in found.items() if is_set)


def timings_of(topic: Manifest) -> Mapping[JobOfTopics, Times]:
    """What a Topic asks jobs for now: nothing while it is paused, watched alone or being deleted. Raises SpecError."""
    spec = parse_spec(TopicSpec, topic)
    if is_paused(topic) or is_terminating(topic) or not spec.managed:
        return {}
    return spec.timings
