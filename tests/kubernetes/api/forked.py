"""Processes that `zygote` forks, with as much of `subprocess.Popen` as the tests use."""

import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 120.0


class Forked:
    """A process. `pid` and `poll` are as in Popen."""

    def __init__(self, zygote: "Zygote", pid: int) -> None:
        """It runs."""
        self.pid = pid
        self._zygote = zygote

    def poll(self) -> int | None:
        """The exit code; negative for a signal; None while it runs."""
        return self._zygote.codes.get(self.pid)

    def wait(self, timeout_s: float) -> int:
        """Wait for the exit code. Raises TimeoutExpired."""
        with self._zygote.news:
            self._zygote.news.wait_for(lambda: self.poll() is not None, timeout_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout_s)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ended a moment ago
                os.kill(self.pid, number)


class Zygote:
    """The process that forks."""

    def __init__(self) -> None:
        """Start it; it imports while the test goes on."""
        self.codes: dict[int, int] = {}
        self.news = threading.Condition()
        self._started: list[int] = []
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubernetes.api.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, name="zygote", daemon=True).start()
        atexit.register(self.close)

    def fork(self, module: str, environment: Mapping[str, str], log: Path) -> Forked:
        """A process that runs `python -m module run` with this environment."""
        assert self._process.stdin is not None
        with self._one_at_a_time:
            order = {"module": module, "environment": dict(environment), "log": str(log)}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            with self.news:
                assert self.news.wait_for(lambda: bool(self._started), _PATIENCE_S), (
                    "the zygote does not answer"
                )
                return Forked(self, self._started.pop())

    def close(self) -> None:
        """End it, and with it what it forked."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self.news:
                if "started" in told:
                    self.codes.pop(told["started"], None)  # of an earlier process with this number
                    self._started.append(told["started"])
                else:
                    self.codes[told["ended"]] = told["code"]
                self.news.notify_all()


@cache
def zygote() -> Zygote:
    """The one of this test process."""
    return Zygote()
