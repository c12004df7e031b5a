"""The tail cache: what it gives, and what leaves it first."""

import random

from daybook_broker.topics.tail_cache import ENTRY_COST_BYTES, TailCache

from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import Position

KIB = b"k" * 1024
ENTRY_BYTES = len(KIB) + ENTRY_COST_BYTES


def positions(entries: list[TopicEntry] | None) -> list[tuple[int, int]]:
    """Where they are."""
    assert entries is not None
    return [entry.position for entry in entries]


def test_what_was_put_in_is_found_by_any_of_its_entries() -> None:
    cache = TailCache(2**20)
    cache.add(7, 0, [(b"a", 1), (b"b", 5)])
    cache.add(7, 2, [(memoryview(b"c"), 2)])
    assert cache.find(7, 1, 9, 2**20) == [
        TopicEntry(Position(7, 1), b"b", 5),
        TopicEntry(Position(7, 2), memoryview(b"c"), 2),
    ]
    assert cache.find(7, 3, 9, 2**20) is None
    assert cache.find(8, 0, 9, 2**20) is None
    assert cache.has(7, 2)
    assert not cache.has(7, 3)
    assert not cache.has(8, 0)


def test_a_run_ends_where_the_bytes_or_the_entries_end_and_has_at_least_one_entry() -> None:
    cache = TailCache(2**20)
    cache.add(7, 0, [(KIB, 1)] * 9)
    assert positions(cache.find(7, 2, 4, 2**20)) == [(7, 2), (7, 3), (7, 4)]
    assert positions(cache.find(7, 2, 8, 2048)) == [(7, 2), (7, 3)]
    assert positions(cache.find(7, 2, 8, 1)) == [(7, 2)]


def test_the_oldest_runs_of_all_topics_leave_first_and_as_a_whole() -> None:
    cache = TailCache(4 * ENTRY_BYTES)
    cache.add(7, 0, [(KIB, 1)] * 2)
    cache.add(8, 0, [(KIB, 1)])
    cache.add(7, 2, [(KIB, 1)])
    assert cache.size_bytes == cache.bytes_max
    cache.add(9, 0, [(KIB, 1)])
    assert not cache.has(7, 0)
    assert not cache.has(7, 1)
    assert cache.has(7, 2)
    assert cache.has(8, 0)
    assert cache.size_bytes == 3 * ENTRY_BYTES


def test_a_run_larger_than_the_cache_is_not_kept() -> None:
    cache = TailCache(ENTRY_BYTES)
    cache.add(7, 0, [(KIB, 1)] * 2)
    assert cache.find(7, 0, 1, 2**20) is None
    assert cache.size_bytes == 0


def test_the_cache_never_holds_more_than_its_bound_and_forgets_ledgers_that_have_nothing_in_it() -> None:
    rng = random.Random(5)
    cache = TailCache(20 * ENTRY_BYTES)
    ends = dict.fromkeys(range(50), 0)
    for _ in range(2000):
        ledger_id, count = rng.randrange(50), rng.randrange(1, 5)
        cache.add(ledger_id, ends[ledger_id], [(bytes(rng.randrange(3000)), 1)] * count)
        ends[ledger_id] += count
        assert cache.size_bytes <= cache.bytes_max
    held = [data for tail in cache._tails.values() for data, _ in tail.values()]
    assert cache.size_bytes == sum(len(data) + ENTRY_COST_BYTES for data in held)
    assert all(cache._tails.values())
