"""The record of a cursor: its JSON, its order, and what is left out of one that is too long."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.topics.cursor_record import NO_LEDGER, AckedRange, CursorRecord
from daybook.core.topics.ledger_list import Position

RECORD = CursorRecord(
    Position(3, 7),
    (AckedRange(3, 9, 9), AckedRange(4, 0, 5)),
    ((Position(3, 8), (0b101,)), (Position(4, 6), (-1, 2**63 - 1))),
    last_active_ms=5,
    properties={"k": "v"},
)


@st.composite
def records(draw: st.DrawFn) -> CursorRecord:
    """A cursor of any legal shape."""
    entries = sorted(draw(st.sets(st.integers(8, 200), max_size=12)))
    pairs = zip(entries[::2], entries[1::2], strict=False)
    words = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=3).map(tuple)
    return CursorRecord(
        Position(3, draw(st.integers(-1, 7))),
        tuple(AckedRange(3, first, last) for first, last in pairs),
        tuple((Position(3, entry), draw(words)) for entry in entries),
        draw(st.just(NO_LEDGER) | st.integers(0, 2**63 - 1)),
        draw(st.integers(0, 10**13)),
        draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)),
    )


@given(records())
def test_a_cursor_comes_back_as_it_was(record: CursorRecord) -> None:
    assert CursorRecord.from_json(record.to_json()) == record


def test_the_stored_form_is_the_documented_one() -> None:
    assert json.loads(RECORD.to_json()) == {
        "formatVersion": 1,
        "markDelete": "3:7",
        "ranges": [[3, 9, 9], [4, 0, 5]],
        "batches": [["3:8", 5], ["4:6", -1, 2**63 - 1]],
        "cursorLedgerId": -1,
        "lastActiveMs": 5,
        "properties": {"k": "v"},
    }


def test_unknown_fields_are_kept() -> None:
    record = json.loads(RECORD.to_json()) | {"later": 1}
    assert json.loads(CursorRecord.from_json(json.dumps(record).encode()).to_json())["later"] == 1


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(RECORD.to_json()) | fields).encode()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no cursor"),
        (b"7", "no cursor"),
        (changed(formatVersion=2), "format 2"),
        (changed(ranges=[[3, 7, 9]]), "range at 3:7 is not beyond 3:7"),
        (changed(ranges=[[4, 0, 5], [4, 5, 6]]), "range at 4:5 is not beyond 4:5"),
        (changed(ranges=[[3, 9, 8]]), "no range"),
        (changed(ranges=[[3, 9]]), "no cursor"),
        (changed(ranges=[[-1, 9, 9]]), "no range"),
        (changed(batches=[["3:7", 1]]), "batch at 3:7 is not beyond 3:7"),
        (changed(batches=[["3:8", 1], ["3:8", 1]]), "batch at 3:8 is not beyond 3:8"),
        (changed(batches=[["3:8", 1.5]]), "no cursor"),
    ],
)
def test_records_that_no_history_leads_to_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(MetadataError, match=what):
        CursorRecord.from_json(data)


def test_rule_40_what_does_not_fit_is_left_out_from_the_end() -> None:
    assert RECORD.limited(2) is RECORD
    cut = RECORD.limited(1)
    assert cut.ranges == RECORD.ranges[:1]
    assert cut.batches == RECORD.batches[:1]
    assert cut.mark_delete == RECORD.mark_delete
