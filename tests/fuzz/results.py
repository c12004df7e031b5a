"""What a long run found, as a line of JSON that outlives it: the raw material of docs/reliability.md.

A line is {"kind", "seed", "counts", "violations", "seconds", "commit", "date"}. The file lies outside of the tree unless
`DAYBOOK_RESULTS` names another place, so that no run changes what it tests.
"""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def results_file() -> Path:
    """Where runs are written down."""
    named = os.environ.get("DAYBOOK_RESULTS")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "daybook" / "results.jsonl"


def commit() -> str:
    """The commit that was run, with a plus if something was changed since; empty outside of git."""
    described = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip()


def record(kind: str, seed: int, counts: dict[str, int], *, violations: int, seconds: float) -> Path:
    """Append a line; returns the file."""
    line = {
        "kind": kind,
        "seed": seed,
        "counts": counts,
        "violations": violations,
        "seconds": round(seconds, 1),
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    path = results_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return path
