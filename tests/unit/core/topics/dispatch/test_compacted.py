"""Subscriptions that read what is compacted: up to the horizon what a compaction left, then what the topic has."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from daybook.core.topics import acks
from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.dispatch.events import (
    Acked,
    AckedThrough,
    CompactedPart,
    ConsumerAdded,
    Deliver,
    DispatchEffect,
    EntriesAcked,
    EntriesExpected,
    EntriesRead,
    PermitsGranted,
    ReadEntries,
    RedeliveryRequested,
    SingleEvent,
)
from daybook.core.topics.dispatch.shared import SharedDispatch
from daybook.core.topics.dispatch.single import SingleDispatch
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import NO_POSITION, Position
from tests.unit.core.topics.lists import extent_of

OWN = 7
"""The one ledger of the topic that was not trimmed."""
ENTRIES = 8


class Reader:
    """The consumer of a topic that is compacted up to the entry 5 of its ledger; earlier ledgers are gone."""

    def __init__(self) -> None:
        self.extent: TopicExtent = extent_of(open_with=(OWN, ENTRIES))
        self.acks = AckState(self.extent, CursorRecord(NO_POSITION))
        self.horizon = Position(OWN, 5)
        self.machine = SingleDispatch("topic", self.extent, self.acks, horizon=lambda: self.horizon)
        self.asked: list[ReadEntries] = []
        self.received: list[tuple[Position, tuple[int, ...]]] = []
        self.step(ConsumerAdded(1, "c"))

    def step(self, event: SingleEvent) -> None:
        self._take(self.machine.step(event))

    def grant(self, permits: int) -> None:
        self.step(PermitsGranted(1, permits))

    def _take(self, effects: Sequence[DispatchEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                for index, entry in enumerate(effect.entries):
                    words = tuple(effect.ack_sets[index]) if effect.ack_sets else ()
                    self.received.append((entry.position, words))
            elif isinstance(effect, ReadEntries):
                self.asked.append(effect)

    def answer(
        self,
        *entries: tuple[Position, int],
        through: Position | None = None,
        left: Mapping[Position, Sequence[int]] | None = None,
    ) -> Position:
        """Answer the read that is under way, with a compacted part if it reaches `through`; where it was to begin."""
        asked = self.asked.pop(0)
        found = [TopicEntry(position, b"x", messages) for position, messages in entries]
        part = None if through is None else CompactedPart(through, left or {})
        self.step(EntriesRead(asked.request_id, found, part))
        return asked.position


def own(entry_id: int) -> Position:
    return Position(OWN, entry_id)


def test_a_reader_gets_what_is_left_of_trimmed_ledgers_and_then_the_topic() -> None:
    reader = Reader()
    reader.grant(100)
    old = Position(3, 1)
    assert reader.answer((old, 1), (own(2), 1), through=own(2)) == Position(-1, 0)
    assert reader.answer((own(4), 1), through=own(5)) == own(3)
    assert reader.answer((own(6), 1), (own(7), 1)) == own(6), "behind the horizon the topic itself is read"
    assert [position for position, _ in reader.received] == [old, own(2), own(4), own(6), own(7)]
    assert not reader.asked, "nothing is there yet"


def test_nothing_behind_entries_that_do_not_exist_any_more_counts_before_they_are_acknowledged() -> None:
    reader = Reader()
    reader.grant(100)
    early = [Position(3, 1), Position(3, 4), Position(4, 0)]
    reader.answer(*((each, 1) for each in early), (own(2), 1), (own(4), 1), through=own(5))
    for position in (own(2), early[1], Position(3, 2), early[2]):
        reader.step(EntriesAcked(1, [Acked(position)]))
    assert reader.acks.mark_delete == NO_POSITION
    assert reader.acks.record(10).ranges == (), "a record with them would pass the first early entry"
    reader.step(RedeliveryRequested(1))
    assert reader.asked.pop().position == Position(-1, 0)
    reader.step(EntriesAcked(1, [Acked(early[0])]))
    assert reader.acks.mark_delete == own(3)
    reader.step(EntriesAcked(1, [Acked(early[0])]))
    assert reader.acks.mark_delete == own(3)


def test_a_cumulative_acknowledgement_passes_early_entries_in_part_or_all_of_them() -> None:
    reader = Reader()
    reader.grant(100)
    early = [Position(3, 1), Position(3, 4)]
    reader.answer(*((each, 1) for each in early), (own(2), 1), (own(4), 1), through=own(5))
    reader.step(AckedThrough(1, Acked(early[0])))
    assert reader.acks.mark_delete == early[0]
    reader.step(EntriesAcked(1, [Acked(own(4))]))
    reader.step(AckedThrough(1, Acked(own(2))))
    assert reader.acks.mark_delete == own(5)
    reader.acks.delivers(early[1], (), 1)
    assert reader.acks.ack(own(6)), "what is acknowledged is not early"


def test_a_cumulative_acknowledgement_within_an_early_batch_passes_nothing_behind_it() -> None:
    reader = Reader()
    reader.grant(100)
    early = [Position(3, 1), Position(3, 4)]
    reader.answer(*((each, 2) for each in early), (own(2), 1), through=own(5))
    reader.step(AckedThrough(1, Acked(early[0], (0b10,), 2)))
    assert reader.acks.mark_delete == early[0].before
    reader.step(AckedThrough(1, Acked(early[1], (0b10,), 2)))
    assert reader.acks.mark_delete == early[1].before


def test_what_is_deferred_is_bounded_and_a_seek_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "RANGES_MAX", 1)
    reader = Reader()
    reader.grant(100)
    reader.answer((Position(3, 1), 1), (own(2), 1), (own(4), 1), through=own(4))
    assert reader.acks.ignored == 1
    reader.acks.reset(own(1))
    assert reader.acks.ack(own(2))
    assert reader.acks.mark_delete == own(2)


def test_what_a_compaction_removed_counts_as_acknowledged() -> None:
    reader = Reader()
    reader.grant(100)
    reader.answer((own(2), 1), (own(4), 1), through=own(5))
    assert reader.acks.unacked_entries() == 4
    for entry_id in (4, 2):
        reader.step(EntriesAcked(1, [Acked(own(entry_id))]))
    assert reader.acks.mark_delete == own(5)
    assert reader.acks.unacked_entries() == 2


def test_a_part_of_which_nothing_is_left_is_passed() -> None:
    reader = Reader()
    reader.grant(100)
    reader.answer(through=own(5))
    assert reader.acks.mark_delete == own(5)
    assert [asked.position for asked in reader.asked] == [own(6)]


def test_messages_that_were_removed_from_a_batch_are_cleared_also_where_the_topic_has_no_entry_any_more() -> (
    None
):
    reader = Reader()
    reader.grant(100)
    old = Position(3, 1)
    left = {old: (0b010,), own(2): (0b101,)}
    reader.answer((old, 3), (own(2), 3), (own(3), 3), through=own(5), left=left)
    assert reader.received == [(old, (0b010,)), (own(2), (0b101,)), (own(3), ())]
    reader.step(EntriesAcked(1, [Acked(old, (0b101,), 3)]))
    reader.step(EntriesAcked(1, [Acked(own(2), (0b100,), 3)]))
    assert reader.acks.ack_set(own(2)) == (0b100,)
    reader.step(EntriesAcked(1, [Acked(own(2), (0b011,), 3)]))
    assert reader.acks.mark_delete == own(2), "the message that was removed is not waited for"


def test_permits_are_for_the_messages_that_are_left() -> None:
    reader = Reader()
    reader.grant(3)
    reader.answer(
        (own(0), 5), (own(1), 5), (own(2), 5), through=own(2), left={own(0): (0b10010,), own(1): (1,)}
    )
    assert [position for position, _ in reader.received] == [own(0), own(1)]


def test_a_redelivery_begins_behind_the_mark_delete_position_and_leaves_out_what_is_acknowledged() -> None:
    reader = Reader()
    reader.grant(1)
    left = {own(1): (1,), own(2): (1,)}
    reader.answer((own(1), 2), (own(2), 2), through=own(2), left=left)
    reader.step(AckedThrough(1, Acked(own(2))))
    reader.grant(1)
    assert reader.asked[0].position == own(3), "what waited is acknowledged"
    reader.step(RedeliveryRequested(1))
    reader.answer((own(3), 1), through=own(5))
    assert [asked.position for asked in reader.asked] == [own(3)], "the answer came too late"
    reader.answer((own(3), 1), through=own(5))
    assert reader.received[1:] == [(own(3), ())]


def test_a_compaction_that_advances_meanwhile_is_read_from_where_the_reader_is() -> None:
    reader = Reader()
    reader.grant(100)
    reader.answer((own(2), 1), through=own(5))
    reader.horizon = own(7)
    reader.asked.clear()
    reader.step(RedeliveryRequested(1))
    assert reader.asked[0].position == own(2)
    reader.answer((own(6), 1), through=own(7))
    assert reader.received[-1] == (own(6), ())
    reader.extent.confirm(own(8))
    reader.step(EntriesExpected())
    assert reader.asked[0].position == own(8)


EARLY = (Position(3, 1), Position(3, 4))
"""Entries of a ledger that was trimmed."""


def reader_with_early() -> Reader:
    """Both early entries and the entry 2 are delivered; the others up to the horizon were removed."""
    reader = Reader()
    reader.grant(100)
    reader.answer((EARLY[0], 3), (EARLY[1], 1), (own(2), 1), through=own(5))
    reader.asked.clear()
    return reader


def test_an_entry_that_was_delivered_and_that_a_later_compaction_removed_is_not_waited_for() -> None:
    reader = reader_with_early()
    reader.step(EntriesAcked(1, [Acked(own(2))]))
    reader.step(RedeliveryRequested(1))
    reader.answer((EARLY[1], 1), (own(2), 1), through=own(5))
    assert reader.acks.mark_delete == EARLY[0], "the other one is still to be acknowledged"
    reader.asked.clear()
    reader.step(RedeliveryRequested(1))
    version = reader.acks.version
    reader.answer((own(2), 1), through=own(5))
    assert reader.acks.mark_delete == own(5)
    assert reader.acks.version > version, "it is stored"


def test_a_part_of_an_early_batch_that_a_later_compaction_removed_is_not_waited_for() -> None:
    reader = reader_with_early()
    reader.step(EntriesAcked(1, [Acked(EARLY[0], (0b110,), 3)]))
    reader.step(RedeliveryRequested(1))
    reader.answer(
        (EARLY[0], 3), (EARLY[1], 1), (own(2), 1), through=own(5), left={EARLY[0]: (0b001,), EARLY[1]: (1,)}
    )
    assert reader.acks.mark_delete == EARLY[0]


def test_nobody_waits_for_early_entries_once_what_was_compacted_is_given_up() -> None:
    reader = reader_with_early()
    reader.horizon = NO_POSITION
    reader.step(RedeliveryRequested(1))
    assert reader.acks.mark_delete == own(1)
    assert [asked.position for asked in reader.asked] == [own(2)]


@pytest.mark.parametrize("kind", [SharedDispatch, partial(SingleDispatch, "topic")])
def test_nobody_waits_for_early_entries_once_consumers_read_what_the_topic_itself_has(
    kind: Callable[[TopicExtent, AckState], object],
) -> None:
    reader = reader_with_early()
    reader.step(EntriesAcked(1, [Acked(own(2))]))
    kind(reader.extent, reader.acks)
    assert reader.acks.mark_delete == own(5)
