"""Reads over the wire: from cache, store and both, striped, in pieces; damage is named; long polls."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic

import grpc
import pytest
from daybook_bookie.store.store import Store
from daybook_bookie.store.stored_ledger import StoredLedger

from daybook.core.errors import Code
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FRAME_BYTES_TARGET
from daybook.core.quorum import Stripe
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import READ_MESSAGE_BYTES_TARGET
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S

StartBookie = Callable[..., RunningBookie]


def flush(bookie: RunningBookie) -> None:
    """Move everything from the cache to the store."""
    assert bookie.flush()
    assert bookie.bookie.storage.cache.size_bytes == 0


def payload(entry_id: int) -> bytes:
    """What entry `entry_id` holds."""
    return f"entry {entry_id} ".encode() * (1 + entry_id % 7)


def dense(first: int, last: int) -> bytes:
    """A frame of entries first … last."""
    return frame_of(1, first, [payload(n) for n in range(first, last + 1)])


def expected(ids: list[int]) -> list[Entry]:
    """The entries with these ids."""
    return [Entry(n, payload(n)) for n in ids]


@OVER_BOTH
def test_cache_and_store_are_read_as_one(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(dense(0, 9), dense(20, 29))
    flush(bookie)
    stream.add(dense(10, 19), dense(30, 39))
    assert bookie.read(1, 0, 100)[1] == expected(list(range(40)))
    assert bookie.read(1, 5, 34)[1] == expected(list(range(5, 35)))
    flush(bookie)
    bookie.restart()
    header, entries, damaged = bookie.read(1, 0, 100)
    assert (header.through, entries, damaged) == (100, expected(list(range(40))), [])


@OVER_BOTH
@pytest.mark.parametrize("seed", range(5))
def test_any_mixture_of_cached_stored_and_resent_frames_reads_back(bookie: RunningBookie, seed: int) -> None:
    rng = random.Random(seed)
    stream = bookie.open_stream()
    stream.attach(1)
    held: set[int] = set()
    stripe = Stripe(3, 0b011) if seed % 2 else Stripe(1, 1)
    for _ in range(40):
        first = rng.randrange(200)
        ids = [n for n in range(first, first + rng.randrange(1, 15)) if stripe.holds(n)]
        if not ids:
            continue
        frame = frame_of(1, ids[0], [payload(n) for n in ids], stripe=stripe, entry_ids=ids)
        assert stream.add(frame) == {}
        held |= set(ids)
        if rng.random() < 0.2:
            flush(bookie)
    for _ in range(20):
        first = rng.randrange(220)
        last = first + rng.randrange(100)
        header, entries, damaged = bookie.read(1, first, last)
        assert entries == expected(sorted(n for n in held if first <= n <= last))
        assert (header.code, header.through, damaged) == (Code.OK, last, [])


@OVER_BOTH
def test_a_read_in_pieces_misses_nothing_and_says_how_far_it_came(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    for first in range(0, 100, 10):
        stream.add(frame_of(1, first, [bytes(1000)] * 10))
        if first == 50:
            flush(bookie)
    at, ids = 0, []
    while at <= 99:
        header, entries, _ = bookie.read(1, at, 99, bytes_max=3500)
        assert at <= header.through < at + 20
        got = [entry.entry_id for entry in entries if entry.entry_id >= at]
        assert got, "at least one entry"
        ids += got
        at = header.through + 1
    assert ids == list(range(100))


def test_a_large_read_comes_in_several_messages(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    for first in range(0, 3000, 100):
        stream.add(frame_of(1, first, [bytes(1000)] * 100))
    request = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=2999, bytes_max=16 << 20, key=KEY)
    sizes = [len(message) for message in bookie.stub.read(request, timeout=WAIT_S)]
    assert len(sizes) >= 3
    assert max(sizes) < READ_MESSAGE_BYTES_TARGET + FRAME_BYTES_TARGET


@OVER_BOTH
@pytest.mark.parametrize(("first", "last"), [(-1, 3), (5, 4)])
def test_a_range_that_is_none_is_refused(bookie: RunningBookie, first: int, last: int) -> None:
    assert bookie.read(1, first, last)[0].code is Code.BAD_FRAME


def damage_store(bookie: RunningBookie, needle: bytes) -> None:
    """Flip a bit of `needle` in the store's file, while the bookie is stopped."""
    file: Path = bookie.directory / "store" / "data.mdb"
    data = bytearray(file.read_bytes())
    at = data.find(needle)
    assert at > 0
    while at > 0:
        data[at] ^= 1
        at = data.find(needle)
    bookie.stop()
    file.write_bytes(data)
    bookie._start()


