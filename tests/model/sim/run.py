"""Many seeds, added up; the same for the command line and for the tests."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.sim.scenario import Result, run_seed
from tests.model.sim.trace import FAULTS, STATES, Tally


@dataclass(slots=True)
class Summary:
    """What some seeds came to."""

    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    acked: int = 0
    cpu_seconds: float = 0.0
    """Of the processes that ran them: seeds by this is the rate of a core, whatever else the machine does."""
    failures: list[Result] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def add(self, other: "Summary") -> None:
        """Add the seeds of another part."""
        for name in ("seeds", "events", "simulated_us", "acked", "cpu_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures
        self.tally.add(other.tally)

    def counts(self) -> dict[str, int]:
        """For a record: plain numbers that can be added up."""
        counts = {
            "seeds": self.seeds,
            "events": self.events,
            "simulated_seconds": round(self.simulated_us / 1e6),
            "cpu_seconds": round(self.cpu_seconds),
            "entries_acknowledged": self.acked,
        }
        counts |= {f"fault: {name}": self.tally.faults[name] for name in FAULTS}
        return counts | {f"state: {name}": self.tally.states[name] for name in STATES}


def run_chunk(seeds: Iterable[int]) -> Summary:
    """Run `seeds` one after the other; a failure does not stop the rest."""
    summary = Summary()
    began = time.process_time()
    for seed in seeds:
        result = run_seed(seed)
        summary.seeds += 1
        summary.events += result.events
        summary.simulated_us += result.simulated_us
        summary.acked += result.acked
        summary.tally.add(result.tally)
        if result.failure is not None:
            summary.failures.append(result)
    summary.cpu_seconds = time.process_time() - began
    return summary


def replay_command(seed: int) -> str:
    """What to type to see how `seed` fails."""
    return f"make sim SEED={seed} TRACE=1"
