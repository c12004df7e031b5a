"""Who asks for limbo marks: a page of them or that of one ledger, whatever else the bookie holds (rule 29)."""

from collections.abc import Callable, Mapping

import pytest
from daybook_bookie.journal.format import deletion_record, limbo_clear_record, limbo_record
from daybook_bookie.journal.thread import Barrier
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.store.store import Store

from daybook.core.errors import Code
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import RunningBookie
from tests.unit.bookie.stream_kit import WAIT_S


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def mark(bookie: RunningBookie, *ledgers: int) -> None:
    decide(bookie, *(limbo_record(ledger_id, nonce(ledger_id)) for ledger_id in ledgers))


def decide(bookie: RunningBookie, *records: object) -> None:
    table = bookie.bookie.table
    with table.lock:
        barrier = Barrier([table.storage.decide(record) for record in records])  # type: ignore[arg-type]  # records
        bookie.bookie.journal.put(barrier)
    assert barrier.wait(WAIT_S) is Code.OK


def listed(bookie: RunningBookie, after: int = -1, *, only: bool = False) -> dict[int, str]:
    request = pb.ListLimboRequest(after_ledger=after, only=only)
    return {each.ledger_id: each.nonce for each in bookie.stub.list_limbo(request, timeout=WAIT_S).ledgers}


@pytest.mark.parametrize("flushed", [False, True])
def test_marks_are_found_in_cache_and_store_until_they_are_cleared_or_their_ledger_is_deleted(
    bookie: RunningBookie, flushed: bool
) -> None:
    mark(bookie, 1, 2, 3, 9)
    if flushed:
        assert bookie.flush()
    assert listed(bookie) == {n: nonce(n).hex() for n in (1, 2, 3, 9)}
    decide(bookie, limbo_clear_record(1, nonce(7)), limbo_clear_record(2, nonce(2)), deletion_record(3))
    mark(bookie, 5)
    for _ in range(2):
        assert listed(bookie) == {n: nonce(n).hex() for n in (1, 5, 9)}
        assert listed(bookie, 1) == {n: nonce(n).hex() for n in (5, 9)}
        assert [n for n in range(12) if listed(bookie, n - 1, only=True)] == [1, 5, 9]
        assert bookie.flush()


def test_a_question_about_one_ledger_looks_at_no_other(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark(bookie, *range(1000))
    assert bookie.flush()

    def too_much(_: object) -> None:
        raise AssertionError("all ledgers are walked")

    monkeypatch.setattr(Store, "ledgers", too_much)
    monkeypatch.setattr(Store, "limbo_marks", too_much)
    monkeypatch.setattr(LedgerTable, "limbo_marks", too_much)
    request = pb.ListLimboRequest(after_ledger=499, limit=1, only=True)
    answer = bookie.stub.list_limbo(request, timeout=WAIT_S)
    assert {each.ledger_id: each.nonce for each in answer.ledgers} == {500: nonce(500).hex()}
    assert answer.boot_id == bookie.bookie.boot_id, "so that nobody has to ask for it"


@pytest.mark.parametrize("method", ["ledgers", "limbo_marks"])
def test_rule_29_a_mark_that_is_flushed_while_marks_are_listed_is_listed(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Or a repair would take the ledger's answers for proof."""
    mark(bookie, 1)
    real: Callable[[Store], Mapping[int, object]] = getattr(Store, method)

    def look_and_flush(store: Store) -> Mapping[int, object]:
        found = real(store)
        assert bookie.flush()
        return found

    monkeypatch.setattr(Store, method, look_and_flush)
    assert bookie.bookie.table.limbo_marks() == {1: nonce(1).hex()}
