"""A topic's list: its JSON, what is refused, and which changes an owner may make."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.topics.ledger_list import (
    NO_POSITION,
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    ListState,
    Position,
    check_list_change,
)

EMPTY = LedgerList()


def closed(ledger_id: int, entries: int = 10, **fields: Any) -> ListedLedger:
    return ListedLedger(
        ledger_id, created_at_ms=1, entries=entries, size_bytes=100 * entries, closed_at_ms=2, **fields
    )


def opened(ledger_id: int) -> ListedLedger:
    return ListedLedger(ledger_id, created_at_ms=3)


def listing(*ledgers: ListedLedger, **fields: Any) -> LedgerList:
    """A list of these ledgers that ends where they do."""
    is_open = bool(ledgers) and ledgers[-1].is_open
    ends = [ledger.last_position for ledger in ledgers if ledger.entries]
    return LedgerList(
        **{
            "state": ListState.OPEN if is_open else ListState.CLOSED,
            "ledgers": ledgers,
            "last_confirmed": max([NO_POSITION, *ends]),
            "owner_token": "t",
            **fields,
        }
    )


@st.composite
def lists(draw: st.DrawFn) -> LedgerList:
    """A list of any legal shape."""
    times = st.none() | st.integers(0, 10**13)
    ids: list[int] = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=5)))
    ledgers = [
        closed(
            ledger_id,
            draw(st.integers(0, 10**6)),
            first_published_at_ms=draw(times),
            last_published_at_ms=draw(times),
            follows=draw(st.sampled_from([None, NO_POSITION])),
            under_replicated=draw(st.booleans()),
            unknown_fields=draw(st.dictionaries(st.sampled_from(["x", "y"]), st.integers(), max_size=2)),
        )
        for ledger_id in ids
    ]
    if draw(st.booleans()) and ids:
        ledgers[-1] = opened(ids[-1])
    found = replace(listing(*ledgers), last_ledger_created_at_ms=draw(st.integers(0, 10**13)))
    if found.last_confirmed > NO_POSITION and draw(st.booleans()):
        compacted = CompactedLedger(2**63 - 1 if 2**63 - 1 not in ids else -1, 3, 4, found.last_confirmed)
        is_left = compacted.ledger_id > 0 and draw(st.booleans())
        compaction = Compaction(found.last_confirmed, (compacted,) if is_left else ())
        found = replace(found, compaction=compaction)
    return found


@given(lists())
def test_a_list_comes_back_as_it_was(found: LedgerList) -> None:
    assert LedgerList.from_json(found.to_json()) == found


def test_the_stored_form_is_the_documented_one() -> None:
    stored = listing(closed(3, 2, first_published_at_ms=4, last_published_at_ms=5), opened(7))
    assert json.loads(stored.to_json()) == {
        "formatVersion": 1,
        "state": "LedgerOpened",
        "lastConfirmedEntry": "3:1",
        "ledgers": [
            {
                "ledgerId": 3,
                "entries": 2,
                "size": 200,
                "offloaded": False,
                "underReplicated": False,
                "createdAtMs": 1,
                "closedAtMs": 2,
                "firstPublishedAtMs": 4,
                "lastPublishedAtMs": 5,
            },
            {
                "ledgerId": 7,
                "entries": 0,
                "size": 0,
                "offloaded": False,
                "underReplicated": False,
                "createdAtMs": 3,
                "closedAtMs": None,
                "firstPublishedAtMs": None,
                "lastPublishedAtMs": None,
            },
        ],
        "lastLedgerCreatedTimestamp": 0,
        "ownerToken": "t",
    }
    assert json.loads(EMPTY.to_json())["lastConfirmedEntry"] == "-1:-1"


def compacted(*ledgers: tuple[int, Position], horizon: Position) -> Compaction:
    return Compaction(
        horizon, tuple(CompactedLedger(ledger_id, 1, 9, through) for ledger_id, through in ledgers)
    )


COMPACTION = compacted((4, Position(3, 4)), (6, Position(3, 8)), horizon=Position(3, 9))


def test_what_a_compaction_wrote_is_stored_beside_the_ledgers_and_a_topic_without_one_has_no_such_field() -> (
    None
):
    stored = listing(closed(3), opened(7), compaction=COMPACTION)
    assert json.loads(stored.to_json())["compaction"] == {
        "horizon": "3:9",
        "ledgers": [
            {"ledgerId": 4, "entries": 1, "size": 9, "through": "3:4"},
            {"ledgerId": 6, "entries": 1, "size": 9, "through": "3:8"},
        ],
    }
    assert LedgerList.from_json(stored.to_json()) == stored
    assert stored.named_ids - stored.ids == stored.compacted_ids == {4, 6}
    assert b"compaction" not in listing(closed(3)).to_json()


def test_a_ledger_says_what_it_follows_unless_an_earlier_release_named_it() -> None:
    stored = listing(closed(3), replace(opened(7), follows=Position(3, 9)))
    first, second = json.loads(stored.to_json())["ledgers"]
    assert "follows" not in first
    assert second["follows"] == "3:9"
    assert LedgerList.from_json(stored.to_json()) == stored
    with pytest.raises(MetadataError, match="ledger 3 follows 3:0, which is not before it"):
        replace(opened(3), follows=Position(3, 0))


def test_unknown_fields_are_kept() -> None:
    record = json.loads(listing(closed(3), compaction=COMPACTION).to_json()) | {"later": {"x": 1}}
    record["ledgers"][0]["also"] = 2
    record["compaction"]["also"] = 3
    record["compaction"]["ledgers"][0]["also"] = 4
    assert json.loads(LedgerList.from_json(json.dumps(record).encode()).to_json()) == record


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(listing(closed(3), opened(7)).to_json()) | fields).encode()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no topic's list"),
        (b"[]", "no topic's list"),
        (changed(formatVersion=4), "format 4"),
        (changed(state="BUSY"), "BUSY"),
        (changed(state="ClosedLedger"), "its last ledger's is another"),
        (changed(ledgers=[]), "its last ledger's is another"),
        (changed(ledgers=[{}]), "ledgerId"),
        (changed(lastConfirmedEntry="3"), "no topic's list"),
        (changed(lastConfirmedEntry="3:-2"), "no position"),
        (changed(lastConfirmedEntry=f"{2**63}:0"), "no position"),
        (changed(lastConfirmedEntry="3:8"), "ends at 3:8, before 3:9"),
        (changed(lastLedgerCreatedTimestamp=1.0), "no whole number"),
        (changed(compaction={"horizon": "3"}), "no topic's list"),
        (changed(compaction={"horizon": "8:0", "ledgers": []}), "before the horizon 8:0"),
    ],
)
def test_records_that_no_history_leads_to_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        LedgerList.from_json(data)


@pytest.mark.parametrize(
    ("ledgers", "what"),
    [
        ((closed(3), closed(3)), "ids rise"),
        ((opened(3), opened(7)), "only the last one may be"),
        ((replace(closed(3), size_bytes=-1),), "-1 bytes"),
        ((replace(closed(3), entries=-1),), "-1 entries"),
        ((replace(opened(3), entries=1),), "count once it is closed"),
    ],
)
def test_ledgers_that_no_history_leads_to_are_refused(ledgers: tuple[ListedLedger, ...], what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        listing(*ledgers)


@pytest.mark.parametrize(
    ("ledgers", "horizon", "what"),
    [
        ([(4, Position(3, 4)), (6, Position(3, 4))], Position(3, 9), "is to rise"),
        ([(4, Position(3, 4))], Position(3, 3), "up to 3:3"),
        ([(4, Position(3, 4)), (4, Position(3, 5))], Position(3, 9), "named twice"),
        ([(3, Position(3, 4))], Position(3, 9), "one of the topic's own"),
        ([], Position(3, 10), "ends at 3:9, before the horizon 3:10"),
    ],
)
def test_a_compaction_that_no_history_leads_to_is_refused(
    ledgers: list[tuple[int, Position]], horizon: Position, what: str
) -> None:
    with pytest.raises(MetadataError, match=what):
        listing(closed(3), compaction=compacted(*ledgers, horizon=horizon))


def test_a_compacted_ledger_has_entries() -> None:
    with pytest.raises(MetadataError, match="without entries"):
        Compaction(Position(3, 9), (CompactedLedger(4, 0, 0, Position(3, 9)),))


def test_the_horizon_may_be_in_the_open_ledger_whose_end_the_list_does_not_know() -> None:
    assert listing(closed(3), opened(7), compaction=compacted(horizon=Position(7, 100)))


END = Position(3, 9)
TERMINATED = listing(closed(3), state=ListState.TERMINATED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (EMPTY, listing(opened(0))),
        (listing(closed(3)), listing(closed(3), opened(7))),
        (listing(opened(7)), listing(closed(7))),
        (listing(opened(7)), listing(closed(7, 0))),
        (listing(closed(3), opened(7)), listing(closed(3), closed(7), opened(8))),
        (listing(closed(3), closed(4), opened(7)), listing(closed(4), opened(7))),
        (listing(closed(3)), listing(last_confirmed=END)),
        (listing(last_confirmed=END), listing(opened(4), last_confirmed=END)),
        (listing(closed(3)), listing(closed(3), owner_token="another")),
        (listing(closed(3)), listing(closed(3, under_replicated=True))),
        (listing(closed(3)), TERMINATED),
        (TERMINATED, replace(TERMINATED, ledgers=())),
        (listing(closed(3)), listing(closed(3), compaction=COMPACTION)),
        (
            listing(closed(3), compaction=compacted(horizon=Position(3, 8))),
            listing(closed(3), compaction=COMPACTION),
        ),
        (listing(closed(3), compaction=COMPACTION), listing(closed(3))),
    ],
)
def test_legal_steps_pass(old: LedgerList, new: LedgerList) -> None:
    check_list_change(old, new)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (TERMINATED, listing(closed(3)), "never goes from Terminated to ClosedLedger"),
        (TERMINATED, listing(closed(3), opened(7)), "never goes from Terminated to LedgerOpened"),
        (listing(closed(3)), listing(), "falls from 3:9 to -1:-1"),
        (listing(closed(3), closed(4)), listing(closed(3), last_confirmed=Position(4, 9)), "from the front"),
        (listing(closed(3), closed(4), closed(5)), listing(closed(3), closed(5)), "from the front"),
        (listing(opened(7)), listing(), "an open ledger is not trimmed"),
        (listing(closed(3)), listing(closed(3), closed(4), opened(5)), "one ledger is added at a time"),
        (listing(closed(4)), listing(closed(3), closed(4)), "from the front|id above 4"),
        (listing(last_confirmed=END), listing(opened(3), last_confirmed=END), "with an id above 3"),
        (listing(closed(3)), listing(closed(3, 11)), "a close is final"),
        (listing(closed(3)), listing(replace(closed(3), closed_at_ms=9)), "a close is final"),
        (
            listing(closed(3), compaction=COMPACTION),
            listing(closed(3), compaction=compacted(horizon=Position(3, 8))),
            "horizon falls from 3:9 to 3:8",
        ),
    ],
)
def test_rule_38_a_change_that_no_owner_may_make_is_refused(
    old: LedgerList, new: LedgerList, what: str
) -> None:
    with pytest.raises(MetadataError, match=what):
        check_list_change(old, new)
