"""What ZooKeeper has about all topics, for `daybook topic list`.

Topics and namespaces come and go while they are listed: what is deleted meanwhile is in no list. What cannot be read is an error.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager


async def topic_records(topics: TopicManager, namespace: str | None) -> AsyncIterator[dict[str, Any]]:
    """A record for each topic of a namespace, which is TENANT/NAMESPACE, or of all of them.

    Raises NoSuchTopicError if the namespace that is named does not exist, and DaybookError if it is none.
    """
    for tenant, space in await _namespaces(topics, namespace):
        try:
            names = await topics.topics(tenant, space)
        except NoSuchTopicError:
            if namespace is not None:
                raise
            continue
        for name in names:
            record = await _record(topics, name)
            if record is not None:
                yield record


async def _record(topics: TopicManager, name: TopicName) -> dict[str, Any] | None:
    """None: the topic is gone."""
    try:
        found = (await topics.read(name)).value
        subscriptions = await topics.cursors(name)
    except NoSuchTopicError:
        return None
    return {
        "topic": str(name),
        "state": found.state.value,
        "ledgers": len(found.ledgers),
        "closed_entries": sum(ledger.entries for ledger in found.ledgers),
        "closed_bytes": sum(ledger.size_bytes for ledger in found.ledgers),
        "subscriptions": list(subscriptions),
    }


async def _namespaces(topics: TopicManager, namespace: str | None) -> list[tuple[str, str]]:
    if namespace is not None:
        tenant, slash, space = namespace.partition("/")
        if not slash:
            msg = f"{namespace!r} is not TENANT/NAMESPACE, like public/default"
            raise DaybookError(msg)
        return [(tenant, space)]
    found: list[tuple[str, str]] = []
    for tenant in await topics.tenants():
        with suppress(NoSuchTopicError):
            found += [(tenant, space) for space in await topics.namespaces(tenant)]
    return found
