"""What a subscription has acknowledged, beside a model that keeps every entry and every message of a batch."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics import acks as module
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import AckedRange, CursorRecord
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.unit.core.topics.lists import closed_list, extent_of, open_list, positions, topics

BATCH = 3
"""Every entry of the model may be a batch of so many messages."""


@dataclass
class Model:
    """The messages that are not acknowledged, of each entry in order."""

    entries: list[Position]
    left: dict[Position, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is acknowledged."""
        self.left = {position: set(range(BATCH)) for position in self.entries}

    @property
    def unacked(self) -> list[Position]:
        return [position for position in self.entries if self.left[position]]

    def ack(self, position: Position, messages: set[int] | None = None) -> bool:
        had = bool(self.left.get(position))
        if had:
            self.left[position] -= set(range(BATCH)) if messages is None else messages
        return had and not self.left[position]

    def has_had(self, position: Position) -> bool:
        """Whether there is such an entry, or there may have been one, or it is what is before an entry 0."""
        is_known = position in self.entries or position.behind in self.entries
        return is_known or position < min(self.entries, default=NO_POSITION)

    def ack_through(self, position: Position) -> None:
        for each in self.entries:
            if each <= position:
                self.left[each] = set()


def word(left: set[int]) -> tuple[int, ...]:
    return (sum(1 << message for message in left),)


def check(acks: AckState, model: Model) -> None:
    unacked = model.unacked
    assert acks.unacked_entries() == len(unacked)
    for position in model.entries:
        left = model.left[position]
        assert acks.is_acked(position) is not bool(left), position
        assert acks.ack_set(position) == (word(left) if 0 < len(left) < BATCH else ()), position
        later = [each for each in model.entries if each >= position]
        untouched = all(len(model.left[each]) == BATCH for each in later)
        assert untouched or not acks.is_untouched_from(position)
        following = [each for each in unacked if each >= position]
        found = acks.next_unacked(position)
        assert found == following[0] if following else found > model.entries[-1]
        run = acks.run(position, 3)
        if following:
            assert run is not None
            mine = [Position(run[0], entry) for entry in range(run[1], run[2] + 1)]
            assert mine == following[: len(mine)], "a run has no acknowledged entries"
        else:
            assert run is None
    before = [position for position in model.entries if not unacked or position < unacked[0]]
    assert not before or acks.mark_delete == before[-1], "the mark-delete position moves as far as it can"
    assert all(position > acks.mark_delete for position in unacked)
    for n in range(4):
        expected = unacked[n - 1] if 0 < n <= len(unacked) else None
        assert expected is None or acks.nth_unacked(n) == expected


steps = st.one_of(
    st.tuples(st.just("ack"), positions),
    st.tuples(st.just("batch"), positions, st.sets(st.integers(0, BATCH - 1))),
    st.tuples(st.just("through"), positions),
    st.tuples(st.just("through"), positions, st.sets(st.integers(0, BATCH - 1), min_size=1, max_size=2)),
    st.tuples(st.just("absent"), positions, positions),
    st.tuples(st.just("restart")),
    st.tuples(st.just("reset"), positions),
)


@given(topics(), st.lists(steps, max_size=25))
def test_whatever_is_acknowledged_in_any_order_the_state_is_that_of_the_model(
    topic: tuple[TopicExtent, list[Position]], history: list[Any]
) -> None:
    extent, entries = topic
    acks, model = AckState(extent), Model(entries)
    for step in history:
        before, version = acks.record(10**6), acks.version
        take(acks, model, step)
        if step[0] == "restart":
            acks = AckState(extent, CursorRecord.from_json(before.to_json()))
        elif acks.version == version:
            assert acks.record(10**6) == before, "a change without a version"
        check(acks, model)


def take(acks: AckState, model: Model, step: Any) -> None:
    match step:
        case ("ack", position):
            assert acks.ack(position) is model.ack(position)
        case ("batch", position, acked):
            left = set(range(BATCH)) - acked
            assert acks.ack_batch(position, word(left), BATCH) is model.ack(position, acked)
        case ("through", position):
            acks.ack_through(position)
            if model.has_had(position):
                model.ack_through(position)
        case ("through", position, acked):
            acks.ack_through(position, word(set(range(BATCH)) - acked), BATCH)
            if model.has_had(position):
                model.ack_through(position.before)
                model.ack(position, acked)
        case ("absent", first, end):
            acks.ack_absent(first, end)
            for each in model.entries:
                if first <= each < end:
                    model.left[each] = set()
        case ("reset", position):
            acks.reset(position)
            for each in model.entries:
                model.left[each] = set(range(BATCH)) if each > position else set()


