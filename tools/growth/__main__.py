"""`python -m tools.growth`: measure how costs grow, part by part, and write docs/growth.md.

What is measured at a size replaces what docs/records/growth.jsonl had of it, so that sizes may be measured one by one, and
what was measured before an error stays.
"""

import argparse
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from bench.interpreter import python_build
from daybook.runtime.signals import exit_on_sigterm
from tests.process.chaos.records import commit
from tools.growth.large_store import measure_large_store
from tools.growth.ledgers import measure_ledgers
from tools.growth.open_ledgers import measure_open_ledgers
from tools.growth.page import PAGE, RECORDS, UNITS, load, page
from tools.growth.topic_resources import measure_topic_resources

MEASURES: Final = {
    "ledgers": (measure_ledgers, [10_000, 30_000, 100_000]),
    "open-ledgers": (measure_open_ledgers, [1_000, 3_000, 10_000]),
    "large-store": (measure_large_store, [512, 1024, 2048, 4096]),
    "topic-resources": (measure_topic_resources, [100, 1_000, 5_000]),
}
"""What is measured, and at which sizes: ledgers, open ledgers, MiB in one bookie's store, Topics."""


def main() -> int:
    """0 when everything was measured."""
    parser = argparse.ArgumentParser(prog="python -m tools.growth", description=__doc__)
    parser.add_argument(
        "--part", choices=sorted(MEASURES), action="append", help="measure this alone (may be repeated)"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="instead of the usual ones")
    parser.add_argument(
        "--page-only", action="store_true", help="write the page from the records that are there"
    )
    parser.add_argument(
        "--dir", type=Path, help="where clusters keep their data meanwhile (default: a temporary one)"
    )
    options = parser.parse_args()
    exit_on_sigterm()
    for part in [] if options.page_only else options.part or list(MEASURES):
        records: list[dict[str, Any]] = []
        try:
            measure(part, options.sizes, options.dir, records)
        finally:
            _write(merged(load(), records))
    PAGE.write_text(page(load()), encoding="utf-8")
    return 0


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both, the new ones in the place of old ones of the same part, thing and size; parts and sizes in order."""
    by_key = {(r["part"], r["what"], r["size"]): r for r in [*old, *new]}
    return sorted(by_key.values(), key=lambda record: (list(MEASURES).index(record["part"]), record["size"]))


def measure(
    part: str, sizes: list[int] | None, directory: Path | None, records: list[dict[str, Any]]
) -> None:
    """Append the records of one part as they come; `sizes` instead of the usual ones, data below `directory`."""
    work, usual = MEASURES[part]
    about = {
        "cores": os.cpu_count(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "python": python_build(),
    }
    console = Console(stderr=True, highlight=False)

    def note(what: str, size: int, **figures: Any) -> None:
        records.append(
            {
                "part": part,
                "what": what,
                "size": size,
                **figures,
                **about,
                "load": round(os.getloadavg()[0], 1),
            }
        )
        shown = ", ".join(f"{name} {value:,}" for name, value in figures.items() if name in UNITS)
        console.print(f"{part}, {size:,}: {what}: {shown}", soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="daybook-growth-", dir=directory) as scratch:
        work(sorted(sizes or usual), Path(scratch), note)


def _write(records: list[dict[str, Any]]) -> None:
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
