"""Topics and their partitions: created, listed, grown and deleted."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from aiohttp import web

from daybook.core.errors import NoSuchTopicError, NotOwnerError, TopicExistsError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId
from daybook.metadata.partitions import Deletion, partition, partition_of
from daybook_broker.admin.api import (
    Api,
    OwnedElsewhere,
    Route,
    flag,
    integer_of,
    namespace_of,
    redirect,
    topic_of,
)
from daybook_broker.errors import NotAllowedError, NotReadyError
from daybook_broker.ownership.api import Elsewhere
from daybook_broker.topics.deletion import delete_topic, users_of

_NAMESPACE: Final = "/admin/v2/persistent/{tenant}/{namespace}"
TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
_CREATED_AT_ONCE: Final = 16
"""Partitions that are created at the same time."""
_BUNDLES: Final = "bundles"
"""The bundles that are left of those to unload, in a redirect from one broker to the next."""


async def topics(api: Api, request: web.Request) -> list[str]:
    """The topics of a namespace; partitions are topics."""
    return [str(name) for name in await api.broker.topics_of(*namespace_of(request))]


async def partitioned_topics(api: Api, request: web.Request) -> list[str]:
    """The partitioned topics of a namespace."""
    return [str(name) for name in await api.partitions.topics(*namespace_of(request))]


async def create(api: Api, request: web.Request) -> None:
    """Create a topic without partitions."""
    name = topic_of(request)
    if await api.partitions.read(name) is not None:
        msg = f"partitioned topic {name} exists already"
        raise TopicExistsError(msg)
    found = partition_of(name)
    if found is None:
        await api.topics.create(name)
        return
    if await api.partitions.read(found[0]) is None:
        msg = f"{name} would be a partition of {found[0]}, which has none: create {found[0]} with partitions, or choose another name"
        raise NotAllowedError(msg)
    await api.partitions.create_partition(*found)


async def delete(api: Api, request: web.Request) -> None:
    """Delete a topic with all its messages; one with clients or subscriptions only by force."""
    name = topic_of(request)
    if await api.partitions.read(name) is not None:
        msg = f"{name} is a partitioned topic: delete …/partitions of it, which deletes its partitions"
        raise NotAllowedError(msg)
    await api.check_manager(request, name)
    await api.own(request, name)
    await _delete(api, name, force=flag(request, "force"))


async def _delete(api: Api, name: TopicName, *, force: bool) -> None:
    topic = await api.broker.registry.load(name, create=False)
    if not force:
        topic.check_open()
        _check_unused(name, users_of(topic))  # no await between this and the unload: clients would come
    await delete_topic(name, api.broker.registry, api.broker.client, api.topics)


def _check_unused(name: TopicName, users: Mapping[str, int]) -> None:
    """Raise NotAllowedError if somebody would lose something."""
    used = " and ".join(f"{count} {what}" for what, count in users.items() if count)
    if used:
        msg = f"topic {name} has {used}: close them first, or delete it by force"
        raise NotAllowedError(msg)


async def partitions(api: Api, request: web.Request) -> dict[str, int | bool]:
    """How many partitions a topic has, 0 for none; also while it is being deleted."""
    name = topic_of(request)
    found = await api.partitions.read(name)
    if found is not None:
        return {"partitions": found.value.partitions, "deleted": found.value.deletion is not None}
    create_it = flag(request, "checkAllowAutoCreation")
    return {"partitions": await api.broker.partitions_of(name, create=create_it), "deleted": False}


async def create_partitioned(api: Api, request: web.Request) -> None:
    """Create a topic with partitions, which are topics."""
    name, number = topic_of(request), await integer_of(request)
    await api.partitions.create(name, number)
    await _create_partitions(api, name, 0, number)


async def grow(api: Api, request: web.Request) -> None:
    """Give a topic more partitions."""
    name, number = topic_of(request), await integer_of(request)
    await api.check_manager(request, name)
    await api.partitions.grow(name, number)
    await _create_partitions(api, name, 0, number)


async def _create_partitions(api: Api, name: TopicName, first: int, after: int) -> None:
    """Create the partitions that are missing."""
    slots = asyncio.Semaphore(_CREATED_AT_ONCE)

    async def create_one(index: int) -> None:
        async with slots:
            with suppress(TopicExistsError):
                await api.partitions.create_partition(name, index)

    await asyncio.gather(*map(create_one, range(first, after)))


async def delete_partitioned(api: Api, request: web.Request) -> None:
    """Delete a topic with all its partitions: those of this broker, and then, after a redirect, those of the next one.

    The record goes last. Until then it says that the topic is being deleted, so that clients that come back create no partition again.
    """
    name, force = topic_of(request), flag(request, "force")
    await api.check_manager(request, name)
    found = await api.partitions.read(name)
    if found is None:
        msg = f"partitioned topic {name} does not exist: it was never created, or it was deleted"
        raise NoSuchTopicError(msg)
    if not force and found.value.deletion is None:
        # a refusal is to change nothing where that can be known before
        await _check_unused_partitions(api, name, found.value.partitions)
    begun = await api.partitions.begin_deletion(name, force=force)
    parts = [partition(name, index) for index in range(begun.value.partitions)]
    try:
        await _delete_partitions(api, request, parts, force=begun.value.deletion is Deletion.FORCED)
    except NotAllowedError:
        await api.partitions.give_deletion_up(name, begun)
        raise
    await api.partitions.delete(name, begun.version)


async def _check_unused_partitions(api: Api, name: TopicName, number: int) -> None:
    """Raise NotAllowedError for one that is used; of one that this broker does not serve the stored subscriptions alone are known."""
    for part in (partition(name, index) for index in range(number)):
        topic = api.broker.registry.get(part)
        if topic is not None:
            _check_unused(part, users_of(topic))
            continue
        with suppress(NoSuchTopicError):
            _check_unused(part, {"subscriptions": len(await api.topics.cursors(part))})


async def _delete_partitions(api: Api, request: web.Request, parts: list[TopicName], *, force: bool) -> None:
    """Return once none of `parts` is left. Raises a redirect to a broker that has one, NotAllowedError for one that is used."""
    while parts := [part for part in parts if not await _delete_here(api, request, part, force=force)]:
        await api.own(request, parts[0])  # if it returns, the partition has come to this broker meanwhile


async def _delete_here(api: Api, request: web.Request, part: TopicName, *, force: bool) -> bool:
    """Whether the partition does not exist any more; False: another broker has it."""
    try:
        await api.topics.read(part)
        await api.own(request, part)
        await _delete(api, part, force=force)
    except NoSuchTopicError:
        return True
    except (web.HTTPTemporaryRedirect, OwnedElsewhere):
        return False
    return True


async def unload(api: Api, request: web.Request) -> None:
    """Hand the topic's bundle over, to `destinationBroker` if that is given; of a partitioned topic those of its partitions."""
    name, to = topic_of(request), request.query.get("destinationBroker") or None
    number = await api.broker.partitions_of(name, create=False)
    if number:
        await _unload_partitions(api, request, [partition(name, index) for index in range(number)], to)
        return
    await api.own(request, name)
    await api.broker.ownership.unload(name, to)


