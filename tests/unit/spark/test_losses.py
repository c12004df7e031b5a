"""What a query reports as lost, by a topic's list and by the node of its subscription's cursor, on metadata alone."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_spark.plan.existing import TopicPart, part_of
from daybook_spark.stream.losses import came_later, why_beginning_lost, why_lost

from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager
from tests.unit.metadata.harness import formatted, memory_opener
from tests.unit.spark.test_offsets import topic

PART = TopicPart(TopicName.parse("persistent://public/default/orders"), "orders")
START = Position(1, 2)
TRIMMED = topic([3, 3], trimmed=1, follows=Position(1, 2))
"""Ledger 1 is gone with its entry 1:2, and ledger 2 says so."""
OF_EARLIER = topic([3, 3], trimmed=1)
"""The same, as an earlier release has it."""
AGAIN = topic([0, 3], trimmed=1, follows=NO_POSITION)
"""Another topic of the name: ledger 2 is its first one."""


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    """A client of a cluster with the topic, without subscriptions."""
    _, opener = memory_opener()
    store = await opener()
    layout = await formatted(store)
    await TopicManager(store, layout).create(PART.name)
    yield SimpleNamespace(store=store, layout=layout)
    await store.close()


async def subscribe(client: Any, mark_delete: Position) -> None:
    record = CursorRecord(mark_delete)
    await TopicManager(client.store, client.layout).create_cursor(PART.name, "s", record, list_version=0)


async def test_a_loss_is_reported_although_the_cursors_node_is_older_than_what_was_trimmed(
    client: Any,
) -> None:
    await subscribe(client, Position(1, 0))
    why = await why_lost(client, PART, TRIMMED, START, "s")
    assert why.startswith("somebody moved the subscription 's'")
    assert "beyond 1:2" in why


async def test_of_a_list_of_an_earlier_release_a_cursor_that_was_not_passed_has_lost_nothing(
    client: Any,
) -> None:
    await subscribe(client, Position(1, 0))
    assert not await why_lost(client, PART, OF_EARLIER, START, "s")


@pytest.mark.parametrize("extent", [TRIMMED, OF_EARLIER])
async def test_a_cursor_that_somebody_moved_is_named(client: Any, extent: TopicExtent) -> None:
    await subscribe(client, Position(2, 0))
    assert "to 2:0, beyond 1:2" in await why_lost(client, PART, extent, START, "s")


async def test_a_subscription_that_somebody_deleted_is_named(client: Any) -> None:
    why = await why_lost(client, PART, TRIMMED, START, "s")
    assert "was deleted, and entries from 1:2 on were trimmed" in why


async def test_without_a_subscription_retention_took_the_entries(client: Any) -> None:
    assert "its retention took the entries between" in await why_lost(client, PART, TRIMMED, START, "")


async def test_what_was_read_before_it_was_trimmed_is_no_loss(client: Any) -> None:
    await subscribe(client, Position(1, 0))
    assert not await why_lost(client, PART, TRIMMED, Position(1, 3), "s")
    assert not await why_lost(client, PART, TRIMMED, Position(1, 3), "")


@pytest.mark.parametrize("subscription", ["", "s"])
async def test_a_topic_that_was_deleted_and_created_again_may_have_had_entries_that_were_not_read(
    client: Any, subscription: str
) -> None:
    why = await why_lost(client, PART, AGAIN, START, subscription)
    assert (
        "was deleted and created again, or a person closed a ledger of it without recovery, after the query had read up to 1:2"
        in why
    )
    assert "may be lost" in why


def part(name: str) -> TopicPart:
    return part_of(TopicName.parse(f"persistent://{name}"))


@pytest.mark.parametrize(
    ("name", "known", "namespaces", "is_later"),
    [
        ("t/n/a-partition-1", ["t/n/a-partition-0"], [], True),
        ("t/n/a-partition-1", ["t/n/b-partition-0"], [], False),
        ("t/n/a", ["t/n/b"], ["t/n"], True),
        ("t/n/a", ["t/m/b"], ["t/n", "t/m"], False),
        ("t/n/a", ["t/n/b"], [], False),
        ("t/n/a", [], ["t/n"], True),
    ],
)
def test_a_topic_came_later_unless_the_options_may_have_brought_it(
    name: str, known: list[str], namespaces: list[str], is_later: bool
) -> None:
    names = [str(part(each).name) for each in known]
    assert came_later(part(name), names, namespaces) is is_later


@pytest.mark.parametrize(
    ("extent", "start_time_ms", "is_lost"),
    [
        (TRIMMED, None, True),
        (topic([3], trimmed=1), None, True),
        (OF_EARLIER, None, False),
        (topic([3], follows=NO_POSITION), None, False),
        (topic([]), None, False),
        (TRIMMED, 0, False),
        (TRIMMED, -1, True),
    ],
)
def test_of_a_topic_that_came_later_all_that_is_known_to_be_trimmed_and_was_wanted_is_lost(
    extent: TopicExtent, start_time_ms: int | None, is_lost: bool
) -> None:
    """The ledgers were created at 0 ms."""
    assert bool(why_beginning_lost(PART, extent, start_time_ms)) is is_lost
