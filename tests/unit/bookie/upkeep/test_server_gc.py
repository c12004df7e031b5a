"""Deleted ledgers go, and no other ever does."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from daybook_bookie.disk.errors import StorageFullError
from daybook_bookie.identity.metadata_link import MetadataLink

from daybook.core.errors import Code, MetadataUnavailableError
from daybook.core.format.frame import FLAG_RECOVERY
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.store import BadVersionError, Versioned
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, eventually, formatted_store, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

pytestmark = OVER_BOTH

StartBookie = Callable[..., RunningBookie]


def fill(bookie: RunningBookie, *ledger_ids: int) -> None:
    """Put an entry into each ledger, stored."""
    stream = bookie.open_stream()
    for ledger_id in ledger_ids:
        assert stream.attach(ledger_id) is Code.OK
        assert stream.add(frame_of(ledger_id, 0, [b"x"])) == {}
    stream.close()
    assert bookie.flush()


def collect(bookie: RunningBookie) -> pb.CollectGarbageResponse:
    """One round."""
    answer: pb.CollectGarbageResponse = bookie.stub.collect_garbage(
        pb.CollectGarbageRequest(), timeout=WAIT_S
    )
    return answer


def held(bookie: RunningBookie) -> list[int]:
    """The ledgers that the bookie has."""
    return list(bookie.stub.list_ledgers(pb.ListLedgersRequest(after_ledger=-1), timeout=WAIT_S).ledger_ids)


def test_a_deleted_ledger_goes_for_good_and_the_others_stay(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    fill(bookie, 1, 2)
    bookie.delete_ledger(1)
    answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.OK, [1])
    assert held(bookie) == [2]
    assert bookie.read(1, 0, 0)[1] == []
    assert bookie.flush()
    assert bookie.bookie.storage.store.stored(1) is None, "its blocks are gone, too"
    bookie.restart()
    assert held(bookie) == [2]
    assert bookie.read(2, 0, 0)[1] == [(0, b"x")]
    assert list(collect(bookie).deleted) == []


def test_rule_20_a_writer_of_a_deleted_and_collected_ledger_writes_no_more(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    stream.add(frame_of(1, 0, [b"x"]))
    bookie.delete_ledger(1)
    assert list(collect(bookie).deleted) == [1]
    assert stream.add(frame_of(1, 1, [b"y"])) == {0: Code.NOT_ATTACHED}
    assert stream.attach(1) is Code.NO_SUCH_LEDGER
    bookie.restart()
    assert bookie.open_stream().attach(1) is Code.NO_SUCH_LEDGER
    assert bookie.read(1, 0, 9)[1] == []


def test_rule_28_a_listing_that_leaves_a_ledger_out_deletes_nothing(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bookie, 1)
    monkeypatch.setattr(bookie.link, "ledger_ids", frozenset)
    answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.OK, [])
    assert bookie.read(1, 0, 0)[1] == [(0, b"x")]


def test_rule_28_without_a_listing_or_a_direct_read_nothing_is_deleted(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bookie, 1)
    bookie.delete_ledger(1)

    def fail(*_: object) -> None:
        raise MetadataUnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(bookie.link, "ledger_ids", fail)
        answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.UNAVAILABLE, [])
    assert "could not be listed" in answer.detail
    with monkeypatch.context() as patch:
        patch.setattr(bookie.link, "read_ledger", fail)
        answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.UNAVAILABLE, [])
    assert held(bookie) == [1]
    assert list(collect(bookie).deleted) == [1]


def test_a_deletion_that_the_journal_has_no_room_for_is_carried_out_and_makes_room(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.create_ledger(2)
    fill(bookie, 1, 2)
    bookie.delete_ledger(1)

    def refuse(*_: object) -> None:
        raise StorageFullError("no room for a journal file")

    with monkeypatch.context() as patch:
        patch.setattr(bookie.bookie.storage.journal, "append", refuse)
        answer = collect(bookie)
        assert (Code(answer.code), list(answer.deleted)) == (Code.UNAVAILABLE, [1])
        assert "1 deletions could not be journalled" in answer.detail
        assert eventually(lambda: bookie.bookie.storage.store.stored(1) is None), "a flush was asked for"
    assert held(bookie) == [2]
    assert bookie.metric("gc_deleted_ledgers_total") == 1


def test_damage_of_a_deleted_ledger_counts_no_more_whoever_found_it_last(bookie: RunningBookie) -> None:
    fill(bookie, 1)
    bookie.bookie.scrubber.found(1, 0)
    assert bookie.metric("damaged_entries") == 1
    bookie.delete_ledger(1)
    assert list(collect(bookie).deleted) == [1]
    bookie.bookie.scrubber.found(1, 0)
    assert bookie.flush()
    assert bookie.metric("damaged_entries") == 0


def test_collection_runs_by_itself(start_bookie: StartBookie) -> None:
    bookie = start_bookie(gc_interval_ms=20)
    bookie.create_ledger(1)
    fill(bookie, 1)
    bookie.delete_ledger(1)
    assert eventually(lambda: bookie.metric("gc_deleted_ledgers_total") == 1)
    assert held(bookie) == []


def test_recovery_frames_do_not_make_a_ledger_writable(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    stream = bookie.open_stream()
    assert stream.attach(2, recovery=True) is Code.OK
    assert stream.add(frame_of(2, 0, [b"x"], flags=FLAG_RECOVERY)) == {}
    bookie.delete_ledger(2)
    bookie.restart()
    assert bookie.open_stream().attach(2) is Code.NO_SUCH_LEDGER


def repaired_away(bookie: RunningBookie, ledger_id: int) -> None:
    """Entries 0 and 1 of a ledger that is CLOSED and whose metadata names another bookie."""
    bookie.create_ledger(ledger_id, bookies=("b9",))
    stream = bookie.open_stream()
    assert stream.attach(ledger_id, recovery=True) is Code.OK
    assert stream.add(frame_of(ledger_id, 0, [b"x", b"y"], flags=FLAG_RECOVERY)) == {}
    assert bookie.flush()

    async def close() -> None:
        current = await bookie.link.ledgers.read(ledger_id)
        await bookie.link.ledgers.cas(current, current.value.in_recovery().closed(1, 2))

    bookie.link.run(close())


def test_rule_47_replicas_that_metadata_places_elsewhere_are_removed(bookie: RunningBookie) -> None:
    fill(bookie, 1)
    repaired_away(bookie, 2)
    before = bookie.link.read_version(2)
    assert collect(bookie).surplus_entries == 2
    after = bookie.link.read_version(2)
    assert before is not None
    assert after is not None
    assert after.version == before.version + 1, "a repair that planned notices"
    assert replace(after.value, unknown_fields=before.value.unknown_fields) == before.value
    assert bookie.flush()
    assert bookie.read(2, 0, 9)[1] == []
    assert bookie.read(1, 0, 9)[1] == [(0, b"x")]
    bookie.restart()
    assert bookie.read(2, 0, 9)[1] == []
    assert collect(bookie).surplus_entries == 0


def test_rule_47_an_add_since_the_metadata_was_read_keeps_everything(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    repaired_away(bookie, 2)
    raise_version = bookie.link.raise_version

    def repair_comes_back(current: Versioned[LedgerMetadata]) -> int:
        version = raise_version(current)
        stream = bookie.open_stream()
        stream.attach(2, recovery=True)
        assert stream.add(frame_of(2, 0, [b"x", b"y"], flags=FLAG_RECOVERY)) == {}
        return version

    monkeypatch.setattr(bookie.link, "raise_version", repair_comes_back)
    assert collect(bookie).surplus_entries == 0
    assert bookie.flush()
    assert bookie.read(2, 0, 9)[1] == [(0, b"x"), (1, b"y")]


def test_a_ledger_that_was_deleted_while_a_stream_held_it_leaves_nothing_in_memory(
    bookie: RunningBookie,
) -> None:
    stream = bookie.open_stream()
    stream.attach(1)
    assert stream.add(frame_of(1, 0, [b"x"])) == {}
    bookie.delete_ledger(1)
    held = bookie.bookie.table.machine.ledgers
    assert held._ledgers_of_stream
    assert list(collect(bookie).deleted) == [1]
    left = [*held._ledgers, *held._holds, *held._ledgers_of_stream]
    assert left == [], "although the stream lives"
    stream.close()
    assert eventually(lambda: not (held._ledgers or held._holds or held._ledgers_of_stream))


def test_rule_47_the_raise_of_another_bookie_is_not_taken_for_the_own(bookie: RunningBookie) -> None:
    """The request is lost, another bookie raises the same version, and the retry meets its write."""
    other = MetadataLink(formatted_store(bookie.metadata), bookie.link.layout.cluster, "b0")
    try:
        current = bookie.link.read_version(1)
        assert current is not None
        raised: list[int] = []
        bookie.metadata.inject(
            Fault(FaultKind.REFUSE, "put", then=lambda: raised.append(other.raise_version(current)))
        )
        with pytest.raises(BadVersionError):
            bookie.link.raise_version(current)
        assert raised == [current.version + 1]
    finally:
        other.close()
