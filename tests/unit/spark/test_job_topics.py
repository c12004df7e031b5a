"""Which topics a job takes, read from metadata: partitions, pools, and what is missing."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_spark.brokers import admin_of
from daybook_spark.jobs.topics import topics_of
from daybook_spark.options import OptionError, Where

from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.metadata.brokers import BrokerDirectory, BrokerInfo, Urls
from daybook.metadata.partitions import PartitionManager, partition
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import IncompleteListingError
from tests.unit.metadata.harness import LAYOUT, formatted, memory_opener

POOL = "data.fast"
PARTED = TopicName("shop", "eu", "parted")
A, B, C = TopicName("public", "default", "a"), TopicName("shop", "eu", "b"), TopicName("shop", "us", "c")
WHERE = Where("127.0.0.1:1", "test")


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    """Topics `a`, `b`, `c` and two of three partitions; `c` is of a pool by itself, the namespace of `b` is of it, too."""
    _, opener = memory_opener()
    store = await opener()
    await formatted(store)
    topics = TopicManager(store, LAYOUT)
    await topics.create(A)
    await topics.create(B, {"sorting": {"schedule": "@daily"}})
    await topics.create(C, {"pool": POOL})
    await PartitionManager(store, LAYOUT).create(PARTED, 3)
    for number in range(2):
        await topics.create(partition(PARTED, number), {"pool": ""})
    policies = PolicyManager(store, LAYOUT)
    current = await policies.namespace("shop", "eu")
    await policies.set_namespace("shop", "eu", current, type(current.value)(pool=POOL))
    yield SimpleNamespace(store=store, layout=LAYOUT)
    await store.close()


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection(), (A, B, partition(PARTED, 0), partition(PARTED, 1), C)),
        (Selection(topics=(B, A)), (A, B)),
        (Selection(topics=(PARTED,)), (partition(PARTED, 0), partition(PARTED, 1))),
        (Selection(namespaces=(("shop", "us"),)), (C,)),
        (Selection(pool=POOL), (B, C)),
        (Selection(pool="data.slow"), ()),
        (Selection(pool="data.slow", with_poolless=True), (A, partition(PARTED, 0), partition(PARTED, 1))),
        (Selection(pool=POOL, schedule="@daily"), (B,)),
    ],
)
async def test_a_job_takes_the_topics_that_are_asked_for(
    client: Any, selection: Selection, found: tuple[TopicName, ...]
) -> None:
    assert await topics_of(client, selection, "sorting") == found


@pytest.mark.parametrize(
    "selection",
    [Selection(topics=(TopicName("no", "such", "topic"),)), Selection(namespaces=(("no", "such"),))],
)
async def test_what_is_named_and_does_not_exist_is_an_error(client: Any, selection: Selection) -> None:
    with pytest.raises(NoSuchTopicError):
        await topics_of(client, selection, "sorting")


async def test_rule_28_without_the_directory_of_topics_there_is_no_list_of_them(client: Any) -> None:
    _, opener = memory_opener()
    store = await opener()
    unformatted: Any = SimpleNamespace(store=store, layout=LAYOUT)
    with pytest.raises(IncompleteListingError):
        await topics_of(unformatted, Selection(), "sorting")
    await store.close()


async def test_without_a_broker_a_job_says_so(client: Any) -> None:
    with pytest.raises(OptionError, match="nothing was changed; start a broker"):
        await admin_of(client, WHERE)
    info = BrokerInfo("broker-7", admin_urls=Urls("http://127.0.0.1:2"))
    await BrokerDirectory(client.store, LAYOUT).register(info, client.store.session.session_id)
    assert (await admin_of(client, WHERE)).urls == ("http://127.0.0.1:2",)
