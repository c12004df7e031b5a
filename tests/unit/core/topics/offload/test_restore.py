"""Offloaded ledgers come back: which, what the list says of it, how that may change, and what the owner refuses (rule 72)."""

import json
from dataclasses import replace

import pytest

from daybook.core.errors import LedgersNeededError, MetadataError, NotOwnerError, PlanOutdatedError
from daybook.core.topics.events import CasList, DeleteLedger, ReadList, TrimRequested
from daybook.core.topics.ledger_list import (
    CompactedLedger,
    Compaction,
    LedgerList,
    Position,
    check_list_change,
)
from daybook.core.topics.offload.changes import OffloadBegun, ReplicasUnneeded
from daybook.core.topics.offload.plan import OffloadLimits, plan_offload, unnamed_files
from daybook.core.topics.offload.record import PLACE_CHARS_MAX, Offload, Restored
from daybook.core.topics.offload.restore import (
    LedgersRestored,
    RestoredLedger,
    RestoreLimits,
    check_restored,
    files_due,
    plan_restore,
)
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.lists import open_list
from tests.unit.core.topics.offload.kit import (
    JOB,
    LAG_MS,
    LATER_JOB,
    NOW_MS,
    offload,
    offloaded_list,
    place,
    written,
)
from tests.unit.core.topics.offload.test_named import file_of, offloaded
from tests.unit.core.topics.world import Owner, World, kinds, serving

GONE = offload(3, 10).without_replicas
COPY = 50
COPIED = Restored(COPY, place(3), NOW_MS + LAG_MS)


def request(
    ledger_id: int = 3, entries: int = 10, stored_as: int | None = COPY, size_bytes: int = 0
) -> LedgersRestored:
    """A run has restored a ledger."""
    plan = PlannedLedger(ledger_id, entries, size_bytes)
    return LedgersRestored(JOB, (RestoredLedger(plan, place(ledger_id), 7, stored_as),), NOW_MS, LAG_MS)


def of_row(restored: Restored | None, file: Offload | None = None) -> LedgerList:
    """A list with ledger 3 like this, and ledger 4."""
    found = offloaded_list({3: file, 4: None})
    return replace(found, ledgers=(replace(found.ledgers[0], restored=restored), found.ledgers[1]))


def restored_world() -> tuple[World, Owner]:
    """A topic with a closed ledger of two entries whose entries are in ledger 2, and an open one."""
    world, owner = offloaded()
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.run()
    assert world.ledgers.keys() == {1}
    copy = world.create()
    world.ledgers[copy].entries = [b"a", b"b"]
    owner.step(request(0, 2, copy, size_bytes=2))
    assert kinds(owner) == [CasList]
    return world, owner


def test_rule_72_the_list_names_the_copy_in_place_of_the_file_and_entries_keep_their_positions() -> None:
    world, owner = restored_world()
    (row, _) = world.ledger_list.ledgers
    assert (row.ledger_id, row.stored_as, row.offload, row.entries) == (0, 2, None, 2)
    assert row.restored == Restored(2, place(0), NOW_MS + LAG_MS)
    assert world.ledger_list.named_ids == world.ledgers.keys() == {1, 2}
    assert [position for position, _ in world.topic()] == [(0, 0), (0, 1), (1, 0)]
    assert [data for _, data in world.topic()] == [b"a", b"b", b"c"]
    owner.step(request(0, 2, 2, size_bytes=2))
    assert kinds(owner) == [], "it is named already"


def test_rule_72_a_copy_goes_with_its_ledger_or_once_a_file_is_the_only_copy_again() -> None:
    world, owner = restored_world()
    owner.step(TrimRequested((), Retention()))
    assert kinds(owner) == [CasList, DeleteLedger]
    assert world.ledger_list.ids == world.ledgers.keys() == {1}
    world, owner = restored_world()
    owner.step(OffloadBegun(LATER_JOB))
    owner.step(written((0, 2), job=LATER_JOB, entry_bytes=1))
    owner.run()
    assert world.ledger_list.ledgers[0].stored_as == 2
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.fail()
    assert 2 in world.ledgers, "nobody knows whether the list has given it up"
    assert kinds(owner) == [ReadList, CasList, DeleteLedger]
    assert world.ledgers.keys() == {1}
    assert world.ledger_list.ledgers[0].restored == Restored(None, place(0), NOW_MS + LAG_MS)
    assert json.loads(world.ledger_list.to_json())["formatVersion"] == 2


@pytest.mark.parametrize("is_applied", [False, True])
def test_rule_72_an_owner_that_was_superseded_leaves_the_copy_to_whoever_names_it(is_applied: bool) -> None:
    world, owner = offloaded()
    owner.step(ReplicasUnneeded({0: file_of(world)}))
    owner.run()
    copy = world.create()
    owner.step(request(0, 2, copy, size_bytes=2))
    owner.fail(applied=is_applied)
    serving(world, "two")
    owner.run()
    assert [type(error) for error in owner.ended] == [NotOwnerError]
    assert copy in world.ledgers
    assert (copy in world.ledger_list.named_ids) is is_applied


