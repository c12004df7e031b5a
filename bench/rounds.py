"""What the rounds of a run come to: the median of each row, and the ratios of the two sides, round by round.

The sides take turns, and each round begins with the next of them, so that a busy time of the machine meets both. A ratio has both
figures of one round, because what the machine does changes from round to round more than the sides do.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from bench.result import FIGURES, Result

OURS: Final = "Daybook"
PEER: Final = "BookKeeper"
COMPARED: Final[Mapping[str, Callable[[Result], float | None]]] = {
    "write/s": lambda result: result.entries_per_s if result.p50_ms is None else None,
    "catch-up read/s": lambda result: result.read_per_s,
    "p50 ms": lambda result: result.p50_ms,
    "p99 ms": lambda result: result.p99_ms,
    "recovery ms": lambda result: result.recovery_ms,
    "many ledgers s": lambda result: result.seconds,
    "client CPU %": lambda result: result.client_cpu_percent,
    "bookie CPU %": lambda result: result.bookie_cpu_percent,
}

Each = TypeVar("Each")


def in_turn(sides: Sequence[Each], number: int) -> Sequence[Each]:
    """The order of the sides in a round; rounds are counted from 1."""
    first = (number - 1) % len(sides)
    return (*sides[first:], *sides[:first])


@dataclass(slots=True)
class Row:
    """A workload on one side: what each round gave, by its number. A round whose client failed is not among them."""

    rounds: dict[int, Result] = field(default_factory=dict)

    @property
    def median(self) -> Result:
        """The median of each figure on its own."""
        results = list(self.rounds.values())
        measured = {
            name: [value for each in results if (value := getattr(each, name)) is not None]
            for name in FIGURES
        }
        return replace(
            results[0], **{name: statistics.median(values) for name, values in measured.items() if values}
        )

    def record(self) -> dict[str, Any]:
        """For the JSON file: the medians, and what they are of."""
        rounds = {str(number): each.record() for number, each in self.rounds.items()}
        return self.median.record() | {"rounds": rounds}


def rows_of(results: Iterable[tuple[int, Result]]) -> Sequence[Row]:
    """A row for each workload and side, of what the rounds gave."""
    rows: dict[tuple[str, str], Row] = {}
    for number, each in results:
        rows.setdefault((each.side, each.name), Row()).rounds[number] = each
    return list(rows.values())


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our figure divided by the peer's, of one figure of one workload, by round. `failed` are the sides that did not reach the rate."""

    workload: str
    figure: str
    ours: float
    theirs: float
    rounds: Mapping[int, float]
    failed: Sequence[str]

    @property
    def median(self) -> float:
        """Of all rounds that have both figures."""
        return statistics.median(self.rounds.values())

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest."""
        return min(self.rounds.values()), max(self.rounds.values())

    def record(self) -> dict[str, Any]:
        """For the JSON file."""
        least, largest = self.spread
        return {
            "workload": self.workload,
            "figure": self.figure,
            "medians": {OURS: self.ours, PEER: self.theirs},
            "rounds": {str(number): ratio for number, ratio in self.rounds.items()},
            "median": self.median,
            "least": least,
            "largest": largest,
            "failed": list(self.failed),
        }


def ratios_of(rows: Sequence[Row]) -> Sequence[Ratio]:
    """Of all workloads that both sides have, figure by figure."""
    peers = {row.median.name: row for row in rows if row.median.side == PEER}
    pairs = [
        (row, peers[row.median.name]) for row in rows if row.median.side == OURS and row.median.name in peers
    ]
    return [
        ratio
        for ours, theirs in pairs
        for figure, read in COMPARED.items()
        if (ratio := _ratio(ours, theirs, figure, read)) is not None
    ]


def _ratio(ours: Row, theirs: Row, figure: str, read: Callable[[Result], float | None]) -> Ratio | None:
    """None where no round has both figures, or the peer's is 0."""
    rounds = {}
    for number in sorted(ours.rounds.keys() & theirs.rounds.keys()):
        mine, other = read(ours.rounds[number]), read(theirs.rounds[number])
        if mine is not None and other:
            rounds[number] = mine / other
    medians = ours.median, theirs.median
    mine, other = map(read, medians)
    if not rounds or mine is None or other is None:
        return None
    failed = [each.side for each in medians if each.is_failed]
    return Ratio(ours.median.name, figure, mine, other, rounds, failed)
