"""`python -m tools.slo`: run the tests that measure what losses cost, again and again, and write docs/slo.md."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.paths import ROOT
from tests.process.chaos.records import commit
from tools.slo.notes import VARIABLE
from tools.slo.page import PAGE, RECORDS, Record, load, page

TESTS: Final = {
    "bookies": ("tests/process/integration/test_slo.py", "tests/process/integration/test_matrix.py"),
    "brokers": ("tests/process/integration/test_slo_brokers.py",),
}


def main() -> int:
    """0: measured and written; otherwise what pytest ended with, and nothing is changed."""
    parser = argparse.ArgumentParser(prog="python -m tools.slo", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=5, help="how often each is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--only", choices=TESTS, help="measure one of the parts, and keep the records of the other"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="write the page from the records that are there"
    )
    options = parser.parse_args()
    if not options.page_only:
        parts = [options.only] if options.only else list(TESTS)
        tests = [test for part in parts for test in TESTS[part]]
        lines = [json.dumps(record) + "\n" for record in load() if _file_of(record) not in tests]
        for run in range(1, options.runs + 1):
            print(f"run {run} of {options.runs}", flush=True)
            code = _measure(run, tests, lines)
            if code:
                return code
        RECORDS.parent.mkdir(parents=True, exist_ok=True)
        RECORDS.write_text("".join(lines), encoding="utf-8")
    PAGE.write_text(page(load()), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written from {RECORDS.relative_to(ROOT)}")
    return 0


def _file_of(record: Record) -> str:
    return str(record["test"]).partition("::")[0]


def _measure(run: int, tests: Sequence[str], lines: list[str]) -> int:
    """Run the tests once and add what they noted to `lines`."""
    about = {
        "run": run,
        "cores": os.cpu_count(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    with tempfile.TemporaryDirectory(prefix="daybook-slo-") as directory:
        notes = Path(directory) / "notes.jsonl"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env={**os.environ, VARIABLE: str(notes)},
            check=False,
        )
        if done.returncode == 0:
            noted = map(json.loads, notes.read_text(encoding="utf-8").splitlines())
            lines += [json.dumps({**record, **about}) + "\n" for record in noted]
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
