"""A compaction by a topic's owner that fails half-way: the list names what it named before, and the next compaction does all of it."""

import asyncio
from typing import Any

import pulsar
import pytest
from daybook_broker.errors import AlreadyRunningError
from daybook_broker.topics.compacted_reads import CompactedReads
from daybook_broker.topics.compaction import CompactionState

from daybook.core.errors import DaybookError
from tests.unit.broker.consuming.conftest import ServedBroker
from tests.unit.broker.consuming.test_compacted import BEFORE, LEFT, compact, keyed, publish, read
from tests.unit.broker.kit import new_topic

pytestmark = pytest.mark.integration


async def failing(*_: Any, **__: Any) -> Any:
    msg = "this step fails"
    raise DaybookError(msg)


@pytest.mark.parametrize(
    "step",
    [
        "create_ledger",
        pytest.param("append_many", marks=pytest.mark.pure),
        pytest.param("close", marks=pytest.mark.pure),
        "name_compaction",
    ],
)
def test_rule_52_a_compaction_that_fails_at_any_step_names_nothing_and_the_next_one_does_all_of_it(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE, batch=5)
    compact(served, topic)
    found = served.topic(topic)
    former = found.ledger_list.compaction
    assert former is not None
    tail = [("k0", "new"), ("k2", "")]
    publish(client, topic, tail, batch=2)
    create = served.broker.client.create_ledger

    async def create_broken(**wish: Any) -> Any:
        handle = await create(**wish)
        monkeypatch.setattr(handle, step, failing)
        return handle

    async def work() -> None:
        found.compaction.begin()
        await found.compaction.finished()

    with monkeypatch.context() as patch:
        if step == "name_compaction":
            patch.setattr(found, step, failing)
        else:
            patch.setattr(
                served.broker.client, "create_ledger", failing if step == "create_ledger" else create_broken
            )
        served.call(work())
    assert (found.compaction.state, found.compaction.error) == (CompactionState.ERROR, "this step fails")
    assert found.ledger_list.compaction == former
    assert keyed(read(client, topic)) == [*LEFT, *tail]
    compact(served, topic)
    assert found.ledger_list.compaction is not None
    assert found.ledger_list.compaction.horizon == found.extent.last_confirmed
    assert keyed(read(client, topic)) == [LEFT[2], LEFT[3], ("k0", "new")]


def test_nothing_is_compacted_while_what_was_compacted_is_given_up(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    compact(served, topic)
    found = served.topic(topic)
    name_compaction = found.name_compaction

    async def work() -> None:
        is_asked, may_change = asyncio.Event(), asyncio.Event()

        async def name_later(wish: Any) -> None:
            is_asked.set()
            await may_change.wait()
            await name_compaction(wish)

        with monkeypatch.context() as patch:
            patch.setattr(found, "name_compaction", name_later)
            giving_up = asyncio.create_task(found.compaction.give_up())
            await is_asked.wait()
            with pytest.raises(AlreadyRunningError):
                found.compaction.begin()
            may_change.set()
            await giving_up

    served.call(work())
    assert found.ledger_list.compaction is None
    assert found.compaction.state is CompactionState.SUCCESS, "that of the last compaction"
    compact(served, topic)
    assert keyed(read(client, topic)) == [*LEFT]


def test_a_compaction_whose_former_one_leaves_the_list_meanwhile_ends_with_an_error(
    served: ServedBroker, client: pulsar.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    publish(client, topic, BEFORE)
    compact(served, topic)
    publish(client, topic, [("k0", "new")])
    found = served.topic(topic)
    read_former = CompactedReads.read

    async def read_too_late(reads: CompactedReads, *wish: Any) -> Any:
        await found.name_compaction(None)
        return await read_former(reads, *wish)

    async def work() -> None:
        found.compaction.begin()
        await found.compaction.finished()

    with monkeypatch.context() as patch:
        patch.setattr(CompactedReads, "read", read_too_late)
        served.call(work())
    assert found.compaction.state is CompactionState.ERROR
    assert "was replaced or given up meanwhile" in found.compaction.error
    compact(served, topic)
    assert keyed(read(client, topic)) == [*LEFT[1:], ("k0", "new")]
