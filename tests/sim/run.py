"""Many seeds, added up; the same for the command line and for the tests."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.sim.scenario import Result, run_seed
from tests.sim.trace import Tally


@dataclass(slots=True)
class Summary:
    """What some seeds came to."""

    seeds: int = 0
    events: int = 0
    simulated_us: int = 0
    acked: int = 0
    failures: list[Result] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def add(self, other: "Summary") -> None:
        """Add the seeds of another part."""
        self.seeds += other.seeds
        self.events += other.events
        self.simulated_us += other.simulated_us
        self.acked += other.acked
        self.failures += other.failures
        self.tally.add(other.tally)


def run_chunk(seeds: Iterable[int]) -> Summary:
    """Run `seeds` one after the other; a failure does not stop the rest."""
    summary = Summary()
    for seed in seeds:
        result = run_seed(seed)
        summary.seeds += 1
        summary.events += result.events
        summary.simulated_us += result.simulated_us
        summary.acked += result.acked
        summary.tally.add(result.tally)
        if result.failure is not None:
            summary.failures.append(result)
    return summary


def replay_command(seed: int) -> str:
    """What to type to see how `seed` fails."""
    return f"make sim SEED={seed} TRACE=1"