@pytest.mark.parametrize("seed", range(60))
def test_histories_of_entries_that_exist_lead_to_the_state_of_the_model(seed: int) -> None:
    rng = random.Random(seed)
    extent = extent_of((1, 8), (2, 0), (4, 9), open_with=(5, 7))
    entries = [Position(ledger, n) for ledger, count in ((1, 8), (4, 9), (5, 7)) for n in range(count)]
    acks, model = AckState(extent), Model(entries)
    for _ in range(40):
        position, part = rng.choice(entries), set(rng.sample(range(BATCH), rng.randint(0, BATCH)))
        kinds = ("ack", "ack", "ack", "batch", "batch", "through", "reset")
        kind = rng.choices(kinds, (9, 9, 9, 9, 9, 1, 1))[0]
        take(acks, model, (kind, position, part) if kind == "batch" else (kind, position))
        check(acks, model)


def test_in_order_the_mark_delete_position_follows_over_the_ends_of_ledgers() -> None:
    acks = AckState(extent_of((1, 2), (2, 0), open_with=(5, 2)))
    for position in (Position(1, 0), Position(1, 1), Position(5, 0), Position(5, 1)):
        assert acks.ack(position)
        assert acks.mark_delete == position
        assert not acks.ack(position)
    assert acks.version == 4
    assert not acks.ack(Position(5, 2)), "it does not exist yet"


def test_holes_that_are_filled_move_the_mark_over_ledgers() -> None:
    acks = AckState(extent_of((1, 3), (5, 3)))
    for position in (Position(5, 1), Position(5, 0), Position(1, 2), Position(1, 1)):
        assert acks.ack(position)
    assert acks.mark_delete == NO_POSITION
    assert acks.range_count == 2
    assert acks.ack(Position(1, 0))
    assert acks.mark_delete == Position(5, 1)
    assert acks.range_count == 0
    assert acks.unacked_entries() == 1


def test_a_cumulative_acknowledgement_passes_the_ranges_of_several_ledgers() -> None:
    acks = AckState(extent_of((1, 3), (2, 3), (5, 5)))
    for position in (Position(1, 1), Position(2, 2), Position(5, 1), Position(5, 3)):
        acks.ack(position)
    acks.ack_through(Position(5, 0))
    assert acks.mark_delete == Position(5, 1)
    assert acks.unacked_entries() == 2
    assert acks.range_count == 1


@pytest.mark.parametrize("words", [(), (1,)])
def test_rule_40_a_position_that_the_topic_never_had_acknowledges_nothing(words: tuple[int, ...]) -> None:
    extent = extent_of((1, 2), (4, 100))
    acks = AckState(extent)
    for position in ((1, 2), (4, 100), (4, 2**64 - 1), (4, -2), (0, -2), (3, 0), (9, -1), (9, 9)):
        acks.ack_through(Position(*position), words, 2)
        assert acks.mark_delete == NO_POSITION, position
    extent.update(open_list((1, 2), (4, 100), open_id=9))
    acks.ack_through(Position(9, 0), words, 2)
    extent.confirm(Position(9, 0))
    assert acks.unacked_entries() == 103


def test_a_cumulative_acknowledgement_of_what_is_before_entry_0_passes_the_ledgers_before() -> None:
    acks = AckState(extent_of((1, 2), (4, 100)))
    acks.ack_through(Position(1, -1))
    assert acks.unacked_entries() == 102
    acks.ack_through(Position(4, -1))
    assert (acks.mark_delete, acks.unacked_entries()) == (Position(1, 1), 100)


def test_a_record_of_a_topic_that_lost_its_end_skips_nothing_that_comes_later() -> None:
    record = CursorRecord(Position(4, 7), (AckedRange(4, 9, 9),), ((Position(4, 8), (1,)),))
    acks = AckState(extent_of((4, 3)), record)
    assert acks.mark_delete == Position(4, 2)
    assert acks.record(10) == CursorRecord(Position(4, 2))


