"""A compaction by a topic's owner that fails half-way: the list names what it named before, and the next compaction does all of it."""

from typing import Any

import pulsar
import pytest
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
