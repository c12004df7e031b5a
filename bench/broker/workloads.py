"""What is measured of brokers, and what of it is the aim.

At a rate, latency counts from when a message was due, and a side that reaches less than 99 % of the rate failed: its figures are not those
of this rate, so ours keep no aim then, and those of another bound nothing.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from bench.pace import PART_OF_RATE_MIN, is_reached, paced

Better = Literal["more", "less"]

OURS: Final = "Daybook"
PEER: Final = "Pulsar"
NULL: Final = "null broker"
GO: Final = "go"
"""The work that go_perf.py does instead of load.py."""
REACHED: Final = "reached_per_s"
"""The figure of what was reached of a rate."""
PART_OF_NULL: Final = 0.85
"""Of what a broker reaches that does nothing: the rest is the client's and the machine's."""

Figures = Mapping[str, float]
"""The medians of a figure by side."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a workload. `aim` gives the bound for our side from the figures of the others, None where one is missing."""

    key: str
    name: str
    unit: str
    better: Better
    aim: Callable[[Figures], float | None] = lambda _: None
    form: str = ",.0f"


@dataclass(frozen=True, slots=True)
class Workload:
    """One client process: `work` names it in load.py, with `options`. `sides` are those that it makes sense for."""

    work: str
    name: str
    figures: tuple[Figure, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    sides: tuple[str, ...] = (NULL, OURS, PEER)
    rounds_max: int | None = None
    """In how many rounds it takes part: memory that was used before hides what it takes."""

    def takes_part(self, round_number: int, side: str) -> bool:
        """Whether it is measured on this side in this round."""
        return side in self.sides and (self.rounds_max is None or round_number < self.rounds_max)

    def rows(self) -> Sequence["Row"]:
        """A row for each figure, without any round yet."""
        rounds: dict[str, dict[str, list[float]]] = {
            figure.key: {side: [] for side in self.sides} for figure in self.figures
        }
        rate_per_s = self.options.get("rate", 0)
        return [
            Row(self.name, figure, rounds[figure.key], rate_per_s, rounds.get(REACHED, {}))
            for figure in self.figures
        ]


@dataclass(slots=True)
class Row:
    """A figure on all sides: what each round gave, and what each round reached of the workload's rate, if it has one."""

    workload: str
    figure: Figure
    rounds: dict[str, list[float]]
    rate_per_s: int = 0
    reached: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def medians(self) -> dict[str, float]:
        """By side."""
        return {side: statistics.median(values) for side, values in self.rounds.items() if values}

    @property
    def failed_sides(self) -> Sequence[str]:
        """Those that did not reach the rate."""
        return [
            side
            for side, values in self.reached.items()
            if values and not is_reached(statistics.median(values) / self.rate_per_s)
        ]

    @property
    def aim(self) -> float | None:
        """The bound for our figure."""
        return self.figure.aim(
            {side: value for side, value in self.medians.items() if side not in self.failed_sides}
        )

    @property
    def is_met(self) -> bool | None:
        """Whether ours keeps it, which it does not where the rate was not reached; None where there is no aim or no figure."""
        if OURS in self.failed_sides:
            return False
        aim, ours = self.aim, self.medians.get(OURS)
        if aim is None or ours is None:
            return None
        return ours >= aim if self.figure.better == "more" else ours <= aim


def _write_aim(figures: Figures) -> float | None:
    known = [1.5 * figures[PEER]] if PEER in figures else []
    known += [PART_OF_NULL * figures[NULL]] if NULL in figures else []
    return min(known, default=None)


def _read_aim(figures: Figures) -> float | None:
    known = [figures[PEER]] if PEER in figures else []
    known += [PART_OF_NULL * figures[NULL]] if NULL in figures else []
    return min(known, default=None)


def _as_the_peer(figures: Figures) -> float | None:
    return figures.get(PEER)


def _bulk(size_bytes: int, count: int, name: str) -> Workload:
    return Workload(
        "bulk",
        name,
        (
            Figure("in_per_s", "in", "messages/s", "more", _write_aim),
            Figure("catch_up_per_s", "catch-up", "messages/s", "more", _read_aim),
        ),
        {"size": size_bytes, "count": count},
    )


def _times(key: str, name: str, aim: Callable[[Figures], float | None]) -> tuple[Figure, ...]:
    return (
        Figure(f"{key}_p50_ms", f"{name} p50", "ms", "less", aim, ".2f"),
        Figure(f"{key}_p99_ms", f"{name} p99", "ms", "less", aim, ".2f"),
    )


def _reached(rate_per_s: int) -> Figure:
    return Figure(REACHED, "rate reached", "messages/s", "more", lambda _: PART_OF_RATE_MIN * rate_per_s)


def workloads(scale: float) -> Sequence[Workload]:
    """All of them; `scale` 1 takes about a minute for each round of each side."""

    def scaled(count: int, least: int = 1_000) -> int:
        return max(least, int(count * scale))

    many = Figure("publish_p50_ms", "publish p50", "ms", "less", lambda _: 25.0, ".2f")
    return (
        Workload(
            "idle",
            "idle topics",
            (Figure("topics_per_100_mb", "topics per 100 MB", "", "more", lambda _: 5_000.0),),
            {"topics": scaled(5_000, 100)},
            (OURS,),
            rounds_max=1,
        ),
        _bulk(1024, scaled(100_000), "1 KiB in batches"),
        _bulk(100, scaled(200_000), "100 B in batches"),
        Workload(
            "latency",
            "1 KiB at 1,000/s without batches",
            (
                _reached(1_000),
                *_times("publish", "publish", _as_the_peer),
                *_times("end_to_end", "end to end", _as_the_peer),
            ),
            {"rate": 1_000, "count": paced(1_000, 5, scale)},
        ),
        Workload(
            "many",
            "1,000 topics at 10/s each, two brokers",
            (_reached(10_000), many, Figure("publish_p99_ms", "publish p99", "ms", "less", form=".2f")),
            {"topics": 1_000, "rate": 10_000, "count": paced(10_000, 15, scale)},
        ),
        Workload(
            "fan_out",
            "one topic to 10 subscriptions, 1 KiB in batches",
            (Figure("out_per_s", "out", "messages/s", "more"),),
            {"subscriptions": 10, "size": 1024, "count": scaled(20_000)},
        ),
        Workload(
            GO,
            "1 KiB in batches by Go's perf",
            (
                Figure("in_per_s", "in", "messages/s", "more", _write_aim),
                Figure("publish_p50_ms", "publish p50", "ms", "less", form=".1f"),
            ),
            {"size": 1024},
        ),
    )
