"""Reading: every entry once, in order, from whichever replica has it; and never beyond what may be shown."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from daybook.core.effects import Deliver, ReadFinished, ReadMetadata, SendRead
from daybook.core.errors import (
    Code,
    CorruptEntryError,
    NoSuchEntryError,
    NoSuchLedgerError,
    NotEnoughReplicasError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    Consumed,
    MetadataUnreadable,
    ReadAnswered,
    Tick,
)
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import Fragment
from daybook.core.placement.policy import BookieInfo
from daybook.core.reader.reader import LedgerReader, ReadPolicy, nearness
from tests.fixtures.memory_bookie import failed, fails
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.reader.reading import SMALL, Reading, closed_cluster, expected, read
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, entry

SHAPES = [(3, 3, 2), (3, 2, 2), (5, 3, 2), (4, 3, 2), (6, 3, 2), (5, 2, 1), (1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("first", "last"), [(0, 99), (0, 0), (99, 99), (13, 57), (5, 6)])
def test_entries_come_once_in_order(shape: tuple[int, int, int], first: EntryId, last: EntryId) -> None:
    reading = read(closed_cluster(*shape), first, last)
    assert reading.entries == expected(first, last)
    assert isinstance(reading.results[-1], ReadFinished)


def test_an_empty_range_is_finished_at_once() -> None:
    assert read(closed_cluster(), 5, 4).results == [ReadFinished()]


def test_whole_answers_are_delivered_as_they_came() -> None:
    cluster = closed_cluster()
    reader = LedgerReader(cluster.meta, 0, 7, policy=SMALL)
    (ask,) = reader.start()
    assert isinstance(ask, SendRead)
    entries = tuple(expected(0, 7))
    deliver, finished = reader.step(ReadAnswered(ask.bookie, ask.request_id, Code.OK, entries, (), 7))
    assert isinstance(deliver, Deliver)
    assert deliver.entries is entries
    assert isinstance(finished, ReadFinished)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_read_asks_for_little_more_than_it_needs(shape: tuple[int, int, int]) -> None:
    """The fewest bookies that hold every entry: one without striping."""
    ensemble, write, _ = shape
    reading = read(closed_cluster(*shape), 0, 47)
    pieces = {(ask.first, ask.last) for ask in reading.asked}
    assert len(reading.asked) == len(pieces) * -(-ensemble // write)


def test_fragments_are_read_from_their_own_bookies() -> None:
    cluster = closed_cluster(spares=1)
    for entry_id in range(50, 100):
        cluster.bookies["b4"].entries[entry_id] = cluster.bookies["b1"].entries.pop(entry_id)
    meta = cluster.meta
    cluster.metadata = replace(meta, fragments=(*meta.fragments, Fragment(50, 150, ("b4", "b2", "b3"))))
    cluster.down = {"b2", "b3"}
    reading = read(cluster)
    assert reading.entries == expected(0, 99)
    assert all(ask.last < 50 for ask in reading.asked if ask.bookie == "b1")


def test_answers_in_any_order_are_delivered_in_order() -> None:
    cluster = closed_cluster()
    for backwards in (False, True):
        reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, policy=SMALL))
        while reading.queue:
            if backwards and all(isinstance(effect, SendRead) for effect in reading.queue):
                reading.queue.rotate(1)
            reading.one()
            delivered = [e.entry_id for e in reading.entries]
            assert delivered == list(range(len(delivered)))
        assert reading.entries == expected(0, 99)


# Failing over


@pytest.mark.parametrize("shape", [(3, 3, 2), (5, 3, 2), (4, 3, 2), (3, 2, 2), (5, 2, 1)])
def test_what_one_replica_lacks_or_cannot_read_another_has(shape: tuple[int, int, int]) -> None:
    """Holes and damage all over, as long as one replica of each entry is whole."""
    cluster = closed_cluster(*shape, last=59)
    for entry_id in range(60):
        holders = cluster.holders(entry_id)
        spared = holders[(entry_id * 7) % len(holders)]
        for i, name in enumerate(holders):
            if name != spared:
                if (entry_id + i) % 2:
                    del cluster.bookies[name].entries[entry_id]
                else:
                    cluster.bookies[name].damaged.add(entry_id)
    reading = read(cluster)
    assert reading.entries == expected(0, 59)


def test_every_single_failure_of_a_piece_is_survived() -> None:
    for shape, bad in product([(3, 3, 2), (5, 3, 2), (3, 2, 2)], range(5)):
        cluster = closed_cluster(*shape, last=30)
        name = f"b{bad + 1}"
        if name in cluster.bookies:
            cluster.down = {name}
            reading = read(cluster)
            assert reading.entries == expected(0, 30), (shape, bad)


def test_a_failed_bookie_is_asked_last_from_then_on() -> None:
    cluster = closed_cluster(last=399)
    cluster.down = {"b2"}
    reading = read(cluster)
    assert reading.entries == expected(0, 399)
    asked_b2 = [ask for ask in reading.asked if ask.bookie == "b2"]
    assert len(asked_b2) <= 4  # those that were in flight when it failed


def test_an_answer_that_is_cut_short_is_continued() -> None:
    cluster = closed_cluster(last=40)
    policy = ReadPolicy(piece_bytes=2 * ENTRY_BYTES, read_ahead_bytes=10**6, entry_bytes_guess=1)
    assert read(cluster, policy=policy).entries == expected(0, 40)


def test_a_silent_replica_is_overtaken_by_a_second_read() -> None:
    for shape in [(3, 3, 2), (5, 3, 2)]:
        for silent in range(shape[0]):
            cluster = closed_cluster(*shape)
            cluster.silent = {f"b{silent + 1}"}
            reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, policy=SMALL))
            reading.finish()
            for now_ms in range(0, 20_000, 500):
                reading.feed(Tick(now_ms))
                reading.finish()
            assert reading.entries == expected(0, 99)
            late = [e for e in cluster.held if isinstance(e, SendRead)]
            assert late
            for effect in late:
                assert reading.step(failed(effect, Code.TIMEOUT)) == []


def test_a_lost_channel_is_a_failure_of_all_its_reads() -> None:
    cluster = closed_cluster()
    cluster.silent = {"b1"}
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, policy=SMALL))
    reading.finish()
    reading.feed(BookieFailed("b1"))
    reading.finish()
    assert reading.entries == expected(0, 99)


def test_the_nearest_replica_is_read() -> None:
    infos = {
        "b1": BookieInfo("b1", zone="z1", rack="r1"),
        "b2": BookieInfo("b2", zone="z2", rack="r2"),
        "b3": BookieInfo("b3", zone="z2", rack="r3"),
    }
    rank = nearness("z2", "r3", infos)
    assert [rank(name) for name in ("b3", "b2", "b1", "b9")] == [0, 1, 2, 3]
    cluster = closed_cluster()
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, policy=SMALL, rank=rank))
    reading.finish()
    assert {ask.bookie for ask in reading.asked} == {"b3"}


# What ends a read


def broken(answers: Sequence[str]) -> Cluster:
    """A closed ledger whose entry 5 is what `answers` say on its three replicas."""
    cluster = closed_cluster(last=9)
    for name, answer in zip(cluster.bookies, answers, strict=True):
        if answer == "lost":
            del cluster.bookies[name].entries[5]
        elif answer == "damaged":
            cluster.bookies[name].damaged.add(5)
        elif answer == "down":
            cluster.down.add(name)
        elif answer == "limbo":
            del cluster.bookies[name].entries[5]
            cluster.bookies[name].machine.mark_limbo(LEDGER, "n")
    return cluster


def test_the_error_says_what_the_replicas_said() -> None:
    for answers in product(("lost", "damaged", "down", "limbo", "found"), repeat=3):
        reading = read(broken(answers))
        if "found" in answers:
            assert reading.entries == expected(0, 9), answers
        elif "damaged" in answers or set(answers) == {"lost"}:
            assert isinstance(reading.error, CorruptEntryError), answers
        else:
            assert isinstance(reading.error, NotEnoughReplicasError), answers
        if "found" not in answers and set(answers) != {"down"}:
            assert reading.entries == expected(0, 4), answers


def test_an_open_ledger_is_read_up_to_the_lac_and_no_further() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 9)
    assert Reading(cluster, LedgerReader(cluster.meta, 0, 6, last_add_confirmed=6)).finish()
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 7, last_add_confirmed=6))
    reading.finish()
    assert isinstance(reading.error, NoSuchEntryError)
    assert reading.entries == []


def test_past_the_lac_a_read_ends_where_a_quorum_denies() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 9)
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 30, last_add_confirmed=4, unconfirmed=True))
    reading.finish()
    assert reading.entries == expected(0, 9)
    assert isinstance(reading.error, NoSuchEntryError)


def test_a_closed_ledger_is_never_read_past_its_end() -> None:
    cluster = closed_cluster(last=9)
    cluster.write(10, [])
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 10, unconfirmed=True))
    reading.finish()
    assert isinstance(reading.error, NoSuchEntryError)


def test_entries_that_moved_are_found_with_the_metadata_of_now() -> None:
    """A repair put b4 in the place of b1, b2 and b3 died; the reader's metadata is from before."""
    cluster = closed_cluster(spares=1)
    cluster.bookies["b4"].entries.update(cluster.bookies["b1"].entries)
    stale = cluster.meta
    cluster.metadata = stale.with_replica(0, "b1", "b4")
    cluster.down = {"b1", "b2", "b3"}
    reading = Reading(cluster, LedgerReader(stale, 0, 99, policy=SMALL))
    reading.finish()
    assert reading.entries == expected(0, 99)


