"""Results as rounds give them, and a side that gives one."""

from collections.abc import Callable
from typing import Any, cast

from bench.result import Result
from bench.rounds import OURS
from bench.sides import Side
from bench.workloads import Workload

WORKLOAD = "1 KiB at 1,000/s"


def result(side: str = OURS, name: str = WORKLOAD, **figures: Any) -> Result:
    """15,000 entries of 1 KiB."""
    return Result(side, name, 15_000, 1024, **figures)


def writing_side(seconds: float, on_write: Callable[[Workload], None] = lambda _work: None) -> Side:
    """A side whose client process takes `seconds` for any write."""

    class WritingSide:
        name = OURS

        def bookie_pids(self) -> list[int]:
            return []

        def write(self, work: Workload) -> dict[str, float]:
            on_write(work)
            return {"seconds": seconds, "p50_ms": 1.0, "p99_ms": 2.0, "p999_ms": 3.0}

    return cast("Side", WritingSide())
