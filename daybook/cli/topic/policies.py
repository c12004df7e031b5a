"""The policy of a topic as a person sets it: names are checked, and values together, before anything is stored.

A policy belongs to people: it is a node of its own in ZooKeeper, which a topic's owner only reads. That of a partitioned topic is set for each
of its partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import daybook
from daybook.cli.topic.partitions import partitions_of
from daybook.core.errors import PolicyError
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Policy, PolicyLayer
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.policies import PolicyManager

_VERSION: Final = "formatVersion"


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What is set for a topic, and what holds for it, by the names of the stored form."""

    topic: TopicName
    values: Mapping[str, Any]
    holds: Mapping[str, Any]
    warning: str | None


async def change_policy(
    client: "daybook.Client", name: TopicName, changes: Mapping[str, Any]
) -> Sequence[TopicPolicy]:
    """Apply changes (None: no longer set) to a topic, or to each partition, and return what is set then.

    Raises PolicyError, NoSuchTopicError, and BadVersionError if somebody else changed it meanwhile.
    """
    policies = PolicyManager(client.store, client.layout)
    partitioned = await PartitionManager(client.store, client.layout).read(name)
    parts = partitions_of(name, partitioned.value.partitions if partitioned else 0)
    if unknown := sorted(set(changes) - set(_settings(Policy()))):
        msg = f"there is no setting {unknown[0]!r}; there are: {', '.join(_settings(Policy()))}"
        raise PolicyError(msg)
    if changes:
        for part in parts:
            current = await policies.topic(part)
            record = {**current.value.to_record(), **changes}
            layer = PolicyLayer.from_record(
                {key: value for key, value in record.items() if value is not None}
            )
            await policies.set_topic(part, current, layer)
    return [await _found(policies, part) for part in parts]


async def _found(policies: PolicyManager, topic: TopicName) -> TopicPolicy:
    values = (await policies.topic(topic)).value.to_record()
    values.pop(_VERSION)
    holds = await policies.of(topic)
    return TopicPolicy(topic, values, _settings(holds), holds.warning)


def _settings(policy: Policy) -> dict[str, Any]:
    """Every setting of a policy by its name in the stored form."""
    every = {each.name: getattr(policy, each.name) for each in fields(Policy)}
    record = PolicyLayer(**every).to_record()
    record.pop(_VERSION)
    return record
