"""Tables of LACs: what is encoded comes back, and damage costs a row or the whole, never more memory than came."""

import pytest

from daybook.core.errors import FrameError
from daybook.core.format.lac_table import (
    LAC_ROW_BYTES,
    LAC_ROWS_MAX,
    LAC_TABLE_MAGIC,
    LacRow,
    decode_lac_table,
    encode_lac_row,
    lac_table,
)
from daybook.core.ids import MAX_ID

ROWS = [LacRow(7, 4, 400), LacRow(0, 0, 0), LacRow(MAX_ID, MAX_ID, MAX_ID)]
HEAD_BYTES = 8


def test_rows_come_back_in_their_order() -> None:
    table = lac_table(ROWS)
    assert len(table) == HEAD_BYTES + 3 * LAC_ROW_BYTES
    assert decode_lac_table(table) == (ROWS, 0)
    assert decode_lac_table(memoryview(lac_table([]))) == ([], 0)


def test_rule_44_a_damaged_row_is_dropped_and_the_others_count() -> None:
    for bit in range(8 * LAC_ROW_BYTES):
        table = bytearray(lac_table(ROWS))
        table[HEAD_BYTES + LAC_ROW_BYTES + bit // 8] ^= 1 << bit % 8
        assert decode_lac_table(table) == ([ROWS[0], ROWS[2]], 1)


@pytest.mark.parametrize("row", [LacRow(-1, 0, 0), LacRow(7, -1, 0), LacRow(7, 0, -1)])
def test_a_row_with_a_number_that_cannot_be_is_dropped(row: LacRow) -> None:
    assert decode_lac_table(lac_table([row, ROWS[0]])) == ([ROWS[0]], 1)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"DBL1", "begins with 8 bytes"),
        (b"DBF1" + bytes(4), "no table of LACs begins here"),
        (lac_table(ROWS)[:-1], "a table of 3 LACs in 91 bytes"),
        (lac_table(ROWS) + b"x", "a table of 3 LACs in 93 bytes"),
        (LAC_TABLE_MAGIC + (2**32 - 1).to_bytes(4, "little"), "at most 4096 are allowed"),
    ],
)
def test_what_is_no_table_is_refused_before_anything_is_made_of_it(table: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        decode_lac_table(table)


def test_a_table_has_a_limit() -> None:
    row = encode_lac_row(ROWS[0])
    head = LAC_TABLE_MAGIC + LAC_ROWS_MAX.to_bytes(4, "little")
    assert decode_lac_table(head + row * LAC_ROWS_MAX) == ([ROWS[0]] * LAC_ROWS_MAX, 0)
    head = LAC_TABLE_MAGIC + (LAC_ROWS_MAX + 1).to_bytes(4, "little")
    with pytest.raises(FrameError, match="at most"):
        decode_lac_table(head + row * (LAC_ROWS_MAX + 1))
