"""A program that a test starts, watches and ends by its process id, with its log in a file."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 3000


class ProcessError(Exception):
    """A program did not start, or ended by itself; the message has the end of its log."""


class Process:
    """One program. It can be started again after it was stopped or killed, with the same command."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Prepare; nothing runs yet."""
        self.name = name
        self.command = list(command)
        self.log = log
        self._environment = None if environment is None else {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start it; see `wait_until` for when it serves."""
        assert self.pid is None, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends its children in order
            )

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Ask until `ready()`. Raises ProcessError if the program ends first, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self.pid is None:
                raise self._failure("ended while it started")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready within {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def signal(self, what: signal.Signals) -> None:
        """Send a signal. Raises ProcessError if it does not run."""
        pid = self.pid
        if pid is None:
            raise self._failure("does not run")
        os.kill(pid, what)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End it in order, or by force once that takes too long; nothing happens if it does not run."""
        if self._process is None or self.pid is None:
            return
        self._process.terminate()
        self._process.send_signal(signal.SIGCONT)  # a paused process receives SIGTERM only when it continues
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a crash would; nothing happens if it does not run."""
        if self._process is not None and self.pid is not None:
            self._process.kill()
            self._process.wait()

    def _failure(self, what: str) -> ProcessError:
        tail = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") if self.log.exists() else ""
        return ProcessError(f"{self.name} {what}; its log {self.log} ends with:\n{tail}")
