"""What a Topic's spec means for the policy of its topics (daybook/core/topics/policy.py).

A value that the spec leaves out is not set, so that the Pulsar namespace's or the brokers' holds. What only other tools can set
(`inactiveMs`, fields of a later release) stays as it is.
"""

from dataclasses import replace
from typing import Final

from daybook.core.errors import PolicyError
from daybook.core.topics.job_terms import CompactionTerms, OffloadTerms, Timing
from daybook.core.topics.manager import Manager
from daybook.core.topics.policy import (
    UNLIMITED,
    BacklogAction,
    Degrade,
    Durability,
    Policy,
    PolicyLayer,
    merged,
)
from daybook_operator.plan.names import pool_in_cluster
from daybook_operator.plan.quantities import bytes_of
from daybook_operator.plan.topic.spec import RetentionSpec, TopicSpec

_DURABILITIES: Final = {
    "Sync": Durability.SYNC,
    "SemiSync": Durability.SEMI_SYNC,
    "Async": Durability.ASYNC,
}
_DEGRADES: Final = {"Never": Degrade.NEVER, "ToAckQuorum": Degrade.TO_ACK_QUORUM}
_ACTIONS: Final = {
    "Hold": BacklogAction.HOLD,
    "Refuse": BacklogAction.EXCEPTION,
    "Evict": BacklogAction.EVICT,
}


def policy_of(spec: TopicSpec, manager: Manager, current: PolicyLayer | None = None) -> PolicyLayer:
    """What is to be set for the topic, or for each of its partitions; `current` is set now.

    Raises PolicyError for what cannot hold together over the release's defaults; the brokers' settings may be others.
    """
    durability = durability_of(spec)
    degrade = None if spec.degrade is None else _DEGRADES[spec.degrade]
    if durability is Durability.SYNC and degrade is None:
        degrade = Degrade.NEVER
    retention_ms, retention_bytes = _retention(spec.retention)
    quota = spec.backlog_quota
    size = None if quota is None or quota.size is None else bytes_of(quota.size)
    age_s = None if quota is None else quota.age_seconds
    wanted = replace(
        current or PolicyLayer(),
        durability=durability,
        degrade=degrade,
        ensemble_size=spec.ensemble_size,
        write_quorum=spec.write_quorum,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        ttl_ms=spec.message_ttl_seconds * 1000,
        backlog_bytes=size,
        backlog_ms=None if age_s is None else age_s * 1000,
        backlog_action=None if quota is None else _ACTIONS[quota.action],
        pool=pool_in_cluster(manager.namespace, spec.pool_ref.name),
        managed_by=manager,
        compaction=_compaction(spec, None if current is None else current.compaction),
        offload=_offload(spec, None if current is None else current.offload),
    )
    merged(Policy(), wanted)
    return wanted


def durability_of(spec: TopicSpec) -> Durability | None:
    """By name or by ack quorum; None: the spec leaves it to others. Raises PolicyError for an ack quorum that no durability has."""
    if spec.durability is not None:
        return _DURABILITIES[spec.durability]
    if spec.ack_quorum is None:
        return None
    found = [each for each in Durability if each.ack_quorum(spec.write_quorum) == spec.ack_quorum]
    if not found:
        msg = (
            f"ackQuorum={spec.ack_quorum} with writeQuorum={spec.write_quorum}: a topic is acknowledged with all copies, "
            "all but one, or one (the first schema wrote ackQuorum 2 into every Topic): set durability, and ackQuorum to null"
        )
        raise PolicyError(msg)
    return found[0]


def _compaction(spec: TopicSpec, current: CompactionTerms | None) -> CompactionTerms | None:
    """None: no job takes the topic. Raises PolicyError."""
    times = spec.timings.get("compaction")
    if times is None:
        return None
    timing = Timing(*times)
    return replace(
        current or CompactionTerms(timing), timing=timing, keeps_keyless=spec.compaction.keep_keyless
    )


def _offload(spec: TopicSpec, current: OffloadTerms | None) -> OffloadTerms | None:
    """None: no job takes the topic; what was offloaded stays where it is. Raises PolicyError."""
    times, wanted = spec.timings.get("offload"), spec.offload
    if times is None or wanted is None:
        return None
    timing = Timing(*times)
    return replace(
        current or OffloadTerms(timing, wanted.to),
        timing=timing,
        to=wanted.to,
        lag_ms=wanted.lag_seconds * 1000,
        with_rows=wanted.rows,
    )


def _retention(spec: RetentionSpec) -> tuple[int, int]:
    """In ms and bytes, as the stored policy has it: 0 and 0 keep nothing, −1 and −1 everything."""
    match spec.policy:
        case "Discard":
            return 0, 0
        case "Forever":
            return UNLIMITED, UNLIMITED
        case "Limit":
            time_ms = 0 if spec.time_seconds is None else spec.time_seconds * 1000
            return time_ms, 0 if spec.size is None else bytes_of(spec.size)
