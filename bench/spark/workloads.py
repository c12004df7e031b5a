"""What Spark reads in the bench, and what of it is the aim."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

OURS: Final = "Daybook"
NULL: Final = "null source"
PARQUET: Final = "Parquet"
PLAIN: Final = "plain Python"
SOURCES: Final = (NULL, OURS, PARQUET)
TASKS: Final = (1, 2, 4)
"""How many run at a time; the pieces of work are the same."""
LEDGERS: Final = 4


@dataclass(frozen=True, slots=True)
class Workload:
    """Rows of one size. `part_of_null` is the aim: so much of the null source's rows a second."""

    name: str
    size: int
    """Payload of a row in bytes."""
    rows: int
    part_of_null: float
    is_topic: bool = False
    """Messages in batches, which are unpacked; otherwise entries of LEDGERS ledgers."""


@dataclass(slots=True)
class Run:
    """One query: seconds, and seconds of CPU by who used them."""

    seconds: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Row:
    """A workload with a number of tasks: what each round gave, by source."""

    workload: Workload
    tasks: int
    rounds: dict[str, list[Run]] = field(default_factory=dict)

    def rows_per_s(self, source: str) -> float | None:
        """The median of all rounds; None where there was none."""
        runs = self.rounds.get(source)
        return self.workload.rows / statistics.median(run.seconds for run in runs) if runs else None

    def cpu_us(self, source: str) -> dict[str, float]:
        """Microseconds of CPU for a row, by who used them: medians."""
        runs = self.rounds.get(source, [])
        return {
            who: 1e6 * statistics.median(run.cpu_s[who] for run in runs) / self.workload.rows
            for who in (runs[0].cpu_s if runs else ())
        }

    @property
    def part_of_null(self) -> float | None:
        """Our rows a second in parts of the null source's."""
        ours, null = self.rows_per_s(OURS), self.rows_per_s(NULL)
        return None if ours is None or null is None else ours / null

    @property
    def is_met(self) -> bool | None:
        """Whether the aim is kept; None where it was not measured."""
        part = self.part_of_null
        return None if part is None else part >= self.workload.part_of_null


def workloads(scale: float) -> tuple[Workload, ...]:
    """All of them; at scale 1 a query of Spark takes some seconds."""

    def scaled(count: int) -> int:
        return max(4_000, int(count * scale)) // LEDGERS * LEDGERS

    return (
        Workload("ledgers, 1 KiB", 1024, scaled(400_000), 0.7),
        Workload("messages, 100 B in batches", 100, scaled(1_000_000), 0.5, is_topic=True),
    )


def memory_sizes(scale: float) -> tuple[int, ...]:
    """Bytes of ledgers that a worker reads alone, from small to large."""
    return tuple(max(1 << 20, int(mib * scale) << 20) for mib in (16, 64, 256))
