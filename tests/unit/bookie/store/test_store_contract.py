"""What every entry store must do, be it LMDB or the simulator's model of it: one suite for both, and one against the other.

The simulator proves nothing about a bookie if its model does what the real store does not. So each test here runs over
either, and test_stores_alike drives both at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from daybook_bookie.disk.errors import BookieMustStopError, CorruptStoreError, StorageFullError
from daybook_bookie.journal.format import (
    START,
    LedgerIntro,
    Position,
    deletion_record,
    fence_record,
    intro_record,
    limbo_record,
)
from daybook_bookie.settings import MIB
from daybook_bookie.store import flushing
from daybook_bookie.store.entry_store import LedgerChange
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.reading import block_key
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.stored_ledger import StoredLedger
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.format.block import decode_block
from daybook.core.format.frame import COLUMN_BYTES, FLAG_RECOVERY, HEADER_BYTES, decode_header
from daybook.core.format.intervals import Interval, IntervalSet
from daybook.core.quorum import DENSE, Stripe
from tests.unit.bookie.store.benches import Bench, LmdbBench, ModelBench
from tests.unit.bookie.store.kit import decoded, entries, frame, generation, memory_directory, payload


@pytest.fixture(params=["lmdb", "model"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "model":
        yield ModelBench()
        return
    with memory_directory() as directory:
        found = LmdbBench(Path(directory))
        yield found
        found.shut()


def gapped(first: int) -> list[int]:
    """The entries of a block with gaps; a flipped bit of its last delta makes it smaller, or larger by thousands."""
    return [first, *range(first + 2, first + 9), first + 17]


LAST_DELTA = HEADER_BYTES + COLUMN_BYTES * (len(gapped(0)) - 1)
"""Where the last row of such a block names its entry."""


def repaired(ledger: int, ids: Sequence[int], size: int = 200) -> bytes:
    return frame(ledger, ids, size=size, flags=FLAG_RECOVERY)


def removal(ids: Iterable[int], *frames: bytes) -> Generation:
    """A generation that takes entries of ledger 7 out, and brings these frames afterwards."""
    cache = WriteCache()
    removed = IntervalSet()
    removed.add_ids(sorted(ids))
    cache.remove(7, removed)
    for data in frames:
        cache.add_frame(data, decode_header(data))
    return cache.swap()


def test_an_empty_store_knows_nothing(bench: Bench) -> None:
    store = bench.store
    assert store.checkpoint == START
    assert store.ledgers() == {}
    assert store.deletions() == []
    assert store.ledger(7) is None
    assert store.stored(7) is None
    assert store.read_blocks(7, 0, 10, 1000) == []
    assert store.block_keys(7, 10) == []


@pytest.mark.parametrize("stripe", [DENSE, Stripe(3, 0b011)])
def test_what_was_flushed_is_there_now_and_after_a_restart(bench: Bench, stripe: Stripe) -> None:
    ids = [n for n in range(200) if stripe.holds(n)]
    bench.put(*[frame(7, ids[at : at + 4], stripe=stripe) for at in range(0, len(ids), 4)], frame(8, [5]))
    for _ in range(2):
        record = bench.store.ledger(7)
        assert record is not None
        assert list(record.intervals) == [Interval(0, ids[-1], stripe)]
        assert bench.read(7) == entries(ids)
        assert bench.read(7, 20, 30) == entries([n for n in ids if 20 <= n <= 30])
        assert bench.read(8) == entries([5])
        assert len(bench.store.read_blocks(7, 0, 10**6, 10**6)) < len(ids) / 12, "small frames become blocks"
        assert bench.store.read_blocks(7, ids[-1] + 1, 10**6, 10**6) == []
        assert bench.store.read_blocks(9, 0, 10**6, 10**6) == []
        bench.reopen()


def test_a_read_gives_one_frame_at_least_and_few_bytes_more_than_asked_for(bench: Bench) -> None:
    bench.put(*[frame(7, [n], size=1400) for n in range(20)])
    assert decoded(bench.store.read_blocks(7, 3, 19, 1)) != []
    frames = bench.store.read_blocks(7, 0, 19, 4500)
    assert 1 <= len(frames) <= 4
    assert bench.read(7, max_bytes=1600) == entries(range(20), 1400)


def test_decisions_are_stored_and_a_lac_never_falls(bench: Bench) -> None:
    nonce = bytes(range(16))
    decisions = (
        intro_record(LedgerIntro(7, 99, b"hash")),
        fence_record(7),
        limbo_record(7, nonce),
    )
    bench.put(frame(7, [], lac=41, length=900), records=decisions)
    bench.put(frame(7, [], lac=40, length=800))
    bench.reopen()
    assert bench.store.ledger(7) == StoredLedger(
        fenced=True,
        limbo=nonce,
        last_add_confirmed=41,
        length_at_lac=900,
        password_hash=b"hash",
        first_seen_ms=99,
    )


def test_rule_24_the_checkpoint_is_what_the_last_commit_said(bench: Bench) -> None:
    bench.put(frame(7, [0]), checkpoint=Position(3, 8192))
    assert bench.store.checkpoint == Position(3, 8192)
    bench.fail_commit(0, happened=False)
    with pytest.raises(BookieMustStopError):
        bench.put(frame(7, [1]), checkpoint=Position(4, 4096))
    bench.reopen()
    assert bench.store.checkpoint == Position(3, 8192)


def test_what_is_there_already_is_kept_and_ranges_never_overlap(bench: Bench) -> None:
    stripe = Stripe(3, 0b011)
    bench.put(frame(7, [6, 7, 9, 10], stripe=stripe), frame(7, [20, 21]))
    bench.put(frame(7, range(4, 12)), frame(7, [21, 22]), frame(7, [9, 10], stripe=stripe))
    keys = bench.store.block_keys(7, 100)
    assert bench.read(7) == entries([*range(4, 12), 20, 21, 22])
    with bench.store.blocks(7) as blocks:
        found = blocks.overlapping(0, 100)
        assert [block_key(7, block.first) for block in found] == keys
        assert all(one.last < other.first for one, other in pairwise(found))
        assert blocks.overlapping(0, 100, 1) == found[:1]
        assert blocks.overlapping(12, 19) == []
    bench.put(frame(7, range(4, 12)), frame(7, [20, 21, 22]))
    assert bench.store.block_keys(7, 100) == keys, "a pure duplicate changes nothing"
    assert bench.store.block_keys(7, 1) == keys[:1]


@pytest.mark.parametrize(
    "removed", [range(10), range(3, 17), range(3, 27), range(0, 30, 3), [5], range(30)], ids=str
)
def test_rule_47_removed_replicas_are_gone_and_what_was_added_since_stays(
    bench: Bench, removed: range | list[int]
) -> None:
    bench.put(*[frame(7, range(at, at + 5), size=300) for at in range(0, 30, 5)])
    again = frame(7, [5], size=300)  # a repair names the bookie again
    flushing.flush(bench.store, removal(removed, again), START)
    bench.reopen()
    left = sorted(set(range(30)) - set(removed) | {5})
    assert bench.read(7) == entries(left, 300)
    record = bench.store.ledger(7)
    assert record is not None
    assert [n for n in range(40) if record.intervals.contains(n)] == left


def test_rule_26_a_removal_ends_at_a_block_that_cannot_be_read_and_the_flush_continues(bench: Bench) -> None:
    bench.put(*[frame(7, [n], size=1400) for n in range(6)])
    bench.flip(7, 2, 0)
    flushing.flush(bench.store, removal(range(6), frame(7, [9])), START)
    assert bench.read(7, 9) == entries([9])
    with pytest.raises(CorruptStoreError):
        bench.store.read_blocks(7, 2, 2, 1000)


def test_rule_47_a_removal_from_a_block_whose_last_row_is_damaged_ends_with_the_block(bench: Bench) -> None:
    bench.put(*[frame(7, gapped(at), size=200) for at in range(0, 120, 20)])
    bench.flip(7, 40, LAST_DELTA + 1)
    assert flushing.flush(bench.store, removal(range(120)), START) == {}
    assert bench.read(7) == []
    assert bench.store.block_keys(7, 99) == []


def test_rule_47_a_removal_from_within_a_block_whose_last_row_is_damaged_takes_it_from_that_block(
    bench: Bench,
) -> None:
    bench.put(*[frame(7, gapped(at), size=200) for at in (0, 20)])
    bench.flip(7, 0, LAST_DELTA)
    assert flushing.flush(bench.store, removal([5, 6, 7, 8, 17]), START) == {}
    assert bench.read(7) == entries([0, 2, 3, 4, *gapped(20)], 200)


def test_rule_26_only_damage_within_a_range_is_met(bench: Bench) -> None:
    bench.put(*[frame(7, [n], size=1400) for n in (2, 5, 9)])
    bench.flip(7, 5, 0)
    with bench.store.blocks(7) as blocks:
        for first, last, limit in ((3, 5, None), (6, 9, None), (0, 9, 2)):
            with pytest.raises(CorruptStoreError):
                blocks.overlapping(first, last, limit)
        for first, last, limit, found in (
            (0, 4, None, [2]),
            (3, 4, None, []),
            (0, 9, 1, [2]),
            (9, 20, None, [9]),
        ):
            assert [block.first for block in blocks.overlapping(first, last, limit)] == found
        for first, last, found, unreadable in ((0, 4, [2], []), (2, 9, [2, 9], [5]), (6, 9, [9], [])):
            readable, damaged = blocks.readable(first, last)
            assert ([block.first for block in readable], damaged) == (found, unreadable)


def test_a_deleted_ledger_is_gone_at_once_and_its_blocks_in_bounded_steps(bench: Bench) -> None:
    bench.put(*[frame(7, [n], size=1400) for n in range(8)], frame(8, [0]))
    bench.put(records=(deletion_record(7),))
    assert bench.store.ledger(7) is None
    assert 7 not in bench.store.ledgers()
    assert bench.store.read_blocks(7, 0, 10, 10**6) == []
    steps = 0
    while bench.store.deletions():
        assert bench.store.deletions() == [7]
        bench.reopen()
        steps += 1
        assert delete_some(bench.store) == (bench.store.stored(7) is None)
    assert steps == 3
    assert bench.store.block_keys(7, 10) == []
    assert bench.read(8) == entries([0])


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("commits", range(4))
def test_rule_23_a_failed_commit_is_the_last_and_leaves_a_whole_one(
    bench: Bench, commits: int, happened: bool
) -> None:
    bench.put(frame(7, [0, 1]), checkpoint=Position(1, 8192))
    bench.fail_commit(commits, happened=happened)
    with pytest.raises(BookieMustStopError):
        bench.put(
            *[frame(ledger, range(20), size=100) for ledger in range(10, 16)],
            frame(7, range(1, 6)),
            checkpoint=Position(9, 4096),
        )
    with pytest.raises(BookieMustStopError):
        bench.put(frame(7, [9]))
    bench.reopen()
    there = [ledger for ledger in range(10, 16) if bench.store.ledger(ledger) is not None]
    assert there == list(range(10, 10 + len(there)))
    for ledger in there:
        assert bench.read(ledger) == entries(range(20), 100)
    assert len(there) < 6
    assert bench.store.checkpoint == Position(1, 8192), "the checkpoint moves with the last commit (rule 24)"
    assert bench.read(7)[:2] == entries([0, 1])
    bench.put(frame(7, [9]))
    assert bench.read(7)[-1:] == entries([9])


def test_rule_26_what_vanished_is_an_error_and_never_an_absence(bench: Bench) -> None:
    bench.put(frame(7, range(10)), frame(7, range(20, 30), size=200), frame(7, range(30, 40), size=200))
    bench.take_out(7, 20)
    for entry in range(20, 30):
        with pytest.raises(CorruptStoreError):
            bench.store.read_blocks(7, entry, 99, 10**6)
    assert bench.read(7, 30) == entries(range(30, 40), 200)
    assert bench.store.read_blocks(7, 40, 99, 10**6) == []
    assert decoded(bench.store.read_blocks(7, 0, 99, 10**6)) == entries(range(10)), (
        "what is whole is returned"
    )
    bench.flip(7, 30, 0)
    assert decoded(bench.store.read_blocks(7, 0, 99, 10**6)) == entries(range(10)), (
        "what is whole is returned"
    )
    bench.put(repaired(7, range(20, 40)))
    assert bench.read(7, 10) == entries(range(20, 40), 200)


@pytest.mark.parametrize("where", [0, 20, 28])
def test_rule_26_what_lies_before_a_damaged_block_is_returned(bench: Bench, where: int) -> None:
    """Also where the two could be read in one go: a reader takes the first entry that it asked for to be damaged."""
    bench.put(*[frame(7, [n], size=1400) for n in range(4)])
    bench.flip(7, 2, where)
    assert decoded(bench.store.read_blocks(7, 0, 3, 10**6)) == entries(range(2), 1400)
    with pytest.raises(CorruptStoreError):
        bench.store.read_blocks(7, 2, 3, 10**6)
    assert bench.read(7) == entries([0, 1, 3], 1400)


@pytest.mark.parametrize("where", ["header", "payload"])
def test_rule_26_damage_is_an_error_for_what_it_touches_and_a_repair_restores_it(
    bench: Bench, where: str
) -> None:
    bench.put(frame(7, range(10), size=100))
    before = bytes(bench.store.read_blocks(7, 0, 9, 10**6)[0])
    bench.flip(7, 0, 20 if where == "header" else before.index(payload(4, 100)))
    with pytest.raises(CorruptStoreError, match="ledger 7"):
        bench.store.read_blocks(7, 4, 9, 10**6)
    if where == "payload":
        assert decoded(bench.store.read_blocks(7, 0, 9, 10**6)) == entries(range(4), 100)
        assert bench.read(7) == entries([*range(4), *range(5, 10)], 100)
    bench.put(repaired(7, range(10) if where == "header" else range(4, 5), 100))
    assert bench.read(7) == entries(range(10), 100)


def test_rule_26_what_a_repair_did_not_bring_back_is_an_error_and_what_is_around_it_is_returned(
    bench: Bench,
) -> None:
    """A repair overwrites a block that cannot be read and brings back its own share: the rest is in no block."""
    bench.put(frame(7, range(10, 20)), frame(7, range(30, 35), size=3000))
    bench.flip(7, 10, 20)
    bench.put(repaired(7, range(10, 11)), repaired(7, [11, 13, 14]), repaired(7, range(17, 18)))
    for entry in (12, 15, 16, 18, 19):
        with pytest.raises(CorruptStoreError):
            bench.store.read_blocks(7, entry, 99, 10**6)
    assert decoded(bench.store.read_blocks(7, 11, 99, 10**6)) == entries([11], 200), (
        "12 lies between, and is lost"
    )
    assert bench.read(7) == [*entries([10, 11, 13, 14, 17], 200), *entries(range(30, 35), 3000)]
    bench.put(repaired(7, [12, 15, 16, 18, 19]))
    assert bench.read(7) == [*entries(range(10, 20), 200), *entries(range(30, 35), 3000)]


@pytest.mark.parametrize("brought", [range(5, 9), range(5, 13), range(10, 12), range(5, 25)], ids=str)
def test_rule_26_what_a_repair_brings_beside_damage_hides_no_intact_block(
    bench: Bench, brought: range
) -> None:
    for at in (0, 10, 20):
        bench.put(frame(7, range(at, at + 10), size=8))
    bench.flip(7, 10, 20)
    bench.put(repaired(7, brought, 8))
    intact = [*range(10), *range(20, 30)]
    assert bench.read(7) == entries(sorted({*intact, *brought}), 8)
    for lost in set(range(10, 20)) - set(brought):
        with pytest.raises(CorruptStoreError):
            bench.store.read_blocks(7, lost, 99, 10**6)
    bench.put(repaired(7, range(10, 20), 8))
    assert bench.read(7) == entries(range(30), 8)
    assert_answers_rise(bench, 30)


@pytest.mark.parametrize("byte", [0, 1], ids=["smaller", "larger"])
@pytest.mark.parametrize("at", [0, 40], ids=["within", "at the end"])
def test_rule_26_a_damaged_last_row_hides_no_sound_entry_and_its_repair_stays_within_its_block(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int, byte: int
) -> None:
    """Only the body's checksum covers the row that names the last entry; what is behind it is none of its concern."""
    bench.put(*[frame(7, gapped(begin), size=180) for begin in (0, 20, 40)])
    bench.flip(7, at, LAST_DELTA + byte)
    stored = {*gapped(0), *gapped(20), *gapped(40)}
    lost = gapped(at)[-1]
    assert bench.read(7) == entries(sorted(stored - {lost}), 180)
    changed: list[set[bytes]] = []
    commit = bench.store.commit

    def note(changes: Iterable[LedgerChange], checkpoint: Position) -> None:
        noted = list(changes)
        changed.extend({*change.deletes, *(key for key, _ in change.puts)} for change in noted)
        commit(noted, checkpoint)

    monkeypatch.setattr(bench.store, "commit", note)
    bench.put(repaired(7, [at + 5], 180), repaired(7, [lost], 180), frame(7, range(80, 90), size=180))
    touched = set().union(*changed)
    assert {key for key in touched if not block_key(7, at) <= key < block_key(7, at + 20)} == {
        block_key(7, 80)
    }
    assert bench.read(7) == entries(sorted({*stored, *range(80, 90)}), 180)


