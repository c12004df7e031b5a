"""The load of Pulsar's Go module: its own `perf`, which has no GIL, so that a broker and not its client is the bound.

It is compiled once, from Go's module proxy, and reports every ten seconds; the first report counts the start and is left out.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bench.sides import WorkloadError

MODULE: Final = "github.com/apache/pulsar-client-go/perf@v0.16.0"
REPORTS: Final = 3
_REPORT: Final = re.compile(r"Publish rate:\s+([\d.]+) msg/s.*?50%\s+([\d.]+).*?99%\s+([\d.]+)", re.DOTALL)


def build(cache: Path) -> Path | None:
    """The compiled program; None where there is no Go."""
    program = cache / "go" / "perf"
    if not program.exists():
        if shutil.which("go") is None:
            return None
        program.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(program.parent.resolve())}
        subprocess.run(["go", "install", MODULE], env=environment, check=True)
    return program


def publish(program: Path, url: str, topic: str, size: int) -> dict[str, float]:
    """Publish as fast as it goes; messages a second and ms of its last report. Raises WorkloadError."""
    command = [str(program), "produce", "--metrics", "-1", "-u", url, "-r", "0", "-s", str(size), topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            found = _last_report(process.stdout)
        finally:
            process.send_signal(signal.SIGKILL)
    return found


def _last_report(lines: Iterable[str]) -> dict[str, float]:
    reports = 0
    seen: list[str] = []
    for line in lines:
        seen.append(line)
        report = _REPORT.search(line)
        if report is not None:
            reports += 1
            if reports == REPORTS:
                per_s, p50_ms, p99_ms = map(float, report.groups())
                return {"in_per_s": per_s, "publish_p50_ms": p50_ms, "publish_p99_ms": p99_ms}
    msg = f"Go's perf ended after {reports} reports: {''.join(seen)[-2000:]}"
    raise WorkloadError(msg)
