"""Lists of a namespace's topics, with patterns and hashes, and how clients learn what changes."""

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from daybook_broker.broker import Broker
from daybook_broker.errors import NotAllowedError
from daybook_broker.topics.topic_lists import PATTERN_CHARS_MAX, TopicPattern, topics_hash

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicUpdate,
    ServerError,
)
from tests.unit.broker.kit import LIMIT_S, FrameClient, frame_client, running_broker


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    async with running_broker(cluster, handles_max=3) as started:
        yield started


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"public/{uuid.uuid4().hex}"


def named(namespace: str, *names: str) -> list[str]:
    return [f"persistent://{namespace}/{name}" for name in names]


async def create(broker: Broker, topics: list[str]) -> None:
    for topic in topics:
        await broker.topics.create(TopicName.parse(topic))


async def listed(
    client: FrameClient, namespace: str, pattern: str = "", known: str = ""
) -> CommandGetTopicsOfNamespaceResponse:
    wish = CommandGetTopicsOfNamespace(
        request_id=1, namespace=namespace, topics_pattern=pattern, topics_hash=known
    )
    answer = await client.ask(
        BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=wish)
    )
    assert answer.type == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
    return answer.getTopicsOfNamespaceResponse


async def watch(
    client: FrameClient, namespace: str, pattern: str, watcher_id: int = 7, known: str = ""
) -> BaseCommand:
    wish = CommandWatchTopicList(
        request_id=2, watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern, topics_hash=known
    )
    return await client.ask(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=wish))


async def updated(client: FrameClient) -> CommandWatchTopicUpdate:
    answer = await client.receive()
    assert answer.type == BaseCommand.WATCH_TOPIC_UPDATE, answer
    return answer.watchTopicUpdate


async def ended(client: FrameClient, watcher_id: int = 7) -> None:
    wish = CommandWatchTopicListClose(request_id=3, watcher_id=watcher_id)
    answer = await client.ask(BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=wish))
    assert (answer.type, answer.success.request_id) == (BaseCommand.SUCCESS, 3)


def test_the_hash_is_pulsars() -> None:
    assert topics_hash(["123456789"]) == "839206e3", "the check value of CRC32C, its lowest byte first"
    assert topics_hash(["6789", "12345"]) == topics_hash(["12345,6789"])
    assert topics_hash([]) == "00000000"
    assert topics_hash(["\U0001f600", "\uff00"]) == topics_hash(["\U0001f600,\uff00"]), "in Java's order"


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("public/default/a.*", {"a", "a-partition-1", "ab"}),
        ("persistent://public/default/a", {"a", "a-partition-1"}),
        ("^persistent://public/default/.b$", {"ab"}),
        ("non-persistent://public/default/b", {"b"}),
        ("(?i)PUBLIC/DEFAULT/B", {"b"}),
        ("a", set()),
        (".*", {"a", "a-partition-1", "ab", "b"}),
    ],
)
def test_a_pattern_is_for_whole_names_without_scheme_and_partition(pattern: str, matching: set[str]) -> None:
    names = [TopicName("public", "default", name) for name in ("a", "a-partition-1", "ab", "b")]
    assert set(TopicPattern(pattern).of(names)) == {
        f"persistent://public/default/{name}" for name in matching
    }


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "cannot be used"),
        ("(?=a)a", "RE2's syntax"),
        ("a" * (PATTERN_CHARS_MAX + 1), "at most"),
        ("http://public/default/a", "names no scheme"),
        ("((a{1,1000}){1,1000}){1,1000}", "cannot be used"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(NotAllowedError, match=why):
        TopicPattern(pattern)


@pytest.mark.integration
async def test_a_list_has_what_matches_and_nothing_if_the_client_knows_it(
    broker: Broker, namespace: str
) -> None:
    a, b = named(namespace, "a", "b")
    async with frame_client(broker) as client:
        nothing = await listed(client, namespace)
        assert (list(nothing.topics), nothing.topics_hash, nothing.changed) == ([], topics_hash([]), True)
        await create(broker, [a, b])
        found = await listed(client, namespace)
        assert (list(found.topics), found.filtered, found.topics_hash) == ([a, b], False, topics_hash([a, b]))
        found = await listed(client, namespace, f"persistent://{namespace}/a")
        assert (list(found.topics), found.filtered, found.changed) == ([a], True, True)
        again = await listed(client, namespace, f"persistent://{namespace}/a", found.topics_hash)
        assert (list(again.topics), again.changed, again.topics_hash) == ([], False, found.topics_hash)
        found = await listed(client, namespace, "(?=a)a")
        assert (list(found.topics), found.filtered) == ([a, b], False), "the client filters"


@pytest.mark.integration
async def test_a_watcher_learns_of_topics_that_come_and_go(broker: Broker, namespace: str) -> None:
    a, b, other = named(namespace, "t-a", "t-b", "other")
    partitions = named(namespace, "t-c-partition-0", "t-c-partition-1", "t-c-partition-2")
    async with frame_client(broker) as client:
        answer = await watch(client, namespace, f"{namespace}/t-.*")
        success = answer.watchTopicListSuccess
        assert (success.request_id, success.watcher_id, list(success.topic)) == (2, 7, [])
        await create(broker, [other, a])
        update = await updated(client)
        assert (update.watcher_id, list(update.new_topics), list(update.deleted_topics)) == (7, [a], [])
        assert update.topics_hash == topics_hash([a])
        name = TopicName.parse(f"persistent://{namespace}/t-c")
        await broker.partitions.create(name, 2)
        assert list((await updated(client)).new_topics) == partitions[:2]
        await broker.partitions.grow(name, 3)
        assert list((await updated(client)).new_topics) == partitions[2:]
        await broker.topics.delete(TopicName.parse(a), 0)
        update = await updated(client)
        assert (list(update.new_topics), list(update.deleted_topics)) == ([], [a])
        assert update.topics_hash == topics_hash(partitions)
        again = await watch(client, namespace, f"{namespace}/t-.*", known=update.topics_hash)
        assert list(again.watchTopicListSuccess.topic) == [], "the client knows them"
        await ended(client)
        assert broker.topic_lists._feeds == {}
        await create(broker, [b])
        assert (
            topics_hash([b, *partitions])
            == (await listed(client, namespace, f"{namespace}/t-.*")).topics_hash
        )


@pytest.mark.integration
async def test_watches_end_with_their_connection_and_are_bounded(broker: Broker, namespace: str) -> None:
    async with frame_client(broker) as client:
        for watcher_id in range(3):
            answer = await watch(client, namespace, ".*", watcher_id)
            assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS
        refused = await watch(client, namespace, ".*", 3)
        assert refused.error.error == ServerError.TooManyRequests
        for pattern, where in (("(", namespace), (".*", "nowhere")):
            refused = await watch(client, where, pattern, 0)
            assert refused.type == BaseCommand.ERROR
        await ended(client, 99)
        (feed,) = broker.topic_lists._feeds.values()
        task = feed.task
        assert task is not None
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait([task])
    assert broker.topic_lists._feeds == {}