def test_rule_26_a_repair_of_many_unreadable_blocks_takes_their_place(bench: Bench) -> None:
    bench.put(*[frame(7, range(at, at + 5), size=300) for at in (5, 10, 15)])
    for at in (5, 10, 15):
        bench.flip(7, at, 20)
    bench.put(repaired(7, range(5, 20), 300))
    assert bench.read(7) == entries(range(5, 20), 300)
    assert_answers_rise(bench, 20)


def test_blocks_that_an_earlier_release_let_overlap_are_read_one_by_one(bench: Bench) -> None:
    """A reader takes an answer whose entries do not rise for damage of the whole."""
    bench.put(frame(7, range(10), size=8), frame(7, range(20, 30), size=8))
    record = bench.store.ledger(7)
    assert record is not None
    overlapping = frame(7, range(5, 13), size=8)
    record.intervals.add(10, 12)
    bench.store.commit([LedgerChange(7, [(block_key(7, 5), overlapping)], [], record)], START)
    assert_answers_rise(bench, 10)
    assert bench.read(7, 10) == entries([10, 11, 12, *range(20, 30)], 8)
    bench.put(repaired(7, range(13), 8))
    assert bench.read(7) == entries([*range(13), *range(20, 30)], 8)


def assert_answers_rise(bench: Bench, end: int) -> None:
    """Whatever entry a read of ledger 7 begins with, the frames of its answer do not overlap."""
    for first in range(end):
        blocks = [decode_block(data) for data in bench.store.read_blocks(7, first, 10**6, 10**6)]
        assert all(one.last < other.first for one, other in pairwise(blocks))


def test_rule_30_no_room_refuses_and_a_deletion_needs_none(bench: Bench) -> None:
    bench.tighten()
    with pytest.raises(StorageFullError):
        bench.store.check_room(2 * MIB)
    bench.put(frame(7, [0]))
    swapped = generation(frame(8, range(3000), size=700))
    with pytest.raises(StorageFullError):
        flushing.flush(bench.store, swapped, START)
    assert bench.store.space().free < 2 * MIB
    bench.put(frame(9, [1]), records=(deletion_record(7),))
    assert bench.store.deletions() == [7]
    assert bench.read(9) == entries([1])
