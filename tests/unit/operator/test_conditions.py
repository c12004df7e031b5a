"""Conditions: since when can be believed, and what is wrong says what to do."""

import pytest
from daybook_operator.plan.conditions import fine, from_iso, iso, merge, reports, unknown, wrong
from daybook_operator.plan.decision import finish, paused
from daybook_operator.plan.effects import EventType, Manifest, Ref, Report, SetStatus

REF = Ref("daybook.dev/v1alpha1", "Ledger", "data", "orders", "u1")


def manifest(**status: object) -> Manifest:
    meta = {"name": "orders", "namespace": "data", "uid": "u1", "generation": 3}
    return {"apiVersion": REF.api_version, "kind": REF.kind, "metadata": meta, "status": status}


def test_the_time_changes_with_the_status_alone() -> None:
    first = merge([], [wrong("Ready", "A", "no", next_step="Wait.")], generation=1, now_ms=1_000)
    again = merge(first, [wrong("Ready", "B", "still no", next_step="Wait.")], generation=2, now_ms=9_000)
    assert again[0]["lastTransitionTime"] == first[0]["lastTransitionTime"] == iso(1_000)
    assert (again[0]["reason"], again[0]["observedGeneration"]) == ("B", 2)
    good = merge(again, [fine("Ready", "C")], generation=2, now_ms=20_000)
    assert good[0]["lastTransitionTime"] == iso(20_000)


def test_what_is_wrong_says_what_to_do() -> None:
    said = wrong("Ready", "NoRoom", "There is no room.", next_step="Add a bookie.")
    assert said.message == "There is no room. Add a bookie."
    assert unknown("Ready", "Away", "It is away", next_step="Wait.").word == "Unknown"
    with pytest.raises(AssertionError, match="what to do next"):
        wrong("Ready", "NoRoom", "There is no room.", next_step="")


def test_events_report_changes_and_nothing_else() -> None:
    bad = wrong("Ready", "NoRoom", "There is no room", next_step="Add a bookie.")
    before = merge([], [bad], generation=1, now_ms=0)
    assert reports(REF, before, [bad]) == ()
    assert reports(REF, [], [fine("Ready", "Fine")]) == (), "that all is well from the start is no news"
    (told,) = reports(REF, before, [fine("Ready", "Fine", "Room enough.")])
    assert (told.type, told.reason) == (EventType.NORMAL, "Fine")
    (told,) = reports(REF, [], [bad])
    assert told == Report(REF, EventType.WARNING, "NoRoom", "Ready is False: There is no room. Add a bookie.")


def test_a_status_that_is_so_is_not_written() -> None:
    first = finish(
        REF, manifest(), effects=(), status={"a": 1, "b": None}, conditions=[fine("Ready", "F")], now_ms=0
    )
    (write,) = first.effects
    assert isinstance(write, SetStatus)
    assert write.status["a"] == 1
    assert "b" not in write.status
    again = finish(
        REF,
        manifest(**write.status),
        effects=(),
        status={"a": 1},
        conditions=[fine("Ready", "F")],
        now_ms=99_000,
    )
    assert again.effects == ()


def test_the_status_is_the_last_effect() -> None:
    other = Report(REF, EventType.NORMAL, "X", "x")
    bad = wrong("Ready", "No", "no", next_step="Wait.")
    decision = finish(REF, manifest(), effects=[other], status={}, conditions=[bad], now_ms=0)
    assert [type(each) for each in decision.effects] == [Report, Report, SetStatus]
    assert decision.effects[0] == other


def test_a_paused_object_keeps_all_that_its_status_says() -> None:
    ready = merge([], [fine("Ready", "F")], generation=1, now_ms=0)
    (write,) = paused(REF, manifest(ledgerId=7, conditions=ready), 5_000).effects
    assert isinstance(write, SetStatus)
    assert write.status["ledgerId"] == 7
    assert [each["type"] for each in write.status["conditions"]] == ["Paused", "Ready"]
    assert paused(REF, manifest(**write.status), 9_000).effects == ()


@pytest.mark.parametrize("text", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"])
def test_times_are_read_as_the_api_server_writes_them(text: str) -> None:
    assert iso(from_iso(text)) == "2026-01-02T03:04:05Z"
