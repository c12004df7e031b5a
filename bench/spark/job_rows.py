"""What the bench of jobs measures, and what of it is the aim."""

import statistics
from dataclasses import dataclass, field
from typing import Any, Final

from bench.spark.workloads import Run

AIM: Final = 0.5
"""A compaction takes so much of the data source's rows a second, which reads the topic once, all columns."""


@dataclass(slots=True)
class CompactionRow:
    """Topics of so many messages over so many keys: what each round gave."""

    messages: int
    keys: int
    tasks: int
    size: int = 100
    """Payload of a message in bytes."""
    reads: list[Run] = field(default_factory=list)
    """The data source over the same topics."""
    jobs: list[Run] = field(default_factory=list)
    peak_mib: float = 0.0
    """Of a worker in Python: resident at most, with the files that are mapped."""
    own_mib: float = 0.0
    """Anonymous, after the job."""

    @property
    def name(self) -> str:
        """For a person."""
        return f"compaction, {self.keys:,} keys"

    @property
    def part_of_source(self) -> float:
        """Its rows a second in parts of the data source's."""
        return _median_s(self.reads) / _median_s(self.jobs)

    @property
    def is_met(self) -> bool:
        """Whether the aim is kept."""
        return self.part_of_source >= AIM

    def rows_per_s(self, runs: list[Run]) -> float:
        """Messages of a topic by the seconds of the median of `runs`."""
        return self.messages / _median_s(runs)

    def cpu_us(self, runs: list[Run]) -> dict[str, float]:
        """Microseconds of CPU for a message, by who used them: medians."""
        return {
            who: 1e6 * statistics.median(run.cpu_s[who] for run in runs) / self.messages
            for who in runs[0].cpu_s
        }

    def record(self) -> dict[str, Any]:
        """For JSON."""
        runs = {"data source": self.reads, "compaction": self.jobs}
        return {
            "messages": self.messages,
            "keys": self.keys,
            "tasks": self.tasks,
            "rows per s": {who: self.rows_per_s(each) for who, each in runs.items()},
            "part of the data source": self.part_of_source,
            "aim": AIM,
            "is_met": self.is_met,
            "CPU us per row": {who: self.cpu_us(each) for who, each in runs.items()},
            "seconds": {who: [run.seconds for run in each] for who, each in runs.items()},
            "worker's peak MiB": self.peak_mib,
            "worker's own MiB": self.own_mib,
        }


@dataclass(slots=True)
class RetentionRow:
    """A namespace of idle topics, of which every ledger is past the retention."""

    topics: int
    ledgers_of_topic: int
    tasks: int
    judged: list[Run] = field(default_factory=list)
    """Dry runs: no owner is asked."""
    trimmed: Run = field(default_factory=lambda: Run(0.0))
    """The run that has owners load each topic and trim it."""

    @property
    def ledgers(self) -> int:
        """Of all topics."""
        return self.topics * self.ledgers_of_topic

    @property
    def judged_per_s(self) -> float:
        """Ledgers, the median of all rounds."""
        return self.ledgers / _median_s(self.judged)

    @property
    def trimmed_per_s(self) -> float:
        """Ledgers."""
        return self.ledgers / self.trimmed.seconds

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topics": self.topics,
            "ledgers": self.ledgers,
            "tasks": self.tasks,
            "rows": "it reads metadata and no rows",
            "ledgers judged per s": self.judged_per_s,
            "ledgers trimmed per s": self.trimmed_per_s,
            "seconds": {"judged": [run.seconds for run in self.judged], "trimmed": self.trimmed.seconds},
        }


def _median_s(runs: list[Run]) -> float:
    return statistics.median(run.seconds for run in runs)


def compaction_rows(scale: float, tasks: int) -> list[CompactionRow]:
    """Two numbers of keys, so that what a worker's memory owes to keys is seen."""
    messages = max(4_000, int(1_000_000 * scale))
    return [CompactionRow(messages, max(40, int(keys * scale)), tasks) for keys in (10_000, 100_000)]


def retention_row(scale: float, tasks: int) -> RetentionRow:
    """Some hundred topics."""
    return RetentionRow(max(20, int(300 * scale)), 3, tasks)