@OVER_BOTH
def test_rule_26_a_damaged_entry_is_named_and_never_left_out(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"first of them", b"damaged entry", b"third of them"]))
    flush(bookie)
    damage_store(bookie, b"damaged entry")
    header, entries, damaged = bookie.read(1, 0, 5)
    assert (header.code, header.through) == (Code.OK, 5)
    assert damaged == [1]
    assert entries == [(0, b"first of them"), (2, b"third of them")]


@pytest.mark.parametrize("before_flush", [False, True])
def test_the_scrubber_finds_damage_and_reports_it_until_it_is_mended(
    bookie: RunningBookie, before_flush: bool
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"first of them", b"damaged entry", b"third of them"]))
    flush(bookie)
    clean = bookie.stub.scrub(pb.ScrubRequest(ledger_id=-1), timeout=WAIT_S)
    assert (clean.ledgers, clean.entries, list(clean.damaged)) == (1, 3, [])
    damage_store(bookie, b"damaged entry")
    found = bookie.stub.scrub(pb.ScrubRequest(ledger_id=1), timeout=WAIT_S)
    assert [(d.ledger_id, list(d.entries)) for d in found.damaged] == [(1, [1])]
    request = pb.EntryIntervalsRequest(ledger_id=1)
    report = bookie.stub.entry_intervals(request, timeout=WAIT_S)
    assert list(report.damaged) == [1]
    assert [(i.first_entry, i.last_entry) for i in report.intervals] == [(0, 2)], "it exists all the same"
    assert bookie.metric("damaged_entries") == 1
    mended = bookie.open_stream()
    mended.attach(1, recovery=True)
    assert mended.add(frame_of(1, 1, [b"damaged entry"], flags=1)) == {}
    if not before_flush:
        flush(bookie)
    assert list(bookie.stub.entry_intervals(request, timeout=WAIT_S).damaged) == []
    assert bookie.metric("damaged_entries") == 0
    assert bookie.read(1, 1, 1)[1] == [(1, b"damaged entry")]


def test_intervals_tell_of_cache_and_store_page_by_page(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(dense(0, 4), dense(10, 14))
    flush(bookie)
    stream.add(dense(20, 24))
    pages, at = [], 0
    while True:
        page = bookie.stub.entry_intervals(
            pb.EntryIntervalsRequest(ledger_id=1, from_entry=at, limit=2), timeout=WAIT_S
        )
        pages += [(i.first_entry, i.last_entry) for i in page.intervals]
        at = pages[-1][1] + 1
        if not page.more:
            break
    assert pages == [(0, 4), (10, 14), (20, 24)]


def test_ledgers_are_listed_page_by_page(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    for ledger_id in (1, 2, 3):
        if ledger_id > 1:
            bookie.create_ledger(ledger_id)
        stream.attach(ledger_id)
        stream.add(frame_of(ledger_id, 0, [b"x"]))
        if ledger_id == 2:
            flush(bookie)
    first = bookie.stub.list_ledgers(pb.ListLedgersRequest(after_ledger=-1, limit=2), timeout=WAIT_S)
    assert (list(first.ledger_ids), first.more) == ([1, 2], True)
    rest = bookie.stub.list_ledgers(pb.ListLedgersRequest(after_ledger=2), timeout=WAIT_S)
    assert (list(rest.ledger_ids), rest.more) == ([3], False)


def test_a_ledger_that_is_flushed_while_ledgers_are_listed_is_listed(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"x"]))
    real = Store.ledgers

    def look_and_flush(store: Store) -> Mapping[int, StoredLedger]:
        found = real(store)
        assert bookie.flush()
        return found

    monkeypatch.setattr(Store, "ledgers", look_and_flush)
    answer = bookie.stub.list_ledgers(pb.ListLedgersRequest(after_ledger=-1), timeout=WAIT_S)
    assert list(answer.ledger_ids) == [1]


