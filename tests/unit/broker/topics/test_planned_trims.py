"""A trim that a job has planned, on a topic that is about to change its list otherwise."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest
from daybook_broker.topics.planned_trims import trim_planned

from daybook.core.errors import LedgersNeededError
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState, Position
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.trimming import Retention

FIRST = ListedLedger(1, 0, 2, 20, closed_at_ms=0, last_published_at_ms=0)
OPEN = ListedLedger(2, 0)
PLANNED = [PlannedLedger(1, 2, 20)]


class BusyTopic:
    """A topic that drops so many orders before it carries one out, and tells news after each."""

    def __init__(self, dropped: int) -> None:
        self.name = "orders"
        self.ledger_list = LedgerList(ListState.OPEN, (FIRST, OPEN), Position(1, 1))
        self.policy = SimpleNamespace(retention=Retention())
        self.compaction = SimpleNamespace(mark=None)
        self.marks = {"s": Position(2, -1)}
        self.comes: dict[str, Position] = {}
        """Who subscribes after the first order."""
        self.orders: list[Collection[Position]] = []
        self.subscriptions = SimpleNamespace(opened=self.read_policy, marks_by_name=lambda: self.marks)
        self._dropped = dropped

    async def read_policy(self) -> None:
        """Nothing is to be waited for."""

    def check_open(self) -> None:
        """It is open."""

    def trim_to(self, marks: Collection[Position]) -> None:
        self.orders.append(marks)
        self.marks |= self.comes
        if len(self.orders) > self._dropped:
            self.ledger_list = LedgerList(ListState.OPEN, (OPEN,), Position(1, 1))

    async def changed(self, is_done: Callable[[], bool]) -> None:
        while not is_done():  # which gives the order again
            assert len(self.orders) < 10


async def trimmed(topic: BusyTopic) -> None:
    await trim_planned(cast("Any", topic), PLANNED)


@pytest.mark.parametrize("dropped", [0, 1, 3])
async def test_rule_51_an_order_that_was_dropped_is_given_again_with_the_marks_of_then(dropped: int) -> None:
    topic = BusyTopic(dropped)
    await trimmed(topic)
    assert topic.ledger_list.ids == {2}
    assert topic.orders == [(Position(2, -1), Position(1, 1))] * len(topic.orders)
    assert len(topic.orders) == dropped + 1


async def test_rule_51_who_comes_between_two_orders_keeps_the_ledger() -> None:
    topic = BusyTopic(1)
    topic.comes = {"new": Position(1, -1)}
    with pytest.raises(LedgersNeededError, match="new"):
        await trimmed(topic)
    assert topic.ledger_list.ids == {1, 2}