def test_a_reader_that_is_behind_a_close_does_not_pass_it() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 4)
    stale = cluster.meta
    cluster.metadata = stale.closed(4, 15)
    reading = Reading(cluster, LedgerReader(stale, 0, 8, unconfirmed=True))
    reading.finish()
    assert reading.entries == expected(0, 4)
    assert isinstance(reading.error, NoSuchEntryError)


def test_a_deleted_ledger_is_reported_as_such() -> None:
    cluster = closed_cluster()
    reader = LedgerReader(cluster.meta, 0, 99)
    cluster.metadata = None
    for bookie in cluster.bookies.values():
        bookie.entries.clear()
    reading = Reading(cluster, reader)
    reading.finish()
    assert isinstance(reading.error, NoSuchLedgerError)


def test_unreadable_metadata_is_asked_for_some_times_before_the_read_fails() -> None:
    cluster = closed_cluster()
    cluster.down = {"b1", "b2", "b3"}
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, policy=SMALL))
    asked = 0
    for now_ms in range(0, 10_000, 500):
        reading.feed(Tick(now_ms))
        while reading.queue:
            effect = reading.queue[0]
            if isinstance(effect, ReadMetadata):
                asked += 1
                reading.queue.popleft()
                reading.feed(MetadataUnreadable(effect.request_id))
            else:
                reading.one()
    assert asked == SMALL.metadata_reads_max
    assert isinstance(reading.error, NotEnoughReplicasError)


