"""Mutants of a subscription's delivery: one active consumer, nothing forgotten, the order of what is delivered again."""

from functools import partial
from typing import Any

from daybook.core.topics.dispatch import chunks, new_entries, shared, single, unacked
from daybook.core.topics.dispatch.active import choose_active
from tests.model.mutants.registry import around, instead_of, mutant

_NOT_SIMULATED = "the simulator has no subscriptions; tests/unit/core/topics/dispatch/test_histories.py draws their histories"
by_test = partial(mutant, not_simulated=_NOT_SIMULATED)

SINGLE = "tests/unit/core/topics/dispatch/test_single.py"
FAILOVER = "tests/unit/core/topics/dispatch/test_failover.py"
SHARED = "tests/unit/core/topics/dispatch/test_shared.py"
HISTORIES = "tests/unit/core/topics/dispatch/test_histories.py"

SWITCH = f"{FAILOVER}::test_rule_64_the_former_active_consumer_is_notified_and_has_time_to_acknowledge_before_another_one_is_active"


@by_test(64, SWITCH)
@instead_of(single.SingleDispatch, "_choose")
def the_former_one_stays_active(self: Any, out: list[Any]) -> None:
    """Another consumer becomes active, and nobody notifies the former one: two are."""
    chosen = choose_active(self.consumers.values(), self._topic, self._partition)
    if chosen is not None and chosen is not self.active:
        self._former = self.active = chosen
        self._rewind()
        self._announce(chosen, out, is_active=True)


@by_test(64, f"{FAILOVER}::test_rule_64_a_consumer_that_left_is_not_waited_for")
@instead_of(new_entries.NewEntries, "rewind")
def the_next_one_continues_where_the_former_one_was(_self: Any) -> None:
    """What the former one has received and not acknowledged has no receiver."""


@by_test(
    65,
    f"{SINGLE}::test_rule_65_redelivery_begins_again_behind_the_mark_delete_position_and_leaves_out_what_is_acknowledged",
)
@instead_of(new_entries.NewEntries, "rewind")
def holes_are_dropped(self: Any) -> None:
    """Delivery begins again behind the last entry that is acknowledged, and the holes before it are forgotten."""
    self.waiting.clear()
    self._next = self._acks.mark_delete
    while (run := self._acks.run(self._next, 1)) is not None and not self._acks.is_acked(run[:2]):
        following = self._acks.next_unacked((run[0], run[2] + 1))
        self._next = following
        if following[1] != run[2] + 1:
            return


@by_test(
    65, f"{FAILOVER}::test_rule_65_the_former_one_that_asks_for_redelivery_during_the_switch_begins_again"
)
@around(single.SingleDispatch, "_deliver_again")
def the_former_one_asks_in_vain(deliver_again: Any, self: Any, event: Any) -> None:
    """Nobody is active during a switch, so that what the former consumer asks for is forgotten, and it may be active again."""
    if self.active is not None:
        deliver_again(self, event)


@by_test(65, f"{SHARED}::test_rule_65_a_lower_position_that_becomes_due_goes_first")
@around(shared.SharedDispatch, "_take")
def what_is_due_is_delivered_as_it_was_read(take: Any, self: Any) -> Any:
    """The last entry that was read is delivered first."""
    if not self._again:
        return take(self)
    position, entry = self._again.popitem()
    self._redelivery.delivered(position)
    return entry


@by_test(65, f"{SHARED}::test_rule_65_new_entries_wait_until_what_is_due_is_read")
@around(shared.SharedDispatch, "_take")
def new_entries_overtake_what_is_due(take: Any, self: Any) -> Any:
    """What is new goes first, whatever is due."""
    return self._new.take() or take(self)


@by_test(65, f"{SHARED}::test_rule_65_what_a_consumer_had_goes_to_others_in_order_and_before_what_is_new")
@around(unacked.Unacked, "remove_consumer")
def what_a_consumer_had_leaves_with_it(remove_consumer: Any, self: Any, consumer: Any) -> list[Any]:
    """Nobody else receives what a consumer that left has not acknowledged."""
    remove_consumer(self, consumer)
    return []


@by_test(65, f"{SHARED}::test_rule_65_what_a_consumer_gives_back_is_with_the_next_one_alone")
@around(unacked.Unacked, "take_back")
def an_entry_is_with_two_consumers(take_back: Any, self: Any, consumer: Any, positions: Any = None) -> Any:
    """What a consumer gives back stays with it as well."""
    held = dict(self._held[consumer.key])
    taken = take_back(self, consumer, positions)
    self._held[consumer.key] = held
    return taken


@by_test(
    65,
    "tests/unit/core/topics/dispatch/test_chunks.py::test_rule_65_all_chunks_of_a_message_go_to_the_consumer_of_the_first",
)
@instead_of(chunks.ChunkHolders, "receiver")
def chunks_go_to_whoever_is_next(_self: Any, _entry: Any, turn: int) -> int:
    """The chunks of a message go to the consumers in turn, none of which can ever acknowledge it."""
    return turn