def test_rule_72_a_copy_takes_the_place_of_the_file_alone_that_it_was_planned_on() -> None:
    found = offloaded_list({3: GONE, 4: None})
    after = request().applied(found)
    assert after == of_row(COPIED)
    assert after.ledgers[0].restored == COPIED
    assert not check_restored(found, request())
    assert check_restored(after, request())
    check_list_change(found, after)
    for row, asked, what in (
        (GONE, request(entries=9), "the plan says 9"),
        (GONE, request(ledger_id=5), "no ledger 5"),
        (GONE, request(stored_as=None), "its replicas have gone meanwhile"),
        (offload(3, 10), request(), "is not in the file"),
        (offload(3, 10, job=LATER_JOB).without_replicas, request(), "is not in the file"),
        (replace(GONE, crc=8), request(), "is not in the file"),
        (None, request(), "is not in the file"),
        (GONE, request(stored_as=4), "names ledger 4 already"),
    ):
        with pytest.raises(PlanOutdatedError, match=what):
            check_restored(offloaded_list({3: row, 4: None}), asked)
        if "already" not in what:
            assert asked.applied(offloaded_list({3: row, 4: None})) == offloaded_list({3: row, 4: None})
    with pytest.raises(LedgersNeededError, match="is being written"):
        check_restored(open_list(open_id=3), request(entries=0))
    with pytest.raises(PlanOutdatedError, match="is not in the file"):
        check_restored(after, request(stored_as=51))


def test_rule_72_an_answer_that_was_lost_is_known_by_the_copy_whatever_came_after_it() -> None:
    assert check_restored(of_row(COPIED, offload(3, 10, job=LATER_JOB)), request())


def test_a_ledger_whose_replicas_are_there_loses_the_mark_of_the_file_alone() -> None:
    other = replace(COPIED, place=place(3, LATER_JOB))
    for former, remembered in (
        (None, replace(COPIED, stored_as=None)),
        (replace(other, file_until_ms=NOW_MS), COPIED),
        (other, other),  # whose lag is not over
    ):
        found = of_row(former, offload(3, 10))
        assert not check_restored(found, request(stored_as=None))
        after = request(stored_as=None).applied(found)
        check_list_change(found, after)
        assert after == of_row(remembered)
        assert check_restored(after, request(stored_as=None))
        assert after.named_ids == found.named_ids


def test_rule_72_a_former_file_stays_for_its_lag_also_once_another_one_is_the_only_copy() -> None:
    later = offload(3, 10, job=LATER_JOB)
    before = replace(of_row(COPIED, later), offload_job=LATER_JOB)
    found = ReplicasUnneeded({3: later}).applied(before)
    check_list_change(before, found)
    assert found.ledgers[0].restored == replace(COPIED, stored_as=None)
    assert found.named_ids == {4}
    assert LedgerList.from_json(found.to_json()) == found
    end_ms = NOW_MS + LAG_MS
    assert (unnamed_files(found, LATER_JOB, [place(3)], end_ms - 1), files_due(found, end_ms - 1)) == ([], {})
    assert unnamed_files(found, LATER_JOB, [place(3)], end_ms) == [place(3)]
    assert files_due(found, end_ms) == {3: place(3)}


def test_rule_72_a_ledger_is_not_restored_from_another_file_before_the_former_one_may_go() -> None:
    former = Restored(None, place(3, LATER_JOB), NOW_MS + 1)
    found = of_row(former, GONE)
    with pytest.raises(PlanOutdatedError, match=r"has to stay until 1000001 ms .* restore it after that"):
        check_restored(found, request())
    assert request().applied(found) == found
    for over in (replace(former, file_until_ms=NOW_MS), replace(former, place=place(3, options="?a=b"))):
        assert not check_restored(of_row(over, GONE), request())
        assert request().applied(of_row(over, GONE)) == of_row(COPIED)


def test_rule_72_bookies_keep_the_copy_and_earlier_releases_refuse_the_list() -> None:
    found = of_row(COPIED)
    assert found.named_ids == found.replicated_ids == {COPY, 4}
    assert found.ids == {3, 4}
    assert found.newest == 4
    assert json.loads(found.to_json())["formatVersion"] == 3
    assert json.loads(of_row(replace(COPIED, stored_as=None)).to_json())["formatVersion"] == 1
    assert LedgerList.from_json(found.to_json()) == found
    stored = json.loads(found.to_json())["ledgers"]
    assert stored[0]["restored"] == {
        "storedAs": 50,
        "place": "file:///cold/3-0123456789abcdef.parquet",
        "fileUntilMs": 1_060_000,
    }
    assert "restored" not in stored[1]
    late = replace(COPIED, unknown_fields={"x": 1})
    assert LedgerList.from_json(of_row(late).to_json()).ledgers[0].restored == late


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (of_row(None, GONE), of_row(replace(COPIED, stored_as=None))),
        (of_row(None, GONE), of_row(None)),
        (of_row(None, offload(3, 10)), of_row(COPIED)),
        (of_row(None), of_row(COPIED)),
        (of_row(COPIED), of_row(replace(COPIED, stored_as=51))),
        (of_row(COPIED), of_row(None)),
        (of_row(COPIED), of_row(replace(COPIED, stored_as=None))),
    ],
)
def test_rule_72_a_ledger_has_its_entries_where_it_had_them_unless_a_copy_replaces_its_file(
    old: LedgerList, new: LedgerList
) -> None:
    with pytest.raises(MetadataError, match=r"rule 72"):
        check_list_change(old, new)