def test_a_record_is_taken_as_far_as_its_ledgers_exist() -> None:
    record = CursorRecord(
        Position(3, 1), (AckedRange(3, 3, 5), AckedRange(4, 0, 9), AckedRange(6, 1, 1), AckedRange(7, 0, 1))
    )
    acks = AckState(extent_of((4, 3), (6, 4)), record)
    assert acks.mark_delete == Position(4, 2)
    assert acks.record(10).ranges == (AckedRange(6, 1, 1),)


@pytest.mark.parametrize("next_ack", [Position(2, 0), Position(1, 3)])
def test_a_range_that_has_lost_its_ledger_is_forgotten_once_the_mark_has_passed_it(
    next_ack: Position,
) -> None:
    extent = extent_of((1, 4), (2, 3))
    acks = AckState(extent)
    acks.ack(Position(1, 0))
    acks.ack(Position(1, 2))
    extent.update(closed_list((2, 3)))
    if next_ack < extent.first:
        acks.delivers(next_ack, (), 0)  # a compaction left it
    acks.ack(next_ack)
    assert acks.record(10) == CursorRecord(next_ack)
    assert acks.range_count == 0
    assert acks.unacked_entries() == extent.count(next_ack)


def test_a_batch_is_acknowledged_message_by_message() -> None:
    acks = AckState(extent_of((1, 2)))
    full = (-1, 0b11)
    assert not acks.ack_batch(Position(1, 0), full, 66)
    assert acks.ack_set(Position(1, 0)) == ()
    assert not acks.ack_batch(Position(1, 0), (-(2**63),), 66)
    assert acks.ack_set(Position(1, 0)) == (-(2**63),)
    assert CursorRecord.from_json(acks.record(1).to_json()).batches == ((Position(1, 0), (-(2**63),)),)
    version = acks.version
    assert not acks.ack_batch(Position(1, 0), full, 66)
    assert acks.version == version
    assert acks.ack_batch(Position(1, 0), (2**63 - 1,), 0)
    assert acks.mark_delete == Position(1, 0)
    assert not acks.ack_batch(Position(1, 0), (1,), 66)


def test_passed_batches_are_forgotten() -> None:
    acks = AckState(extent_of((1, 10)))
    for entry in range(10):
        acks.ack_batch(Position(1, entry), (1,), 2)
    acks.ack_through(Position(1, 4))
    assert acks.ack_set(Position(1, 4)) == ()
    assert acks.fits(5)
    assert not acks.fits(4)
    assert [position.entry_id for position, _ in acks.record(100).batches] == [5, 6, 7, 8, 9]
    for entry in range(5, 10):
        acks.ack_through(Position(1, entry))
    assert acks.record(100).batches == ()


def test_rule_40_a_record_has_so_many_ranges_and_batches_and_no_more() -> None:
    acks = AckState(extent_of((1, 100), (2, 100)))
    for ledger_id in (1, 2):
        for entry in range(1, 100, 2):
            acks.ack(Position(ledger_id, entry))
            acks.ack_batch(Position(ledger_id, entry - 1), (1,), 2)
    assert acks.range_count == 100
    record = acks.record(60)
    assert len(record.ranges) == len(record.batches) == 60
    assert record.ranges[-1] == AckedRange(2, 19, 19)
    assert record == acks.record(10**6).limited(60)
    again = AckState(extent_of((1, 100), (2, 100)), record)
    assert not again.is_acked(Position(2, 21)), "it is delivered again"
    assert again.is_acked(Position(2, 19))


def test_a_record_has_so_many_words_and_no_more() -> None:
    acks = AckState(extent_of((1, 9)))
    large = [1] * module.BATCH_WORDS_MAX
    for entry in range(9):
        acks.ack_batch(Position(1, entry), large, 64 * module.BATCH_WORDS_MAX)
    assert len(acks.record(130).batches) == 2


