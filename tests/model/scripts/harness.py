"""Golden protocol scripts: a test that reads as prose, with the machine's answers recorded beneath each command.

A script is a text file:

    machine writer                 the first command says which machine it drives
    # Why this script exists.      comments and blank lines are kept
    create 3/3/2 a b c spare d     a command: a word and its arguments
    append x y z
    flush
        send a b c: 0..2 lac -1    indented: what the command must answer, line by line

`DAYBOOK_REWRITE_SCRIPTS=1 pytest tests/model/scripts` records the answers anew; then the diff is what one reviews. The idea
and the habit are those of etcd's raft.

A machine is a class with methods `do_<command>(self, *arguments)` that return lines; `register` names it. So the
recovery, the bookie or any other state machine can be driven by adding one module, imported by test_scripts.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

INDENT: Final = "    "

Machine: TypeAlias = object
MACHINES: Final[dict[str, Callable[[], Machine]]] = {}


def register(name: str, machine: Callable[[], Machine]) -> None:
    """Let scripts that begin with `machine <name>` drive what `machine()` makes."""
    assert name not in MACHINES, f"two machines are called {name}"
    MACHINES[name] = machine


class ScriptError(Exception):
    """A script that cannot be run: it says which line, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, or (with an empty `command`) a comment or blank line."""

    line: int
    text: str
    command: str
    arguments: tuple[str, ...]
    recorded: tuple[str, ...]


def parse(text: str) -> Iterator[Step]:
    """The steps of a script. Raises ScriptError for an answer that has no command."""
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        line, number = lines[index], index + 1
        index += 1
        if line.startswith(INDENT):
            msg = f"line {number}: an answer without a command: {line.strip()!r}"
            raise ScriptError(msg)
        recorded: list[str] = []
        is_command = bool(line.strip()) and not line.startswith("#")
        while is_command and index < len(lines) and lines[index].startswith(INDENT):
            recorded.append(lines[index][len(INDENT) :])
            index += 1
        command, *arguments = line.split() if is_command else [""]
        yield Step(number, line, command, tuple(arguments), tuple(recorded))


def run(text: str) -> str:
    """The script with the answers it gets now. Raises ScriptError for what no machine understands."""
    machine: Machine | None = None
    out: list[str] = []
    for step in parse(text):
        out.append(step.text)
        if not step.command:
            continue
        if step.command == "machine":
            machine = _machine(step)
            continue
        if machine is None:
            msg = f"line {step.line}: the first command must be 'machine <name>'"
            raise ScriptError(msg)
        out.extend(INDENT + answer for answer in _perform(machine, step))
    return "\n".join(out) + "\n"


def _machine(step: Step) -> Machine:
    if len(step.arguments) != 1 or step.arguments[0] not in MACHINES:
        msg = f"line {step.line}: {step.text!r}: the machines are {', '.join(sorted(MACHINES))}"
        raise ScriptError(msg)
    return MACHINES[step.arguments[0]]()


def _perform(machine: Machine, step: Step) -> list[str]:
    method: Any = getattr(machine, f"do_{step.command.replace('-', '_')}", None)
    if method is None:
        known = sorted(name[3:].replace("_", "-") for name in dir(machine) if name.startswith("do_"))
        msg = f"line {step.line}: no command {step.command!r}; there are: {', '.join(known)}"
        raise ScriptError(msg)
    try:
        answers: list[str] = method(*step.arguments)
    except Exception as error:
        msg = f"line {step.line}: {step.text!r} failed with {type(error).__name__}: {error}"
        raise ScriptError(msg) from error
    return answers


def scripts() -> list[Path]:
    """Every script there is."""
    return sorted(Path(__file__).parent.glob("*.txt"))
