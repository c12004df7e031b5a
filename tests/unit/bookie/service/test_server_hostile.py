"""What a client must not be able to do with a request that no client of ours would make."""

import pytest
from daybook_bookie.journal.format import LedgerIntro, intro_record

from daybook.core.errors import Code
from daybook.core.quorum import Stripe
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S, StreamEndedError


@OVER_BOTH
@pytest.mark.parametrize("ledger_id", [-1, -(2**63)])
def test_a_ledger_id_that_cannot_be_leaves_no_trace(bookie: RunningBookie, ledger_id: int) -> None:
    assert Code(bookie.fence(ledger_id).code) is Code.BAD_FRAME
    stream = bookie.open_stream()
    assert stream.attach(ledger_id) is Code.BAD_FRAME
    assert stream.attach(ledger_id, recovery=True) is Code.BAD_FRAME
    assert bookie.flush()
    assert bookie.failures == []
    assert bookie.bookie.table.known_ids() == []


@OVER_BOTH
@pytest.mark.parametrize("key", ["k" * 256, "é"])
def test_a_key_that_no_password_has_is_refused_and_fences_nothing(bookie: RunningBookie, key: str) -> None:
    assert Code(bookie.fence(1, key=key).code) is Code.UNAUTHORIZED
    stream = bookie.open_stream()
    assert stream.attach(1, key=key) is Code.UNAUTHORIZED
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}, "it is not fenced"


@OVER_BOTH
def test_a_key_on_disk_that_no_password_has_gives_way_to_the_one_in_the_metadata(
    bookie: RunningBookie,
) -> None:
    table = bookie.bookie.table
    with table.lock:
        table.storage.decide(intro_record(LedgerIntro(1, 0, "é".encode())))
    bookie.restart()
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    assert Code(bookie.fence(1).code) is Code.OK


@OVER_BOTH
@pytest.mark.parametrize(
    ("ids", "stripe"),
    [
        ([0, 1, 2], Stripe(3, 0b010)),
        ([1, 2, 4], Stripe(3, 0b001)),
        ([0, 5, 6, 2**32 - 1], Stripe(3, 0b011)),
        ([0], Stripe(64, 1 << 63)),
        ([7, 9, 4_000_000_000], Stripe(64, 0b10)),
    ],
)
def test_entries_that_their_stripe_does_not_hold_harm_nothing(
    bookie: RunningBookie, ids: list[int], stripe: Stripe
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    payloads = [b"%d" % n for n in ids]
    stream.add(frame_of(1, ids[0], payloads, entry_ids=ids, stripe=stripe))
    stream.add(frame_of(1, ids[0], payloads[:1], entry_ids=ids[:1], stripe=stripe))
    for _ in range(2):
        header, entries, _ = bookie.read(1, 0, 2**33)
        assert header.code is Code.OK
        assert [entry.entry_id for entry in entries] in ([], ids)
        assert bookie.flush()
    assert bookie.failures == []


@OVER_BOTH
def test_a_stream_that_breaks_the_rules_gives_back_what_it_took(bookie: RunningBookie) -> None:
    for message in (b"", b"DBC1\xff", b"DBF1", b"nothing known"):
        stream = bookie.open_stream()
        stream.pipe.send(message)
        try:
            stream.settle(1)
        except StreamEndedError:
            continue
    assert bookie.bookie.budget.taken_bytes == 0
    stream = bookie.open_stream()
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}


@pytest.mark.parametrize("ledger_id", [-1, 2**63 - 1])
def test_odd_ledger_ids_are_answered_by_every_control_call(bookie: RunningBookie, ledger_id: int) -> None:
    stub = bookie.stub
    calls = (
        (stub.read_lac, pb.ReadLacRequest(ledger_id=ledger_id, key=KEY)),
        (stub.force, pb.ForceRequest(ledger_id=ledger_id)),
        (stub.entry_intervals, pb.EntryIntervalsRequest(ledger_id=ledger_id)),
        (stub.clear_limbo, pb.ClearLimboRequest(ledger_id=ledger_id, nonce="not hex")),
        (stub.scrub, pb.ScrubRequest(ledger_id=ledger_id)),
    )
    for call, request in calls:
        call(request, timeout=WAIT_S)
    assert bookie.flush()
    assert bookie.failures == []
