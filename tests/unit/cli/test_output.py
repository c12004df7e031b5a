"""A table never cuts a name, on a terminal or in a file; see `daybook.cli.output`."""

import io
import json
import os
import pty
import re
import subprocess
import sys

import pytest
from rich.table import Table

from daybook.cli.output import Output

NAMES = [f"test-12345-{number:02}.bookies-of-a-long-name-{number}" for number in range(3)]


class Terminal(io.StringIO):
    """A file that reports itself as a terminal."""

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


PROGRAM = """
from daybook.cli.connection import explain_errors
from daybook.cli.output import err
from daybook.runtime.logs import get_logger

@explain_errors
def command():
    with err.status("auditing"):
        input()
        get_logger("auditor").warning("bookie is silent", bookie="b1")

command()
"""


def test_a_log_line_at_a_terminal_is_for_people_and_does_not_stick_to_a_progress_bar() -> None:
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=its_end, env=environment) as process:
        os.close(its_end)
        seen = b""
        while b"auditing" not in seen:
            seen += os.read(terminal, 1 << 16)
        process.communicate(b"\n")
    seen += os.read(terminal, 1 << 16)
    os.close(terminal)
    lines = [
        re.split(r"\r|\x1b\[2K", re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in seen.decode().splitlines()
    ]
    (told,) = [part for line in lines for part in line if "silent" in part]
    assert re.fullmatch(r"\S+Z \[warning  \] bookie is silent +\[auditor\] bookie=b1", told.rstrip()), seen
    piped = subprocess.run(command, input="\n", capture_output=True, text=True, check=True)
    assert json.loads(piped.stderr.splitlines()[-1])["bookie"] == "b1"


def test_the_width_is_read_at_each_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    output = Output(file=io.StringIO())
    assert output.width == 40
    monkeypatch.setenv("COLUMNS", "200")
    assert output.width == 200
    monkeypatch.delenv("COLUMNS")
    assert output.width > 200
