"""LACs of idle ledgers in tables: cached at once, synced with what comes next or for whoever waits, never answered."""

from collections.abc import Callable

import grpc
import pytest
from daybook_bookie.journal.thread import WAITING_BYTES_MAX

from daybook.core.errors import Code
from daybook.core.format.lac_table import LAC_ROWS_MAX, LAC_TABLE_MAGIC, LacRow, encode_lac_row, lac_table
from daybook.core.ids import EntryId, LedgerId
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, StalledJournal, eventually, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S, Stream, StreamEndedError

pytestmark = OVER_BOTH

StartBookie = Callable[..., RunningBookie]


def written(bookie: RunningBookie) -> Stream:
    """A stream whose ledger 1 has an entry."""
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"abc"])) == {}
    assert eventually(lambda: bookie.metric("journal_groups_total") == 1)
    return stream


def lac(bookie: RunningBookie, ledger_id: LedgerId = 1) -> EntryId:
    """What the bookie knows, durable or not."""
    with bookie.bookie.table.lock:
        return bookie.bookie.table.machine.lac(ledger_id).last_add_confirmed


def ask(bookie: RunningBookie, known: EntryId, timeout_ms: int = 10_000) -> "grpc.Future[pb.ReadLacResponse]":
    request = pb.ReadLacRequest(ledger_id=1, known_lac=known, timeout_ms=timeout_ms, key=KEY)
    poll: grpc.Future[pb.ReadLacResponse] = bookie.stub.read_lac.future(request, timeout=WAIT_S)
    return poll


def test_the_hello_says_that_tables_are_understood(bookie: RunningBookie) -> None:
    assert bookie.open_stream().hello.takes_lac_tables


def test_rule_48_a_table_without_waiters_is_synced_with_the_next_frame_and_not_answered(
    bookie: RunningBookie,
) -> None:
    stream = written(bookie)
    groups = bookie.metric("journal_groups_total")
    stream.pipe.send(lac_table([LacRow(1, 0, 3), LacRow(77, 0, 3)]))
    assert eventually(lambda: bookie.metric("lac_rows_total") == 2)
    assert lac(bookie) == 0
    assert lac(bookie, 77) == -1
    assert bookie.metric("journal_groups_total") == groups
    assert stream.add(frame_of(1, 1, [b"d"])) == {}, "frames are numbered without the tables"
    assert eventually(lambda: bookie.metric("journal_groups_total") == groups + 1), "one group has both"
    assert eventually(lambda: bookie.metric("journal_queue_bytes") == 0)
    bookie.restart()
    assert lac(bookie) == 0


def test_rule_48_a_long_poll_is_answered_once_the_row_is_durable(bookie: RunningBookie) -> None:
    stream = written(bookie)
    poll = ask(bookie, known=-1)
    assert eventually(lambda: bookie.metric("read_lac_long_polls") == 1)
    with StalledJournal(bookie) as journal:
        stream.pipe.send(lac_table([LacRow(1, 0, 3)]))
        assert journal.reached.wait(WAIT_S)
        assert bookie.metric("read_lac_long_polls") == 1, (
            "the row is synced at once, not at the end of the long poll"
        )
        assert lac(bookie) == 0
        with pytest.raises(grpc.FutureTimeoutError):
            poll.result(timeout=0.2)
    answer = poll.result(timeout=WAIT_S)
    assert (Code(answer.code), answer.last_add_confirmed, answer.length_at_lac) == (Code.OK, 0, 3)


@pytest.mark.parametrize("timeout_ms", [0, 10_000])
def test_rule_48_who_asks_later_makes_the_row_durable(bookie: RunningBookie, timeout_ms: int) -> None:
    written(bookie).pipe.send(lac_table([LacRow(1, 0, 3)]))
    assert eventually(lambda: lac(bookie) == 0)
    with StalledJournal(bookie) as journal:
        poll = ask(bookie, known=-1, timeout_ms=timeout_ms)
        assert journal.reached.wait(WAIT_S)
        with pytest.raises(grpc.FutureTimeoutError):
            poll.result(timeout=0.2)
    assert poll.result(timeout=WAIT_S).last_add_confirmed == 0


def test_rule_48_rows_of_a_stream_that_is_not_attached_vanish(bookie: RunningBookie) -> None:
    written(bookie)
    for recovery in (False, True):
        stranger = bookie.open_stream()
        if recovery:
            assert stranger.attach(1, recovery=True) is Code.OK
        received = bookie.metric("lac_rows_total")
        stranger.pipe.send(lac_table([LacRow(1, 0, 3)]))
        assert eventually(lambda before=received: bookie.metric("lac_rows_total") == before + 1)  # type: ignore[misc] # a default binds it now
        assert lac(bookie) == -1


def test_rule_48_rows_never_pass_a_fence(bookie: RunningBookie) -> None:
    stream = written(bookie)
    assert Code(bookie.fence(1).code) is Code.OK
    stream.pipe.send(lac_table([LacRow(1, 0, 3)]))
    assert eventually(lambda: bookie.metric("lac_rows_total") == 1)
    assert lac(bookie) == -1


def test_rule_44_a_damaged_row_is_dropped_and_the_others_count(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    stream = written(bookie)
    assert stream.attach(2) is Code.OK
    table = bytearray(lac_table([LacRow(2, 0, 3), LacRow(1, 0, 3)]))
    table[20] ^= 1
    stream.pipe.send(bytes(table))
    assert eventually(lambda: lac(bookie) == 0)
    assert lac(bookie, 2) == -1
    assert bookie.metric("add_entry_rejected_total", code="BAD_FRAME") == 1


@pytest.mark.parametrize("count", [0, 2, LAC_ROWS_MAX + 1, 2**32 - 1])
def test_a_table_of_another_size_than_it_says_ends_the_stream_with_a_reason(
    bookie: RunningBookie, count: int
) -> None:
    stream = written(bookie)
    rows = min(count, LAC_ROWS_MAX + 1) if count > LAC_ROWS_MAX else 1
    stream.pipe.send(LAC_TABLE_MAGIC + count.to_bytes(4, "little") + rows * encode_lac_row(LacRow(1, 0, 3)))
    with pytest.raises(StreamEndedError, match=f"a table of {count} LACs"):
        stream.take()
    assert lac(bookie) == -1


def test_rows_that_nobody_waits_for_are_written_before_they_are_many(bookie: RunningBookie) -> None:
    """They take a part of the budget of what waits for the journal, and memory."""
    stream = written(bookie)
    groups = bookie.metric("journal_groups_total")
    last = WAITING_BYTES_MAX // len(lac_table([LacRow(1, 0, 0)]))
    for entry in range(last + 1):
        stream.pipe.send(lac_table([LacRow(1, entry, entry)]))
    assert eventually(lambda: bookie.metric("journal_groups_total") == groups + 1)
    assert lac(bookie) == last
    assert eventually(lambda: bookie.metric("journal_queue_bytes") == 0)


def test_rows_that_wait_are_written_when_the_bookie_stops(bookie: RunningBookie) -> None:
    written(bookie).pipe.send(lac_table([LacRow(1, 0, 3)]))
    assert eventually(lambda: lac(bookie) == 0)
    bookie.restart()
    assert lac(bookie) == 0