# Room


def test_no_more_is_fetched_than_the_user_makes_room_for() -> None:
    cluster = closed_cluster(last=399)
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 399, policy=SMALL), consumes=False)
    reading.finish()
    ahead = len(reading.entries) * ENTRY_BYTES
    assert SMALL.read_ahead_bytes <= ahead < SMALL.read_ahead_bytes + 2 * SMALL.piece_bytes
    reading.feed(Consumed(ahead))
    reading.finish()
    assert len(reading.entries) * ENTRY_BYTES >= 2 * SMALL.read_ahead_bytes
    assert [e.entry_id for e in reading.entries] == list(range(len(reading.entries)))


def test_several_pieces_are_in_flight_at_once() -> None:
    cluster = closed_cluster(last=399)
    reader = LedgerReader(cluster.meta, 0, 399, policy=SMALL)
    assert len(reader.start()) == SMALL.read_ahead_bytes // SMALL.piece_bytes


def test_pieces_grow_and_shrink_with_the_entries() -> None:
    cluster = closed_cluster(last=399)
    policy = replace(SMALL, entry_bytes_guess=8 * ENTRY_BYTES)
    reading = read(cluster, policy=policy)
    spans = [ask.last - ask.first + 1 for ask in reading.asked]
    assert spans[0] == 1
    assert max(spans) == 8


def test_an_answer_that_comes_twice_is_dropped() -> None:
    cluster = closed_cluster(last=3)
    reader = LedgerReader(cluster.meta, 0, 3, policy=SMALL)
    (ask,) = [e for e in reader.start() if isinstance(e, SendRead)]
    late = ReadAnswered(ask.bookie, ask.request_id, Code.TIMEOUT)
    (other,) = [e for e in reader.step(late) if isinstance(e, SendRead)]
    assert reader.step(late) == []
    (answer,) = cluster.perform(other)
    assert isinstance(answer, ReadAnswered)
    assert any(isinstance(effect, Deliver) for effect in reader.step(answer))


def test_an_answer_that_speaks_for_nothing_is_no_answer() -> None:
    """A bookie that says OK and reaches no entry would be asked for ever."""
    cluster = closed_cluster(last=3)
    reader = LedgerReader(cluster.meta, 0, 3, policy=SMALL)
    (ask,) = [e for e in reader.start() if isinstance(e, SendRead)]
    effects = reader.step(ReadAnswered(ask.bookie, ask.request_id, Code.OK, (), (), -1))
    (other,) = [e for e in effects if isinstance(e, SendRead)]
    assert other.bookie != ask.bookie


def test_entries_that_nobody_asked_for_are_left_out() -> None:
    cluster = closed_cluster(last=9)
    reader = LedgerReader(cluster.meta, 2, 5, policy=SMALL)
    (ask,) = [e for e in reader.start() if isinstance(e, SendRead)]
    generous = tuple(Entry(i, entry(i)) for i in range(10))
    effects = reader.step(ReadAnswered(ask.bookie, ask.request_id, Code.OK, generous, (), 9))
    assert [e.entries for e in effects if isinstance(e, Deliver)] == [generous[2:6]]


def test_a_wrong_password_is_reported_as_such() -> None:
    cluster = closed_cluster(last=3)
    for bookie in cluster.bookies.values():
        bookie.fault = fails(SendRead, Code.UNAUTHORIZED)
    assert isinstance(read(cluster).error, UnauthorizedError)
