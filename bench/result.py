"""What one workload gave on one side."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from bench.pace import is_reached


@dataclass(slots=True)
class Result:
    """A measured row; None where the row has no such figure. Rates count the drain of the store in.

    `rate_per_s` is the rate that was asked for, 0 where there was none; then `entries_per_s` is what was reached of it, and
    latencies count from when an entry was due. `seconds` is how long the creation or recovery of many ledgers took,
    `first_entries_s` until each of those created had its first entry acknowledged; CPU is in percent of one core, of the client
    and of the busiest bookie.
    """

    side: str
    name: str
    entries: int
    entry_bytes: int
    entries_per_s: float | None = None
    before_drain_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    read_per_s: float | None = None
    recovery_ms: float | None = None
    seconds: float | None = None
    first_entries_s: float | None = None
    client_cpu_percent: float | None = None
    bookie_cpu_percent: float | None = None
    rss_anon_mib: float | None = None
    rate_per_s: int = 0

    @property
    def mb_per_s(self) -> float | None:
        """Payload megabytes (10⁶) a second, written once (the disk sees each several times)."""
        return None if self.entries_per_s is None else self.entries_per_s * self.entry_bytes / 1e6

    @property
    def part_of_rate(self) -> float | None:
        """What was reached in parts of what was asked; None where there was no rate."""
        if not self.rate_per_s or self.entries_per_s is None:
            return None
        return self.entries_per_s / self.rate_per_s

    @property
    def is_failed(self) -> bool:
        """Whether the rate was not reached."""
        part = self.part_of_rate
        return part is not None and not is_reached(part)

    def record(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self) | {
            "mb_per_s": self.mb_per_s,
            "part_of_rate": self.part_of_rate,
            "is_failed": self.is_failed,
        }


FIGURES: Final = tuple(each.name for each in fields(Result) if each.default is None)
"""The fields that are measured."""
