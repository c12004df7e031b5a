"""Which topics a job takes, read from the metadata: all of them, or an error (rule 28).

daybook/core/topics/job_selection.py decides. A topic that is deleted meanwhile is left out; one whose policy cannot be read is an error,
because nobody knows whether the job is to take it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from daybook.client.client import Client
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import PolicyLayer
from daybook.metadata.partitions import PartitionManager, partition
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import list_directory

_READS_AT_ONCE: Final = 32
"""Policies that are read at a time (rule 37)."""


async def topics_of(client: Client, selection: Selection, job: str) -> tuple[TopicName, ...]:
    """The topics that `job` takes, in order; of a partitioned topic that is named its partitions.

    Raises NoSuchTopicError for a topic or a namespace that is named and does not exist, MetadataError, MetadataUnavailableError, PolicyError.
    """
    await client.store.sync(client.layout.topics)
    await list_directory(client.store, client.layout.topics)
    if selection.topics:
        found = [each for name in selection.topics for each in await _named(client, name)]
        return tuple(sorted(set(found)))
    topics = TopicManager(client.store, client.layout)
    taken: list[TopicName] = []
    for tenant, namespace in await _namespaces(topics, selection):
        try:
            names = await topics.topics(tenant, namespace)
        except NoSuchTopicError:
            if selection.namespaces:
                raise
            continue  # it is deleted meanwhile
        taken += await _taken(client, selection, job, names) if selection.pool else names
    return tuple(sorted(taken))


async def _named(client: Client, name: TopicName) -> list[TopicName]:
    """A topic that is named, or its partitions that exist."""
    partitioned = await PartitionManager(client.store, client.layout).read(name)
    if partitioned is None:
        await TopicManager(client.store, client.layout).read(name)
        return [name]
    names = [partition(name, number) for number in range(partitioned.value.partitions)]
    there = set(await TopicManager(client.store, client.layout).topics(name.tenant, name.namespace))
    return [each for each in names if each in there]


async def _namespaces(topics: TopicManager, selection: Selection) -> list[tuple[str, str]]:
    if selection.namespaces:
        return sorted(set(selection.namespaces))
    found: list[tuple[str, str]] = []
    for tenant in await topics.tenants():
        with suppress(NoSuchTopicError):  # the tenant is deleted meanwhile
            found += [(tenant, namespace) for namespace in await topics.namespaces(tenant)]
    return found


async def _taken(
    client: Client, selection: Selection, job: str, names: Sequence[TopicName]
) -> list[TopicName]:
    """Those of a namespace's topics whose policies say so."""
    policies = PolicyManager(client.store, client.layout)
    layer = PolicyLayer()
    if names:
        with suppress(NoSuchTopicError):
            layer = (await policies.namespace(names[0].tenant, names[0].namespace)).value

    async def takes(name: TopicName) -> bool:
        try:
            own = (await policies.topic(name)).value
        except NoSuchTopicError:
            return False
        return selection.takes(job, name, layer, own)

    found: list[TopicName] = []
    for at in range(0, len(names), _READS_AT_ONCE):
        part = names[at : at + _READS_AT_ONCE]
        answers = await asyncio.gather(*map(takes, part))
        found += [name for name, is_taken in zip(part, answers, strict=True) if is_taken]
    return found
