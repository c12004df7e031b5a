"""Carries out what a Topic's plan asks for: nodes of ZooKeeper by compare-and-set, and deletions by the topic's broker.

Only the owner of a topic changes its list (rule 38), so the operator deletes no topic itself.
"""

import asyncio
from http import HTTPStatus
from typing import TypeAlias, assert_never

from daybook.client.broker_admin import AdminError
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.policies import PolicyManager
from daybook.metadata.store.store import BadVersionError
from daybook.metadata.topics import TopicManager
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.api import ConflictError
from daybook_operator.plan.effects import CreateTopic, DeleteTopic, SetPartitions, SetTopicPolicy
from daybook_operator.reconcile.brokers import BrokerAccess

TopicEffect: TypeAlias = CreateTopic | SetTopicPolicy | SetPartitions | DeleteTopic


async def change_topic(effect: TopicEffect, link: ClusterLink, brokers: BrokerAccess) -> None:
    """Carry out one effect. Raises DaybookError."""
    store, layout = link.client.store, link.client.layout
    match effect:
        case CreateTopic(_, name, policy):
            await TopicManager(store, layout).create(name, policy.to_record())
        case SetTopicPolicy(_, name, current, policy, manager_uid):
            try:
                await PolicyManager(store, layout).set_topic(name, current, policy, manager_uid=manager_uid)
            except BadVersionError as error:
                msg = f"the policy of {name} was changed by somebody else meanwhile"
                raise ConflictError(msg) from error
        case SetPartitions():
            await _set_partitions(PartitionManager(store, layout), effect)
        case DeleteTopic():
            await _delete(effect, link, brokers)
        case _:
            assert_never(effect)


async def _set_partitions(partitions: PartitionManager, effect: SetPartitions) -> None:
    found = await partitions.read(effect.name)
    if found is None:
        await partitions.create(effect.name, effect.partitions)
    elif found.value.partitions < effect.partitions:
        await partitions.grow(effect.name, effect.partitions)


async def _delete(effect: DeleteTopic, link: ClusterLink, brokers: BrokerAccess) -> None:
    admin, _ = await brokers.admin(link, effect.manager_uid)
    rest = "partitions?force=true" if effect.is_partitioned else "?force=true"
    try:
        await asyncio.to_thread(admin.ask, "DELETE", effect.name, rest)
    except AdminError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
