"""A table keeps every name whole, wherever it goes; see `daybook.cli.output`."""

import io

import pytest
from rich.table import Table

from daybook.cli.output import Output

NAMES = [f"test-12345-{number:02}.bookies-of-a-long-name-{number}" for number in range(3)]


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def printed(to: io.StringIO, monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    """The lines of a table that is wider than 80 columns."""
    for name in ("COLUMNS", "TERM", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    table = Table("bookie", "node", "message")
    for name in NAMES:
        table.add_row(name, f"node-of-{name}", f"{name} waits")
    Output(file=to).print(table)
    return to.getvalue().splitlines()


def test_a_row_is_one_whole_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(io.StringIO(), monkeypatch)
    for name in NAMES:
        assert sum(line.count(name) for line in lines) == 3
        assert any(f"node-of-{name}" in line and f"{name} waits" in line for line in lines)


@pytest.mark.parametrize(
    ("to", "environment"),
    [(io.StringIO, {"COLUMNS": "80"}), (Terminal, {"COLUMNS": "80"}), (Terminal, {"TERM": "dumb"})],
    ids=["a pipe and COLUMNS", "a terminal", "a dumb terminal"],
)
def test_names_are_folded_and_never_cut_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, to: type[io.StringIO], environment: dict[str, str]
) -> None:
    lines = printed(to(), monkeypatch, **environment)
    rows = [line for line in lines if line.startswith("│")]  # the head has bold letters
    assert max(map(len, rows)) <= 80
    assert not any("…" in row for row in rows)
    cells = [row.split("│")[1].strip() for row in rows]
    assert "".join(cells) == "".join(NAMES), "nothing of the first column is lost"


def test_the_width_is_asked_for_at_each_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output = Output(file=io.StringIO())
    assert output.width == 40
    monkeypatch.setenv("COLUMNS", "200")
    assert output.width == 200
    monkeypatch.delenv("COLUMNS")
    assert output.width > 200
