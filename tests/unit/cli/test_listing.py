"""Lists of any length are printed while they are read; see `daybook.cli.listing`."""

import asyncio
import json
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from io import StringIO, TextIOBase
from typing import Any

import pytest

from daybook.cli.listing import TABLE_ROWS_MAX, print_json_array, print_tables


class Counting(TextIOBase):
    """An output that counts its bytes and keeps none."""

    def __init__(self) -> None:
        self.lines = 0

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        return len(text)


async def records(count: int) -> AsyncIterator[dict[str, Any]]:
    for number in range(count):
        yield {"ledgerId": number, "bookies": ["a", "b", "c"]}


async def rows(count: int) -> AsyncIterator[tuple[str, ...]]:
    for number in range(count):
        yield str(number), "OPEN"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_json_array_has_a_record_on_each_line(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(print_json_array(records(count)))
    told = capsys.readouterr().out
    assert [record["ledgerId"] for record in json.loads(told)] == list(range(count))
    assert len(told.splitlines()) == (count + 2 if count else 1)


def test_a_record_is_printed_before_the_next_but_one_is_read() -> None:
    sink = StringIO()

    async def watched() -> AsyncIterator[int]:
        for number in range(100):
            assert len(sink.getvalue().splitlines()) == (number + 1 if number else 0)
            yield number

    with redirect_stdout(sink):
        asyncio.run(print_json_array(watched()))
    assert json.loads(sink.getvalue()) == list(range(100))


def test_a_list_that_ends_in_an_error_is_invalid_json(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 7
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        asyncio.run(print_json_array(broken()))
    with pytest.raises(json.JSONDecodeError):
        json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("how", ["json", "tables"])
def test_memory_does_not_grow_with_the_length_of_a_list(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def peak_bytes(count: int) -> int:
        sink = Counting()
        monkeypatch.setattr(sys, "stdout", sink)
        tracemalloc.start()
        asyncio.run(
            print_json_array(records(count)) if how == "json" else print_tables(("a", "b"), rows(count))
        )
        monkeypatch.undo()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sink.lines >= count
        return peak

    peak_bytes(1)  # what is imported and cached at the first time
    few, many = peak_bytes(TABLE_ROWS_MAX), peak_bytes(4 * TABLE_ROWS_MAX)
    assert many < 1.5 * few + 100_000, "no more for each record"


def test_a_long_list_is_several_tables_with_titles_and_no_row_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asyncio.run(print_tables(("ledger", "state"), rows(2 * TABLE_ROWS_MAX + 1)))
    lines = capsys.readouterr().out.splitlines()
    assert sum("ledger" in line for line in lines) == 3
    assert sum("OPEN" in line for line in lines) == 2 * TABLE_ROWS_MAX + 1
    asyncio.run(print_tables(("ledger", "state"), rows(0)))
    assert "ledger" in capsys.readouterr().out
