"""Every golden script answers what it has recorded; and a script that does not is noticed."""

import os
from pathlib import Path

import pytest

from tests.model.scripts import cursor_machine, recovery_machine, topic_machine, writer_machine
from tests.model.scripts.harness import MACHINES, ScriptError, run, scripts

assert {
    cursor_machine.NAME,
    recovery_machine.NAME,
    topic_machine.NAME,
    writer_machine.NAME,
} <= MACHINES.keys()


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    recorded = path.read_text(encoding="utf-8")
    now = run(recorded)
    if os.environ.get("DAYBOOK_REWRITE_SCRIPTS"):
        path.write_text(now, encoding="utf-8")
        return
    assert now == recorded, (
        "if the new answers are right: DAYBOOK_REWRITE_SCRIPTS=1 pytest tests/model/scripts"
    )


_SCRIPT = """machine writer
# The shortest script.
create 3/3/2 a b c
append x
flush
    send a b c: 0..0 lac -1
ack a
ack b
    complete t1 0..0
    lac 0
"""


def test_a_script_that_holds_is_reproduced() -> None:
    assert run(_SCRIPT) == _SCRIPT


@pytest.mark.parametrize(
    "change", [("complete t1 0..0", "complete t1 0..1"), ("    lac 0\n", ""), ("ack b", "ack a")]
)
def test_a_wrong_answer_is_noticed(change: tuple[str, str]) -> None:
    wrong = _SCRIPT.replace(*change)
    assert wrong != _SCRIPT
    assert run(wrong) != wrong


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("create 3/3/2 a b c\n", "first command must be"),
        ("machine nothing\n", "the machines are"),
        ("machine writer\ndance\n", "no command 'dance'"),
        ("machine writer\ncreate 3/3/9 a b c\n", "line 2"),
        ("    an answer\n", "without a command"),
    ],
)
def test_a_script_that_makes_no_sense_says_where(script: str, why: str) -> None:
    with pytest.raises(ScriptError, match=why):
        run(script)