async def _unload_partitions(
    api: Api, request: web.Request, parts: list[TopicName], to: BrokerId | None
) -> None:
    """Hand over the bundles of this broker, and then, after a redirect that names the bundles that are left, those of the next one.

    Each bundle is handed over once: a broker that gains one by this request does not hand it over again. Raises a redirect,
    NotAllowedError where none can be followed, NotReadyError, DaybookError.
    """
    ownership, own = api.broker.ownership, api.broker.ownership.info.broker
    owners = await ownership.owners(parts[0].tenant, parts[0].namespace)
    asked = request.query.get(_BUNDLES)
    bundles = {
        bundle: owners[bundle]
        for bundle in sorted(set(map(Bundle.of, parts)))
        if bundle in owners and (asked is None or bundle.range in asked.split(","))
    }
    mine = [bundle for bundle, owner in bundles.items() if owner == own]
    left = {bundle: owner for bundle, owner in bundles.items() if owner not in (own, to)}
    if left and not flag(request, "redirect", default=True):
        msg = (
            f"other brokers own partitions of this topic, and the request is to follow no redirect: "
            f"unload the partitions by name, {parts[0]} to {parts[-1]}"
        )
        raise NotAllowedError(msg)

    async def hand_over(bundle: Bundle) -> None:
        with suppress(NotOwnerError):  # it has gone meanwhile
            await ownership.unload(bundle, to)

    await asyncio.gather(*map(hand_over, mine))
    if left:
        following = next(iter(left.values()))
        info = ownership.view.brokers.get(following)
        if info is None:
            msg = f"broker {following}, which owns some of the partitions, is not registered any more: try again in a moment"
            raise NotReadyError(msg)
        raise redirect(request, Elsewhere(info), **{_BUNDLES: ",".join(bundle.range for bundle in left)})


ROUTES: Final[tuple[Route, ...]] = (
    ("GET", _NAMESPACE, topics),
    ("GET", f"{_NAMESPACE}/partitioned", partitioned_topics),
    ("PUT", TOPIC, create),
    ("DELETE", TOPIC, delete),
    ("GET", f"{TOPIC}/partitions", partitions),
    ("PUT", f"{TOPIC}/partitions", create_partitioned),
    ("POST", f"{TOPIC}/partitions", grow),
    ("DELETE", f"{TOPIC}/partitions", delete_partitioned),
    ("PUT", f"{TOPIC}/unload", unload),
)
