"""What a measurement is, and how processes are measured: seconds, seconds of CPU, memory of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any, Final

MIB: Final = 1 << 20
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROGRAM: Final = "from daybook.cli.main import app; app()"
_SAY_PEAK: Final = (
    "import atexit, pathlib, sys\n"
    "status = pathlib.Path('/proc/self/status')\n"
    "atexit.register(lambda: print(status.read_text().partition('VmHWM:')[2].split()[0], file=sys.stderr))\n"
)
"""At its end a process says how much memory it had at most, in KiB. What `wait4` says of it includes what its parent had at its start."""

Note = Callable[..., None]
"""`note(what, size, **figures)`: one measurement of `what` at `size`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command took."""

    seconds: float
    cpu_s: float
    rss_mib: float
    """The most memory it had at once, files that it mapped included."""
    code: int

    def figures(self) -> dict[str, Any]:
        """For a record."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_s": round(self.cpu_s, 2),
            "rss_mib": round(self.rss_mib, 1),
            "exit_code": self.code,
        }


def daybook_command(*arguments: str) -> list[str]:
    """The words of `daybook …`, of this environment."""
    return [sys.executable, "-c", _PROGRAM, *arguments]


def run_daybook(
    directory: Path,
    *arguments: str,
    codes: Sequence[int] = (0,),
    env: dict[str, str] | None = None,
    stop_after_s: float | None = None,
) -> Usage:
    """Run the command on the cluster in `directory` to its end, or interrupt it as Ctrl-C does after a while.

    Raises RuntimeError for another exit code than `codes`.
    """
    command = [sys.executable, "-c", _SAY_PEAK + _PROGRAM, *arguments, "--dir", str(directory)]
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    assert process.stderr is not None
    stopping = Timer(stop_after_s or 0, process.send_signal, [signal.SIGINT])
    if stop_after_s is not None:
        stopping.start()
    said = process.stderr.read().decode(errors="replace")
    stopping.cancel()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if code not in codes:
        msg = f"daybook {' '.join(arguments)} ended with {code}: {said[-2000:]}"
        raise RuntimeError(msg)
    peak_kib = int(said.split()[-1])
    return Usage(seconds, used.ru_utime + used.ru_stime, peak_kib / 1024, code)


def rss_anon_mib(pid: int) -> float:
    """The memory that is a process's own."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def cpu_s(pid: int) -> float:
    """The seconds of CPU that a process has used so far, its own and the kernel's for it."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS


def major_faults(pid: int) -> int:
    """How often a process has waited for a page from the disk so far."""
    return int(_stat(pid)[9])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
