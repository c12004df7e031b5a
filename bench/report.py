"""What was measured, for people: a JSON file, a table, a plot, and the ratios where there is a peer."""

import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.interpreter import python_build
from bench.result import Result

Column = tuple[str, Callable[[Result], Any], str]
THROUGHPUT: Final[Sequence[Column]] = (
    ("entries/s", lambda row: row.entries_per_s, ",.0f"),
    ("MB/s", lambda row: row.mb_per_s, ",.1f"),
    ("undrained/s", lambda row: row.before_drain_per_s, ",.0f"),
    ("read/s", lambda row: row.read_per_s, ",.0f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
TIMES: Final[Sequence[Column]] = (
    ("p50 ms", lambda row: row.p50_ms, ".2f"),
    ("p99 ms", lambda row: row.p99_ms, ".2f"),
    ("p99.9 ms", lambda row: row.p999_ms, ".2f"),
    ("recovery ms", lambda row: row.recovery_ms, ",.0f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
MANY: Final[Sequence[Column]] = (
    ("s", lambda row: row.seconds, ".2f"),
    ("first entries s", lambda row: row.first_entries_s, ".2f"),
    ("client CPU %", lambda row: row.client_cpu_percent, ".1f"),
    ("bookie CPU %", lambda row: row.bookie_cpu_percent, ".1f"),
    ("RSS MiB", lambda row: row.rss_anon_mib, ",.0f"),
)
RATIOS: Final[Sequence[tuple[str, Callable[[Result], float | None]]]] = (
    ("write", lambda row: row.entries_per_s),
    ("catch-up read", lambda row: row.read_per_s),
    ("p50", lambda row: row.p50_ms),
    ("p99", lambda row: row.p99_ms),
    ("recovery time", lambda row: row.recovery_ms),
    ("many: time", lambda row: row.seconds),
    ("client CPU", lambda row: row.client_cpu_percent),
    ("bookie CPU", lambda row: row.bookie_cpu_percent),
)


def write_report(rows: Sequence[Result], directory: Path, scale: float, console: Console) -> None:
    """Write `bench.json` and `bench.png` into `directory`, and print tables."""
    directory.mkdir(parents=True, exist_ok=True)
    record = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": python_build(),
        "grpcio": version("grpcio"),
        "lmdb": version("lmdb"),
        "scale": scale,
        "rows": [row.record() for row in rows],
    }
    (directory / "bench.json").write_text(json.dumps(record, indent=2) + "\n")
    many = [row for row in rows if row.seconds is not None or row.client_cpu_percent is not None]
    times = [row for row in rows if row.p50_ms is not None or row.recovery_ms is not None]
    throughput = [row for row in rows if row not in many and row not in times]
    for title, chosen, columns in (
        ("Throughput", throughput, THROUGHPUT),
        ("Latency and recovery", times, TIMES),
        ("Many ledgers", many, MANY),
    ):
        if chosen:
            console.print(results_table(title, chosen, columns))
    pairs = peer_pairs(rows)
    if pairs:
        console.print(ratio_table(pairs))
    plot(rows, directory / "bench.png")
    console.print(python_build())
    console.print(f"written: {directory / 'bench.json'}, {directory / 'bench.png'}")


def results_table(title: str, rows: Sequence[Result], columns: Sequence[Column]) -> Table:
    """Rows with the figures they have."""
    table = Table("side", "workload", title=title)
    for name, _, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        values = [(read(row), form) for _, read, form in columns]
        cells = ("" if value is None else format(value, form) for value, form in values)
        table.add_row(row.side, row.name, *cells)
    return table


def peer_pairs(rows: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Our row and the peer's of the same name."""
    peers = {row.name: row for row in rows if row.side == "BookKeeper"}
    return [(row, peers[row.name]) for row in rows if row.side == "Daybook" and row.name in peers]


def ratio_table(pairs: Sequence[tuple[Result, Result]]) -> Table:
    """Daybook's figure divided by BookKeeper's: rates should be above 1, times below."""
    table = Table("workload", *(name for name, _ in RATIOS), title="Daybook ÷ BookKeeper, same run")
    for ours, theirs in pairs:
        cells = []
        for _, read in RATIOS:
            mine, other = read(ours), read(theirs)
            cells.append("" if mine is None or not other else f"{mine / other:.2f}")
        table.add_row(ours.name, *cells)
    return table


def plot(rows: Sequence[Result], path: Path) -> None:
    """Rates and latencies as bars, a panel for each kind."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels: list[tuple[str, Callable[[Result], float | None]]] = [
        ("write, entries/s (drain counted)", lambda row: row.entries_per_s if row.p50_ms is None else None),
        ("catch-up read, entries/s", lambda row: row.read_per_s),
        ("p50, ms", lambda row: row.p50_ms),
        ("p99, ms", lambda row: row.p99_ms),
        ("many ledgers, s", lambda row: row.seconds),
        ("idle ledgers, client's CPU, %", lambda row: row.client_cpu_percent),
    ]
    figure, axes = plt.subplots(3, 2, figsize=(14, 11), constrained_layout=True)
    colours = {"Daybook": "#2a6f97", "BookKeeper": "#c9704a", "machine": "#8d99ae"}
    for axis, (title, read) in zip(axes.flat, panels, strict=True):
        shown = [(row, value) for row in rows if (value := read(row)) is not None]
        axis.barh(
            [f"{row.name} ({row.side})" for row, _ in shown],
            [value for _, value in shown],
            color=[colours[row.side] for row, _ in shown],
        )
        axis.invert_yaxis()
        axis.set_xscale("log" if title.endswith("ms") else "linear")
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