# Long polls


def test_a_long_poll_is_answered_when_the_lac_moves(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a", b"b"], lac=-1))
    poll = bookie.stub.read_lac.future(
        pb.ReadLacRequest(ledger_id=1, known_lac=-1, timeout_ms=60_000, key=KEY), timeout=WAIT_S
    )
    with pytest.raises(grpc.FutureTimeoutError):
        poll.result(timeout=0.2)
    stream.add(frame_of(1, 2, [], lac=1, length=2))
    answer = poll.result(timeout=WAIT_S)
    assert (Code(answer.code), answer.last_add_confirmed, answer.length_at_lac) == (Code.OK, 1, 2)


def test_a_long_poll_ends_at_its_deadline_with_what_is_known(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"], lac=-1), frame_of(1, 1, [b"b"], lac=0, length=1))
    started = monotonic()
    answer = bookie.stub.read_lac(
        pb.ReadLacRequest(ledger_id=1, known_lac=0, timeout_ms=200, key=KEY), timeout=WAIT_S
    )
    assert monotonic() - started >= 0.2
    assert (Code(answer.code), answer.last_add_confirmed) == (Code.OK, 0)


def test_a_long_poll_hears_of_a_fence(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"]))
    request = pb.ReadLacRequest(ledger_id=1, known_lac=-1, timeout_ms=60_000, key=KEY)
    poll = bookie.stub.read_lac.future(request, timeout=WAIT_S)
    with pytest.raises(grpc.FutureTimeoutError):
        poll.result(timeout=0.2)
    bookie.fence(1)
    assert poll.result(timeout=WAIT_S).fenced


def test_many_long_polls_hold_no_worker(start_bookie: StartBookie) -> None:
    bookie = start_bookie(control_workers=2)
    bookie.create_ledger(1)
    request = pb.ReadLacRequest(ledger_id=1, known_lac=-1, timeout_ms=60_000, key=KEY)
    polls = [bookie.stub.read_lac.future(request, timeout=2 * WAIT_S) for _ in range(50)]
    info = bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S)
    assert info.bookie_id == "b0"
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"a"], lac=-1), frame_of(1, 1, [], lac=0, length=1))
    assert {poll.result(timeout=WAIT_S).last_add_confirmed for poll in polls} == {0}


def test_a_long_poll_that_was_given_up_frees_its_place(start_bookie: StartBookie) -> None:
    bookie = start_bookie(long_polls_max=3)
    bookie.create_ledger(1)
    request = pb.ReadLacRequest(ledger_id=1, known_lac=-1, timeout_ms=60_000, key=KEY)
    for _ in range(2):
        polls = [bookie.stub.read_lac.future(request, timeout=2 * WAIT_S) for _ in range(3)]
        assert eventually(lambda: bookie.metric("read_lac_long_polls") == 3)
        assert bookie.stub.read_lac(request, timeout=WAIT_S).last_add_confirmed == -1, "no place: at once"
        for poll in polls:
            poll.cancel()
        assert eventually(lambda: bookie.metric("read_lac_long_polls") == 0)


def test_slow_readers_do_not_hold_up_control_calls(start_bookie: StartBookie) -> None:
    bookie = start_bookie(read_workers=1, reads_waiting_max=1)
    bookie.create_ledger(1)
    stream = bookie.open_stream()
    stream.attach(1)
    for first in range(40):
        stream.add(frame_of(1, first, [bytes(400_000)]))
    request = pb.ReadRequest(ledger_id=1, first_entry=0, last_entry=39, bytes_max=1 << 30, key=KEY)
    slow = [bookie.stub.read(request) for _ in range(2)]
    next(slow[0])  # and no more: flow control holds its worker
    assert bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).bookie_id == "b0"
    refused = [code_of(call) for call in [bookie.stub.read(request, timeout=5) for _ in range(4)]]
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in refused
    for call in slow:
        call.cancel()


def code_of(call: grpc.Call) -> grpc.StatusCode:
    """How a call ends."""
    return call.code()
