"""What only a topic's owner can do: its subscriptions are moved, skipped, created and deleted, and its statistics read."""

from typing import Any, Final

from aiohttp import web

from daybook.core.errors import TopicExistsError
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName, check_subscription
from daybook.runtime.clock import unix_ms
from daybook_broker.admin.api import Api, BadRequestError, Route, body_of, flag, number, object_of, topic_of
from daybook_broker.admin.stats import internal_stats, position_record, topic_stats
from daybook_broker.admin.topics import TOPIC
from daybook_broker.errors import NotAllowedError
from daybook_broker.topics.by_time import last_before
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.subscriptions import SubscriptionWish
from daybook_broker.topics.topic import Topic

_EARLIEST: Final = -1
_SECOND_MS: Final = 1000


async def _topic(api: Api, request: web.Request) -> Topic:
    """The topic, on its owner, with all its subscriptions."""
    name = topic_of(request)
    await api.own(request, name)
    return await _loaded(api, name)


async def _loaded(api: Api, name: TopicName) -> Topic:
    topic = await api.broker.registry.load(name, create=False)
    await topic.subscriptions.opened()
    return topic


async def _subscription(api: Api, request: web.Request) -> tuple[Topic, Subscription]:
    topic = await _topic(api, request)
    return topic, await topic.subscriptions.find(request.match_info["subscription"])


# Statistics


async def stats(api: Api, request: web.Request) -> dict[str, Any]:
    """Counters, producers, subscriptions and their backlogs."""
    name = topic_of(request)
    await api.own(request, name)
    return await stats_of(api, name)


async def stats_of(api: Api, name: TopicName) -> dict[str, Any]:
    """The same of a topic that this broker owns. Raises NoSuchTopicError, NotOwnerError."""
    topic = await _loaded(api, name)
    found = await api.topics.read(name)
    return topic_stats(topic, found.value, api.broker.settings.broker_id)


async def internals(api: Api, request: web.Request) -> dict[str, Any]:
    """The ledgers and the cursors."""
    topic = await _topic(api, request)
    return internal_stats(topic, (await api.topics.read(topic.name)).value)


async def last_message(api: Api, request: web.Request) -> dict[str, int]:
    """The position of the last message."""
    return position_record((await _topic(api, request)).extent.last_confirmed)


async def terminate(api: Api, request: web.Request) -> dict[str, int]:
    """End a topic for good: it can be read, and takes nothing more. The position of its last message."""
    await api.check_manager(request, topic_of(request))
    return position_record(await (await _topic(api, request)).terminate())


# Compaction


async def compact(api: Api, request: web.Request) -> None:
    """Begin to compact the topic."""
    (await _topic(api, request)).compaction.begin()


async def compaction_status(api: Api, request: web.Request) -> dict[str, str]:
    """How the last compaction of this owner ended, or that one is under way."""
    compaction = (await _topic(api, request)).compaction
    return {"status": compaction.state.value, "lastError": compaction.error}


async def give_compaction_up(api: Api, request: web.Request) -> None:
    """Delete what was compacted. Daybook's own."""
    await (await _topic(api, request)).compaction.give_up()


# Subscriptions


async def subscriptions(api: Api, request: web.Request) -> list[str]:
    """The names of the subscriptions, also of readers that are connected, and of those whose cursor has ended."""
    return (await _topic(api, request)).subscriptions.names()


async def create(api: Api, request: web.Request) -> None:
    """Create a subscription at the end of the topic, at its beginning, or at a position."""
    topic = await _topic(api, request)
    name = check_subscription(request.match_info["subscription"])
    if topic.subscriptions.has(name):
        msg = f"topic {topic.name} has a subscription {name!r} already"
        raise TopicExistsError(msg)
    body = await body_of(request)
    begins_early = body == "earliest"
    first = None if body in (None, "latest", "earliest") else _position(body)
    wish = SubscriptionWish(name, begins_early=begins_early, is_asked_for=True)
    made = await topic.subscriptions.subscribe(wish)
    if first is not None:
        await made.seek(first)


