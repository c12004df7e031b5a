"""The workloads, the same for both sides: sizes, counts, quorums, and what is read back."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.pace import paced

Kind = Literal["throughput", "latency", "create", "recover", "idle"]

WINDOW_ENTRIES: Final = 5000
BATCH_ENTRIES: Final = 500
PACED_S: Final = 15.0
"""For how long entries of a rate are due at scale 1."""
IDLE_S: Final = 20.0
"""For how long idle ledgers are measured."""


@dataclass(frozen=True, slots=True)
class Quorums:
    """E, Qw, Qa."""

    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2

    def args(self) -> list[str]:
        """For a command line."""
        return [str(self.ensemble_size), str(self.write_quorum), str(self.ack_quorum)]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of writes, and the catch-up read of what it wrote if `read`.

    `api`: "append" (a future for each entry), "append_many" (one for BATCH_ENTRIES) or "append_soon" (a callback for each); the peer
    has only the last and runs each workload once. Of kind "create", "recover" and "idle" it is one of bench/many.py, with `count` entries in each of
    its `ledgers`. `window` is how many entries may be under way, `rate_per_s` 0 means as fast as they go; at a rate, latency
    counts from when an entry was due, and a row that reaches less than 99 % of its rate failed. With `beside_sim` the
    simulator's processes run beside it.
    """

    name: str
    entry_bytes: int
    count: int
    api: str = "append_many"
    window: int = WINDOW_ENTRIES
    rate_per_s: int = 0
    ledgers: int = 1
    quorums: Quorums = Quorums()
    read: bool = False
    close: bool = True
    peer: bool = True
    kind: Kind = "throughput"
    beside_sim: bool = False


STRIPED: Final = Quorums(5, 3, 2)


def workloads(scale: float) -> list[Workload]:
    """All rows; `scale` 1 writes 2 GB in the rows of 1 KiB, as a published figure should."""

    def scaled(count: int) -> int:
        return max(2000, int(count * scale))

    def at_a_rate(name: str, rate_per_s: int, ledgers: int = 1) -> Workload:
        count = paced(rate_per_s, PACED_S, scale)
        return Workload(
            name, 1024, count, api="append_soon", rate_per_s=rate_per_s, ledgers=ledgers, kind="latency"
        )

    return [
        Workload("1 KiB, append_many", 1024, scaled(2_000_000), read=True),
        Workload("1 KiB, append", 1024, scaled(2_000_000), api="append", peer=False),
        Workload("100 B, append_many", 100, scaled(1_000_000), read=True),
        Workload("100 B, append", 100, scaled(1_000_000), api="append", peer=False),
        at_a_rate("1 KiB at 1,000/s", 1_000),
        replace(at_a_rate("1 KiB at 1,000/s beside make sim", 1_000), beside_sim=True),
        Workload("1 KiB, one in flight", 1024, scaled(3_000), api="append", window=1, kind="latency"),
        at_a_rate("1 KiB at 10,000/s over 1,000 ledgers", 10_000, ledgers=1_000),
        at_a_rate("1 KiB at 10,000/s over 10,000 ledgers", 10_000, ledgers=10_000),
        Workload("1 KiB striped 5/3/2", 1024, scaled(2_000_000), quorums=STRIPED, read=True),
        Workload("100 MB left open", 1024, scaled(100_000), close=False),
        Workload("1,000 ledgers created", 0, 1, ledgers=1000, kind="create"),
        Workload("2,000 ledgers recovered", 100, 100, ledgers=2000, kind="recover"),
        Workload("10,000 idle ledgers", 0, 1, ledgers=10_000, kind="idle"),
    ]
