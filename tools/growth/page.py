"""docs/growth.md, made of docs/records/growth.jsonl: a line for each thing that was measured at each size."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any, Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDS: Final = ROOT / "docs" / "records" / "growth.jsonl"
PAGE: Final = ROOT / "docs" / "growth.md"

Record: TypeAlias = Mapping[str, Any]

HEAD: Final = """\
# How costs grow

How Daybook's costs grow with the number of ledgers, of open ledgers and of Topic resources, and with a store that is larger than a bookie's memory. `make growth`
measures it and writes this page from `docs/records/growth.jsonl`; nothing here is written by hand.

"How it grows" compares the sizes. A figure that grows in proportion to the size has the exponent 1; a figure that does not depend on the size has the exponent 0; an
exponent well above 1 shows a problem. At small sizes the start of a process dominates, so exponents below 1 are common.
Client, ZooKeeper and all bookies ran on one machine; other work on it slows single figures down.
"""

LEDGERS: Final = """\
Closed ledgers on four bookies (E=3 Qw=3 Qa=2), without entries: the cost of metadata, and of one question to each bookie of a
ledger. Reads of metadata are not throttled here; by default an auditor reads 500 per second, so that the duration of its cycles grows in proportion and its
load does not. After the loss of a bookie, three of four ledgers need a repair. One worker is observed for 20 seconds; it begins at once, for any number
of tasks. Then the bookie comes back, and an audit removes the remaining tasks. If a bookie misses a deadline, the audit does
not ask it again in that cycle, and tasks that depend on its answer stay until the next cycle. Memory is the largest that the process of the command
had.
"""

OPEN_LEDGERS: Final = """\
One client has all ledgers open (E=3 Qw=3 Qa=2) on three bookies. Memory is measured when each ledger has two entries; it is the increase caused by the
ledgers, for the bookie with the largest. Idle: nothing is appended for ten seconds. "Seen" is the time from the acknowledgement
until a reader has the entry, which needs the next LAC (at most 100 ms later, rule 48). At the end the client dies, and another
client recovers all of its ledgers, 16 at a time (a client's default is 64).
"""

LARGE_STORE: Final = """\
One bookie, entries of 4 KiB. Its cgroup may use 256 MiB for its own memory and the page cache together (write cache
2 × 32 MiB), so that most of the store is only on disk. After the writes the bookie is killed and started, then stopped and started; then a client reads the
oldest 128 MiB in order, and 1,000 single random entries, 4 at a time. RssAnon is the bookie's own memory at the end of each step.
"""

TOPIC_RESOURCES: Final = """\
Topics of Kubernetes, without clients, on a real API server with the operator's default intervals, three bookies and one broker. Create: from the first resource until each
is Ready. Rest: nothing changes for 200 seconds, in which there is a resync. Writes are all those that the API server answers, those of its own controllers too.
"""

PARTS: Final = {
    "ledgers": ("Ledgers in ZooKeeper", "ledgers", LEDGERS),
    "open-ledgers": ("Open ledgers", "open ledgers", OPEN_LEDGERS),
    "large-store": ("A store larger than memory", "MiB stored", LARGE_STORE),
    "topic-resources": ("Topic resources", "Topics", TOPIC_RESOURCES),
}
"""Title, what the sizes count, and what was done."""

UNITS: Final = {
    "seconds": "s",
    "cpu_s": "s of CPU",
    "client_cpu_s": "s of CPU, client",
    "bookie_cpu_s": "s of CPU, busiest bookie",
    "client_cpu_percent": "% of a core, client",
    "bookie_cpu_percent": "% of a core, busiest bookie",
    "operator_cpu_s": "s of CPU, operator",
    "operator_cpu_percent": "% of a core, operator",
    "api_writes": "writes, API server",
    "api_writes_per_s": "writes/s, API server",
    "rss_mib": "MiB",
    "client_mib": "MiB more, client",
    "bookie_mib": "MiB more, a bookie",
    "rss_anon_mib": "MiB RssAnon",
    "page_cache_mib": "MiB page cache",
    "data_mib": "MiB on disk",
    "on_disk_mib": "MiB on disk",
    "tasks": "tasks",
    "ledgers": "ledgers in the time",
    "mib_per_s": "MiB/s",
    "reads_per_s": "reads/s",
    "p50_ms": "ms, median",
    "p99_ms": "ms, 99 of 100",
    "longest_ms": "ms, longest",
    "major_faults": "waits for the disk",
    "major_faults_per_read": "waits for the disk for each read",
}
"""What a figure of a record is, as the page calls it; other fields are no figures."""

STEADY: Final = 0.15
"""Exponents up to this are called none; so far from 1, in proportion."""


def load(file: Path = RECORDS) -> list[dict[str, Any]]:
    """All records; none where nothing was measured."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def page(records: Sequence[Record]) -> str:
    """The page that these records make."""
    return HEAD + "".join(
        _part(name, [record for record in records if record["part"] == name])
        for name in PARTS
        if any(record["part"] == name for record in records)
    )


def _part(name: str, records: Sequence[Record]) -> str:
    title, unit, text = PARTS[name]
    sizes = sorted({record["size"] for record in records})
    rows = []
    for what in dict.fromkeys(record["what"] for record in records):
        same = {record["size"]: record for record in records if record["what"] == what}
        for figure in UNITS:
            values = [same.get(size, {}).get(figure) for size in sizes]
            if any(value is not None for value in values):
                cells = ["" if value is None else f"{value:,}" for value in values]
                known = [
                    (size, value) for size, value in zip(sizes, values, strict=True) if value is not None
                ]
                rows.append([what, UNITS[figure], *cells, how_it_grows(known)])
    loads = [record["load"] for record in records]
    measured = (
        f"Measured {_each(records, 'date')} at commit {_each(records, 'commit')} on {_each(records, 'cores')} cores, "
        f"for which {min(loads):g} to {max(loads):g} processes waited (load average)"
    )
    if builds := sorted({record["python"] for record in records if "python" in record}):
        measured += f", with {', '.join(builds)}"
    limits = sorted({record["limit"] for record in records if "limit" in record})
    titles = ["", "", *(f"{size:,} {unit}" for size in sizes), "how it grows"]
    return f"\n## {title}\n\n{text}\n{'; '.join([measured, *limits])}.\n\n{_table(titles, rows)}"


def how_it_grows(values: Sequence[tuple[int, float]]) -> str:
    """A sentence: how much more for how much more, and the exponent that fits all sizes best."""
    exponent = exponent_of(values)
    if exponent is None:
        return "One size tells nothing." if len(values) < 2 else "Nothing that could be compared."
    (first_size, first), (last_size, last) = values[0], values[-1]
    times = (
        f"{last / first:.3g} times at {last_size / first_size:.3g} times the size, exponent {exponent:.2f}"
    )
    if abs(exponent) <= STEADY:
        return f"Stays: {times}."
    if exponent < 0:
        return f"Falls: {times}."
    if exponent < 1 - STEADY:
        return f"Slower than the size: {times}."
    if exponent <= 1 + STEADY:
        return f"In proportion: {times}."
    return f"**Faster than the size**: {times}."


def exponent_of(values: Sequence[tuple[int, float]]) -> float | None:
    """The k of the c·sizeᵏ that fits best; None where there is none."""
    if len(values) < 2 or any(value <= 0 for _, value in values):
        return None
    points = [(log(size), log(value)) for size, value in values]
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return slope / sum((x - middle_x) ** 2 for x, _ in points)


def _each(records: Iterable[Record], field: str) -> str:
    return ", ".join(sorted({str(record[field]) for record in records}))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (titles, ["---"] * len(titles), *rows))