async def delete(api: Api, request: web.Request) -> None:
    """Delete a subscription; one with consumers only by force."""
    topic, subscription = await _subscription(api, request)
    if subscription.consumers and not flag(request, "force"):
        count = len(subscription.consumers)
        msg = f"subscription {subscription.name} of {topic.name} has {count} consumers: close them first, or delete it by force"
        raise NotAllowedError(msg)
    await topic.subscriptions.delete(subscription)


async def skip(api: Api, request: web.Request) -> None:
    """Take the next entries as acknowledged; a batch is one entry."""
    _, subscription = await _subscription(api, request)
    count = number(request.match_info["count"], "the number of messages")
    subscription.skip_through(subscription.acks.nth_unacked(count))
    await subscription.cursor.flush()


async def skip_all(api: Api, request: web.Request) -> None:
    """Take the whole backlog as acknowledged."""
    topic, subscription = await _subscription(api, request)
    subscription.skip_through(topic.extent.last_confirmed)
    await subscription.cursor.flush()


async def reset_to_time(api: Api, request: web.Request) -> None:
    """Begin again with what was published at a time, in ms since 1970."""
    _, subscription = await _subscription(api, request)
    await subscription.seek_time(number(request.match_info["time"], "the time in ms"))


async def reset_to_position(api: Api, request: web.Request) -> None:
    """Begin again with a message."""
    _, subscription = await _subscription(api, request)
    await subscription.seek(_position(await object_of(request)))


async def expire(api: Api, request: web.Request) -> None:
    """Take as acknowledged what is older than so many seconds."""
    topic, subscription = await _subscription(api, request)
    await _expire(topic, subscription, request)


async def expire_all(api: Api, request: web.Request) -> None:
    """The same for every subscription."""
    topic = await _topic(api, request)
    for subscription in topic.subscriptions.all():
        await _expire(topic, subscription, request)


async def _expire(topic: Topic, subscription: Subscription, request: web.Request) -> None:
    age_s = number(request.match_info["seconds"], "the age in seconds")
    position = await last_before(topic.extent, topic.reads, unix_ms() - age_s * _SECOND_MS)
    if subscription.expire_through(position):
        await subscription.cursor.flush()


def _position(body: object) -> Position:
    """A position of a body. Raises BadRequestError."""
    found = body if isinstance(body, dict) else {}
    ledger_id, entry_id = found.get("ledgerId"), found.get("entryId")
    if type(ledger_id) is not int or type(entry_id) is not int or min(ledger_id, entry_id) < _EARLIEST:
        msg = 'the body is to be "latest", "earliest" or a position like {"ledgerId": 3, "entryId": 7}'
        raise BadRequestError(msg)
    return Position(ledger_id, entry_id)


_SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"
ROUTES: Final[tuple[Route, ...]] = (
    ("GET", f"{TOPIC}/stats", stats),
    ("GET", f"{TOPIC}/internalStats", internals),
    ("GET", f"{TOPIC}/lastMessageId", last_message),
    ("POST", f"{TOPIC}/terminate", terminate),
    ("PUT", f"{TOPIC}/compaction", compact),
    ("GET", f"{TOPIC}/compaction", compaction_status),
    ("DELETE", f"{TOPIC}/compaction", give_compaction_up),
    ("GET", f"{TOPIC}/subscriptions", subscriptions),
    ("PUT", _SUBSCRIPTION, create),
    ("DELETE", _SUBSCRIPTION, delete),
    ("POST", f"{_SUBSCRIPTION}/skip/{{count}}", skip),
    ("POST", f"{_SUBSCRIPTION}/skip_all", skip_all),
    ("POST", f"{_SUBSCRIPTION}/resetcursor/{{time}}", reset_to_time),
    ("POST", f"{_SUBSCRIPTION}/resetcursor", reset_to_position),
    ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}", expire),
    ("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", expire_all),
)
