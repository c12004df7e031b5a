"""Reading a range: cache before store, nothing left out, and damage named."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.range_scan import NOTHING_HELD, Held, RangeScan
from daybook.core.errors import FrameError
from daybook.core.format.block import Block, decode_block
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import encode_frame
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId

LEDGER = 7
ROOM = 10_000


def block(first: EntryId, last: EntryId) -> Block:
    ids = list(range(first, last + 1))
    payloads = [f"{entry:03}".encode() for entry in ids]
    return decode_block(encode_frame(LEDGER, first, payloads, entry_crcs(LEDGER, ids, payloads)))


@dataclass
class Source:
    """See RangeSource."""

    cached: list[Block] = field(default_factory=list)
    stored: list[Block] = field(default_factory=list)
    damaged: set[EntryId] = field(default_factory=set)
    whole: bool = True
    limbo: bool = False

    def look(self, ledger_id: LedgerId, at: EntryId) -> Held:
        if not self.cached and not self.stored:
            return NOTHING_HELD
        cached = [(max(at, each.first), each) for each in self.cached if each.last >= at]
        stored = [max(at, each.first) for each in self.stored if each.last >= at]
        lac = LacAnswer(5, 50, limbo=self.limbo, fenced=False)
        return Held(min(cached, default=None), self.whole, min(stored, default=NO_ENTRY), lac)

    def read_stored(
        self, ledger_id: LedgerId, first: EntryId, end: EntryId, room_bytes: int
    ) -> Sequence[Block]:
        if first in self.damaged:
            msg = "a flipped bit"
            raise FrameError(msg)
        return [each for each in self.stored if each.last >= first and each.first <= end]


def read(source: Source, first: EntryId, last: EntryId) -> tuple[list[EntryId], list[EntryId], RangeScan]:
    scan = RangeScan(source, LEDGER, first, last)
    found: list[EntryId] = []
    damaged: list[EntryId] = []
    while not scan.done:
        step = scan.step(ROOM, store_bytes=ROOM)
        if step is not None:
            found += [entry.entry_id for entry in decode_entries(step.data, step.header)[0]]
        elif scan.damaged != NO_ENTRY:
            damaged.append(scan.damaged)
    return found, damaged, scan


def test_what_waits_outlives_the_views_that_the_store_gave() -> None:
    stored = [block(0, 2), block(3, 5)]
    memory = [bytearray(each.data) for each in stored]
    views = [each._replace(data=memoryview(data)) for each, data in zip(stored, memory, strict=True)]
    scan = RangeScan(Source(stored=views), LEDGER, 0, 5)
    assert scan.step(ROOM, store_bytes=ROOM) == views[0]
    scan.copy_waiting()
    for data in memory:
        data[:] = bytes(len(data))
    second = scan.step(ROOM, store_bytes=ROOM)
    assert second is not None
    assert bytes(second.data) == bytes(stored[1].data)
    assert scan.done


def test_an_unknown_ledger_has_nothing_and_says_so_for_the_whole_range() -> None:
    found, damaged, scan = read(Source(), 0, 9)
    assert (found, damaged, scan.through, scan.limbo) == ([], [], 9, False)


def test_cache_and_store_are_read_in_order_of_entries() -> None:
    found, _, scan = read(Source([block(3, 4), block(8, 9)], [block(0, 2), block(5, 7)]), 0, 9)
    assert found == list(range(10))
    assert (scan.last_add_confirmed, scan.length_at_lac) == (5, 50)


def test_what_is_both_cached_and_stored_is_given_once() -> None:
    assert read(Source([block(2, 5)], [block(0, 9)]), 0, 9)[0] == list(range(10))


def test_a_cached_block_is_cut_to_the_range_and_to_one_entry_where_others_lie_within() -> None:
    assert read(Source([block(0, 9)]), 3, 5)[0] == [3, 4, 5]
    assert read(Source([block(0, 9)], whole=False), 3, 5)[0] == [3, 4, 5]
    assert read(Source([block(5, 9)]), 0, 3)[0] == []


def test_room_ends_a_block_early_and_the_next_step_continues() -> None:
    scan = RangeScan(Source([block(0, 9)]), LEDGER, 0, 9)
    first = scan.step(1, store_bytes=ROOM)
    assert first is not None
    assert (first.first, first.last, scan.through, scan.done) == (0, 0, 0, False)
    second = scan.step(ROOM, store_bytes=ROOM)
    assert second is not None
    assert (second.first, second.last, scan.done) == (1, 9, True)


def test_rule_26_what_cannot_be_read_is_named_and_the_rest_is_read() -> None:
    found, damaged, scan = read(Source([], [block(0, 1), block(2, 3)], damaged={0}), 0, 3)
    assert damaged == [0]
    assert set(found) == {1, 2, 3}
    assert scan.damage == "a flipped bit"


def test_rule_26_a_block_that_cannot_be_cut_is_damaged() -> None:
    stored = block(0, 3)
    broken = bytearray(stored.data)
    broken[-1] ^= 1
    found, damaged, _ = read(Source([block(0, 0)], [stored._replace(data=bytes(broken))]), 0, 3)
    assert (found, damaged) == ([0], [1, 2, 3])


def test_rule_29_limbo_that_ends_during_a_read_holds_for_all_of_it() -> None:
    source = Source([block(0, 0), block(5, 5)], limbo=True)
    scan = RangeScan(source, LEDGER, 0, 9)
    assert scan.step(ROOM, store_bytes=ROOM) is not None
    source.limbo = False
    assert scan.step(ROOM, store_bytes=ROOM) is not None
    assert scan.step(ROOM, store_bytes=ROOM) is None
    assert (scan.limbo, scan.done) == (True, True)


def test_a_ledger_that_is_deleted_between_look_and_read_has_nothing_at_the_next_look() -> None:
    source = Source([], [block(0, 3)])
    scan = RangeScan(source, LEDGER, 0, 3)

    def deleted(*_: object) -> Sequence[Block]:
        source.stored.clear()
        return []

    source.read_stored = deleted  # type: ignore[method-assign,assignment]  # deleted meanwhile
    assert scan.step(ROOM, store_bytes=ROOM) is None
    assert not scan.done
    assert scan.step(ROOM, store_bytes=ROOM) is None
    assert scan.done