def test_what_would_take_too_much_memory_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RANGES_MAX", 2)
    monkeypatch.setattr(module, "BATCHES_MAX", 2)
    acks = AckState(extent_of((1, 20), (2, 20)))
    assert acks.ack(Position(1, 5))
    assert acks.ack(Position(1, 7))
    assert not acks.ack(Position(1, 9))
    assert not acks.ack(Position(2, 5))
    assert acks.ignored == 2
    assert acks.ack(Position(1, 6))
    assert acks.ack(Position(1, 4))
    assert acks.ack(Position(2, 5))
    for entry in range(4):
        acks.ack_batch(Position(1, entry), (1,), 2)
    assert acks.ignored == 4
    acks.ack_batch(Position(1, 0), (0b10,), 2)
    assert acks.mark_delete == Position(1, 0)
    acks.ack_batch(Position(1, 2), (1,), 2)
    acks.ack_through(Position(1, 1))
    acks.ack_batch(Position(1, 3), (1,), 2)
    assert acks.ignored == 4
    acks.ack_batch(Position(2, 0), (1,) * (module.BATCH_WORDS_MAX + 1), 0)
    acks.ack_batch(Position(2, 0), (1,), 10**9)
    assert acks.ignored == 6


def test_a_seek_stays_within_the_topic() -> None:
    extent = TopicExtent(closed_list((4, 3), (6, 2), last_confirmed=Position(6, 1)))
    acks = AckState(extent)
    acks.ack(Position(6, 0))
    acks.reset(NO_POSITION)
    assert acks.mark_delete == Position(4, -1)
    assert acks.resets == 1
    assert acks.unacked_entries() == 5
    acks.reset(Position(99, 0))
    assert acks.mark_delete == Position(6, 1)
    extent.update(open_list(open_id=9, last_confirmed=Position(6, 1)))
    acks.reset(NO_POSITION)
    assert acks.next_unacked(NO_POSITION) == Position(9, 0)


def test_a_reader_of_what_is_compacted_may_be_before_all_that_exists() -> None:
    acks = AckState(TopicExtent(closed_list((4, 3), (6, 2))))
    acks.reset(Position(1, 5), reaches_back=True)
    assert acks.mark_delete == Position(1, 5)
    acks.ack_through(Position(2, 0))
    assert acks.mark_delete == Position(2, 0), "what comes later and was trimmed is not received yet"
    acks.reset(Position(5, 0), reaches_back=True)
    assert acks.mark_delete == Position(4, 2)
    acks.reset(Position(6, 0), reaches_back=True)
    assert acks.mark_delete == Position(6, 0)


def test_what_a_compaction_removed_from_several_ledgers_is_passed_once_what_is_before_it_is_acknowledged() -> (
    None
):
    acks = AckState(extent_of((1, 3), (2, 2), (4, 5)))
    acks.ack_absent(Position(1, 1), Position(4, 3))
    assert (acks.mark_delete, acks.unacked_entries()) == (NO_POSITION, 3)
    acks.ack(Position(1, 0))
    assert acks.mark_delete == Position(4, 2)


@pytest.mark.parametrize("removed", [1, 6])
def test_of_batches_that_a_compaction_removed_nothing_is_left_to_acknowledge(removed: int) -> None:
    acks = AckState(extent_of((0, 9), (1, 9)))
    around = [Position(0, 1), Position(0, 2 + removed), Position(1, 2)]
    for position in (*around, Position(0, 2)):
        assert not acks.ack_batch(position, word({1, 2}), BATCH)
    acks.ack_absent(Position(0, 2), Position(0, 2 + removed))
    assert acks.is_acked(Position(0, 2))
    assert acks.ack_set(Position(0, 2)) == ()
    assert [position for position, _ in acks.record(10).batches] == around


def test_what_a_compaction_removed_is_ignored_beyond_the_ranges_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RANGES_MAX", 1)
    acks = AckState(extent_of((1, 9)))
    acks.ack_absent(Position(1, 2), Position(1, 4))
    acks.ack_absent(Position(1, 6), Position(1, 8))
    assert (acks.ignored, acks.range_count) == (1, 1)


def test_a_hundred_thousand_holes_in_any_order() -> None:
    entries = list(range(1, 200_001, 2))
    random.Random(1).shuffle(entries)
    acks = AckState(extent_of((1, 200_002)))
    for entry in entries:
        assert acks.ack(Position(1, entry))
    assert acks.range_count == 100_000
    assert acks.unacked_entries() == 100_002
    assert acks.next_unacked(Position(1, 100_001)) == Position(1, 100_002)
    for entry in range(0, 200_001, 2):
        assert acks.ack(Position(1, entry))
    assert acks.mark_delete == Position(1, 200_000)
    assert acks.range_count == 0