def test_a_ledger_is_not_added_with_a_copy() -> None:
    before = offloaded_list({4: None})
    row = replace(offloaded_list({5: None}).ledgers[0], restored=replace(COPIED, stored_as=None))
    grown = replace(before, ledgers=(*before.ledgers, row), last_confirmed=Position(5, 9))
    with pytest.raises(MetadataError, match="was never offloaded"):
        check_list_change(before, grown)


def test_what_no_restore_leads_to_is_refused() -> None:
    found = of_row(COPIED)
    for stored_as in (3, 4, COPY):
        row = replace(found.ledgers[1], restored=replace(COPIED, stored_as=stored_as))
        with pytest.raises(MetadataError, match="is that of another one, or one of the topic's own"):
            replace(found, ledgers=(found.ledgers[0], row))
    with pytest.raises(MetadataError, match="lies in its file alone"):
        of_row(COPIED, GONE)
    opened = open_list(open_id=3)
    with pytest.raises(MetadataError, match="is open"):
        replace(opened, ledgers=(replace(opened.ledgers[0], restored=COPIED),))
    compacted = Compaction(Position(4, 9), (CompactedLedger(COPY, 1, 1, Position(4, 9)),))
    with pytest.raises(MetadataError, match="or the copy of one"):
        replace(found, compaction=compacted)
    for former in ("", "x" * (PLACE_CHARS_MAX + 1)):
        with pytest.raises(MetadataError, match="its former place has"):
            replace(COPIED, place=former)


def test_what_was_restored_is_offloaded_again_only_where_somebody_asks_for_it() -> None:
    found = of_row(COPIED)
    sized = replace(found, ledgers=tuple(replace(row, size_bytes=100) for row in found.ledgers))
    for limits, chosen in (
        (OffloadLimits(), [4]),
        (OffloadLimits(keep_bytes=100), []),
        (OffloadLimits(with_restored=True), [3, 4]),
        (OffloadLimits(keep_bytes=100, with_restored=True), [3]),
    ):
        assert [row.ledger_id for row in plan_offload(sized, limits, NOW_MS)] == chosen


def test_ledgers_with_files_are_restored_the_newest_ones_where_there_is_a_limit() -> None:
    files = {3: GONE, 4: offload(4, 10), 5: None, 6: offload(6, 10)}
    found = offloaded_list(files)
    rows = [replace(row, size_bytes=100, closed_at_ms=row.ledger_id) for row in found.ledgers]
    found = replace(found, ledgers=tuple(rows))

    def chosen(**limits: object) -> list[int]:
        asked = RestoreLimits(**limits)  # type: ignore[arg-type]  # each test names its own
        return [row.ledger_id for row in plan_restore(found, asked, 10)]

    assert chosen() == [3, 4, 6]
    assert chosen(newest_bytes=300) == [4, 6]
    assert chosen(newest_bytes=299) == [6]
    assert chosen(newest_bytes=99) == []
    assert chosen(newest_ms=6) == [4, 6]
    assert chosen(ledger_ids=(3, 5)) == [3]
    assert chosen(newest_ms=6, ledger_ids=(3, 6)) == [6]
    assert plan_restore(open_list((3, 10), open_id=4), RestoreLimits(newest_ms=1), 10) == []


def test_rule_72_the_file_of_a_restored_ledger_stays_for_its_lag() -> None:
    found = replace(of_row(COPIED), offload_job=LATER_JOB)
    end_ms = NOW_MS + LAG_MS
    assert (unnamed_files(found, LATER_JOB, [place(3)], end_ms - 1), files_due(found, end_ms - 1)) == ([], {})
    assert unnamed_files(found, LATER_JOB, [place(3)], end_ms) == [place(3)]
    assert files_due(found, end_ms) == {3: place(3)}
    elsewhere = place(3, options="?region=a")
    assert unnamed_files(found, LATER_JOB, [elsewhere], end_ms - 1) == []
    again = replace(of_row(COPIED, offload(3, 10)), offload_job=LATER_JOB)
    assert (unnamed_files(again, LATER_JOB, [place(3)], end_ms), files_due(again, end_ms)) == ([], {})
    assert (unnamed_files(again, LATER_JOB, [elsewhere], end_ms), files_due(again, end_ms)) == ([], {})
    respelled = replace(again.ledgers[0], offload=replace(offload(3, 10), place=elsewhere))
    assert files_due(replace(again, ledgers=(respelled,)), end_ms) == {}, "the list names it once more"
