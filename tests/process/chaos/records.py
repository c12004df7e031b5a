"""What runs leave behind: one JSON line for each, from which docs/reliability.md can be made.

{"kind": "power cuts", "seed": 7, "counts": {"cuts": 200, …}, "violations": 0, "seconds": 812.4, "commit": "1a2b3c4",
"date": "2026-01-31"}. The commit ends in "+" if files of the project were changed since. Written outside the repository
unless a variable names another file: a run is not a change of the project.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.paths import ROOT

VARIABLE: Final = "DAYBOOK_RECORDS"


def records_file() -> Path:
    """Where lines go: the variable DAYBOOK_RECORDS, or a file in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or cache / "daybook" / "reliability" / "records.jsonl")


def commit() -> str:
    """What runs; "unknown" outside a repository."""
    found = _git("rev-parse", "--short", "HEAD")
    return f"{found}+" if found and _git("status", "--porcelain", "-uno") else found or "unknown"


def write_record(
    kind: str,
    seed: int,
    counts: Mapping[str, int],
    violations: int,
    seconds: float,
    *,
    made_at: str | None = None,
) -> Path:
    """Append the line of one run; returns the file. `made_at`: the `commit()` of a long run's beginning."""
    file = records_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "kind": kind,
        "seed": seed,
        "counts": dict(sorted(counts.items())),
        "violations": violations,
        "seconds": round(seconds, 1),
        "commit": commit() if made_at is None else made_at,
        "date": datetime.now(UTC).date().isoformat(),
    }
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")
    return file


def conclude(
    kind: str,
    seed: int,
    counts: Mapping[str, int],
    violations: Sequence[str],
    *,
    seconds: float,
    made_at: str,
    directory: Path,
    again: str,
    shown_max: int | None = None,
) -> bool:
    """Note a run and print what came of it; whether it was without a violation. Otherwise its directory stays.

    `again` is the command that repeats it; `shown_max` limits the violations that are printed.
    """
    file = write_record(kind, seed, counts, len(violations), seconds, made_at=made_at)
    print(f"seed {seed}: {dict(sorted(counts.items()))}\nviolations: {len(violations)}, noted in {file}")
    if not violations:
        shutil.rmtree(directory)
        return True
    print("\n".join(violations[:shown_max]))
    print(f"again: {again}; all of it is in {directory}")
    return False


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
