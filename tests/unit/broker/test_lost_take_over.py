"""Bundles that are handed over or lost while their topics wait for a take-over, or are about to be served: the take-over ends there."""

import asyncio
from typing import Any

import pytest
from daybook_broker.broker import Broker
from daybook_broker.topics.topic import Topic

from daybook.core.errors import DaybookError, NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.topics import TopicManager
from tests.unit.broker.kit import LIMIT_S, new_topic, running_broker

pytestmark = pytest.mark.integration


class Held:
    """What reads of the metadata of one topic find, which they return once a test lets them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, topic: TopicName) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()
        real = getattr(TopicManager, method)

        async def held(topics: TopicManager, name: TopicName, *args: Any, **options: Any) -> Any:
            found = await real(topics, name, *args, **options)
            if name == topic:
                self.began.set()
                await self.may_end.wait()
            return found

        monkeypatch.setattr(TopicManager, method, held)


def told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a topic knows that it is given up."""
    told, end = asyncio.Event(), Topic._end

    def tell(topic: Topic, error: DaybookError) -> None:
        end(topic, error)
        told.set()

    monkeypatch.setattr(Topic, "_end", tell)
    return told


async def new_topics(broker: Broker, count: int) -> list[TopicName]:
    """Topics that `broker` owns and does not serve yet."""
    names = [TopicName.parse(new_topic()) for _ in range(count)]
    for name in names:
        await broker.topics.create(name)
        await broker.ownership.lookup(name, authoritative=True)
    return names


async def test_a_topic_that_waits_for_its_turn_stays_with_the_broker_that_its_bundle_was_handed_to(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(cluster, takeovers_max=1) as broker, running_broker(cluster) as other:
        first, second = await new_topics(broker, 2)
        held = Held(monkeypatch, "epoch", first)
        loading = [asyncio.create_task(broker.registry.load(name, create=False)) for name in (first, second)]
        await held.began.wait()
        await broker.ownership.unload(second, other.settings.broker_id)
        moved = await other.registry.load(second, create=False)
        held.may_end.set()
        await loading[0]
        with pytest.raises(NotOwnerError):
            await loading[1]
        assert (await other.topics.read(second, sync=True)).value.owner_token == moved.owner_token
        assert second not in broker.registry


@pytest.mark.parametrize("act", ["unload", "lose"])
@pytest.mark.parametrize("is_late", [False, True], ids=["before the end", "at the end"])
async def test_a_topic_that_is_given_up_before_it_is_served_is_not_served(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, act: str, *, is_late: bool
) -> None:
    async with running_broker(cluster) as broker:
        (name,) = await new_topics(broker, 1)
        held = Held(monkeypatch, "cursors", name)
        loading = asyncio.create_task(broker.registry.load(name, create=False))
        await held.began.wait()
        ended = told_of_the_end(monkeypatch)
        if is_late:
            held.may_end.set()
        if act == "unload":
            broker.registry.unload([name]).announce(None)
        else:
            broker.registry.lose([name], None)
        async with asyncio.timeout(LIMIT_S):
            await ended.wait()
            held.may_end.set()
            await asyncio.wait([loading])
            await broker.registry._tasks.finished()
        assert name not in broker.registry
        again = await broker.registry.load(name, create=False)
        assert again.error is None
        assert broker.registry.served() == [again]
