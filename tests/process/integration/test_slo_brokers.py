"""What the loss of a broker costs: until the next receipt of one topic, and of all topics of a broker that had many.

As in test_slo.py: what must not be lost is asserted, and the time is noted. `make slo` measures with 1,000 topics, `make test` with few.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.request import Request, urlopen

import pytest

from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import MetadataStore, Versioned
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import off
from tools.slo.notes import is_asked_for, note
from tools.slo.topic_load import TopicLoad

LIMIT_S: Final = 900 if is_asked_for() else 300
pytestmark = [pytest.mark.integration, pytest.mark.timeout(LIMIT_S)]

OWNER: Final = "broker-0"
OTHER: Final = "broker-1"
MANY: Final = 1000 if is_asked_for() else 20
FAST_S: Final = 0.005
SLOW_S: Final = 0.1
"""Between bursts of 50: a message every two seconds to each of 1,000 topics, so that their cursors move."""


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """As `daybook up` starts it, with its settings, but no load is shed: one broker is to have all topics."""
    settings: dict[str, object] = {"shed_interval_ms": 3_600_000}
    directory = tmp_path_factory.mktemp("slo-brokers")
    with LocalCluster(directory, brokers=0, broker_settings=settings) as cluster:
        yield cluster


@asynccontextmanager
async def owned(cluster: LocalCluster, topics: Sequence[str], pause_s: float) -> AsyncIterator[TopicLoad]:
    """A load on topics that are all the owner's; the other broker is there, has none, and answers the lookups.

    A Service of Kubernetes has the addresses of ready brokers alone. With the killed one in its service URL, pulsar-client asks that one
    again and again, half of the times, and doubles its pause up to a minute: of 1,000 topics some are unlucky ten times in a row.
    """
    await off(cluster.start_brokers, OWNER, OTHER)
    load = TopicLoad(cluster.file.broker(OTHER).service_url, list(topics), pause_s)
    try:
        await off(load.__enter__)
        await off(give_all_to_owner, cluster)
        load.mark()
        await off(load.resumed)
        yield load
    finally:
        await off(load.__exit__, None, None, None)
        await off(cluster.stop_brokers)


def give_all_to_owner(cluster: LocalCluster) -> None:
    """Move the bundles of the other broker."""
    url = f"{cluster.file.broker(OTHER).admin_url}/admin/v2/namespaces/public/default"
    with urlopen(f"{url}/owners") as answer:
        owners = json.load(answer)
    for bundle in [bundle for bundle, owner in owners.items() if owner == OTHER]:
        urlopen(Request(f"{url}/{bundle}/unload?destinationBroker={OWNER}", method="PUT")).close()


async def until(store: MetadataStore, path: str, is_so: Callable[[Versioned[bytes] | None], bool]) -> float:
    """Wait until the node at `path` is as wanted; when that was seen."""
    while True:
        watch = store.watch()
        try:
            if is_so(await watch.get(path)):
                return time.monotonic()
            await watch.changed()
        finally:
            watch.close()


async def kill_owner(cluster: LocalCluster, load: TopicLoad) -> dict[str, Any]:
    """Kill the owner, and follow its topics until all have another receipt; what took how long, in ms from the kill."""
    names = [TopicName.parse(topic) for topic in load.topics]
    async with connect_to(cluster) as client:
        layout, store = client.layout, client.store
        nodes = await asyncio.gather(*(store.get(layout.topic(name)) for name in names))
        changed = [
            asyncio.create_task(until(store, layout.topic(name), _is_newer(node.version)))
            for name, node in zip(names, nodes, strict=True)
        ]
        await off(cluster.signal_broker, OWNER)
        killed_s = load.mark()
        expired_s = await until(store, _node(layout), lambda node: node is None)
        recovered_s = max(await asyncio.gather(*changed))
        receipts_s = await off(load.resumed)
    times = {
        "expired_ms": expired_s,
        "recovered_ms": recovered_s,
        "first_ms": receipts_s[0],
        "median_ms": receipts_s[len(receipts_s) // 2],
        "resumed_ms": receipts_s[-1],
    }
    return {name: round(1000 * (at_s - killed_s), 1) for name, at_s in times.items()}


def _is_newer(version: int) -> Callable[[Versioned[bytes] | None], bool]:
    return lambda node: node is not None and node.version > version


def _node(layout: Layout) -> str:
    return layout.broker(OWNER)


@pytest.fixture
def cost(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes what a loss cost, after it looked whether that is what is promised: no message."""

    def noted(loss: str, load: TopicLoad, judged: tuple[int, int], figures: dict[str, float]) -> None:
        acknowledged, lost = judged
        assert acknowledged >= len(load.topics)
        assert lost == 0
        assert load.failed == 0
        note(
            "broker",
            request.node.nodeid,
            loss=loss,
            topics=len(load.topics),
            acknowledged=acknowledged,
            lost=lost,
            load=round(os.getloadavg()[0], 1),
            **figures,
        )

    return noted


async def test_a_killed_broker_s_topic_has_its_next_receipt_from_another_one(
    own_cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with owned(own_cluster, ["slo-killed"], FAST_S) as load:
        figures = await kill_owner(own_cluster, load)
        cost("a broker, SIGKILLed, with one topic", load, await off(load.judge), figures)


async def test_all_topics_of_a_killed_broker_have_their_next_receipt_from_another_one(
    own_cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    topics = [f"slo-many-{number}" for number in range(MANY)]
    async with owned(own_cluster, topics, SLOW_S) as load:
        figures = await kill_owner(own_cluster, load)
        cost(f"a broker, SIGKILLed, with {MANY:,} topics", load, await off(load.judge), figures)


async def test_an_unloaded_topic_has_its_next_receipt_from_another_broker(
    own_cluster: LocalCluster, cost: Callable[..., None]
) -> None:
    async with owned(own_cluster, ["slo-unloaded"], FAST_S) as load:
        owner = own_cluster.file.broker(OWNER)
        url = f"{owner.admin_url}/admin/v2/persistent/public/default/slo-unloaded/unload"
        began_s = load.mark()
        answer = await off(urlopen, Request(url, method="PUT"))
        answer.close()
        unloaded_ms = 1000 * (time.monotonic() - began_s)
        load.mark(keep_gap=True)
        await off(load.resumed)
        gap_ms = 1000 * load.longest_gap_s
        figures = {"recovered_ms": round(unloaded_ms, 1), "resumed_ms": round(gap_ms, 1)}
        cost("none: a graceful unload of one topic", load, await off(load.judge), figures)
