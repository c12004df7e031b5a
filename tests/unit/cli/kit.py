"""Runs `daybook`: in this process where that is enough, as a process where pipes and signals matter."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeAlias

from typer.testing import CliRunner, Result

from daybook.cli.main import app

Run: TypeAlias = Callable[..., Result]

COMMAND: Final = (
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from daybook.cli.main import app; app()",
)
"""A shell has what it starts in the background ignore SIGINT, and so would what the tests start. It is undone in there: what
is called between fork and exec (`preexec_fn`) wakes gRPC's threads of this process in its child, which may end by that.
"""
WAIT_S: Final = 60.0
"""Longer than any step takes on a busy machine."""
WIDTH: Final = {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}


def run(*arguments: object, env: dict[str, str] | None = None, stdin: str | None = None) -> Result:
    """Run the command in this process."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, env={**WIDTH, **(env or {})}, input=stdin)


class Process:
    """The command as a process, in a session of its own."""

    def __init__(self, *arguments: object, env: dict[str, str] | None = None) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [*COMMAND, *(str(argument) for argument in arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **WIDTH, **(env or {})},
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self.stdin, self.stdout, self._stderr = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        self._errors: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def errors(self) -> str:
        """Its standard error so far."""
        return "".join(self._errors)

    def _read_errors(self) -> None:
        for line in self._stderr:
            with self._said:
                self._errors.append(line.decode())
                self._said.notify_all()

    def wait_for_error(self, text: str) -> None:
        """Wait until `text` is on standard error."""
        with self._said:
            assert self._said.wait_for(lambda: text in self.errors, WAIT_S), self.errors

    def wait_for_line(self, text: str) -> str:
        """Read lines of standard output until one has `text`."""
        while line := self.stdout.readline().decode():
            if text in line:
                return line
        raise AssertionError(f"no {text!r}: {self.errors}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, bytes]:
        """Wait for its end; the exit code and what was left on standard output."""
        if not self.stdin.closed:
            self.stdin.close()
        rest = b"" if self.stdout.closed else self.stdout.read()
        code = self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self.stdout.close()
        self._stderr.close()
        return code, rest

    def __enter__(self) -> Self:
        """The process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it if the test did not get that far."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.end()


def write(directory: Path, lines: bytes, *arguments: object) -> int:
    """Write lines into a new ledger; its id."""
    with Process("ledger", "write", "--dir", directory, *arguments) as process:
        process.stdin.write(lines)
        code, told = process.end()
        assert code == 0, process.errors
    return int(told)
