"""Looks for a seed of the simulator that catches a mutant: on all cores, a bounded number of seeds, to the first catch.

All mutants advance together, a chunk of seeds each, so that the common ones are out of the way before the rare ones
get the machine for themselves. A catch counts when the seeds before it are known to catch nothing: then the number of
seeds that it took is the same on every machine.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Final

from tests.model.mutants.registry import Mutant, find, load_catalog
from tests.model.mutants.seeds import Catch, check_of, failure_of, failure_without

SEEDS_MAX: Final = 2000
_CHUNK: Final = 25


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the search for one mutant: a catch, or the number of seeds that caught nothing."""

    mutant: Mutant
    catch: Catch | None
    seeds: int
    error: str = ""
    """The mutant, or the seed without it, is broken: that says nothing about the rule."""


@dataclass(slots=True)
class _Search:
    """How far one mutant is."""

    mutant: Mutant
    next_seed: int = 0
    answers: dict[int, Found] = field(default_factory=dict)
    judged_to: int = 0
    """Every seed below this one caught nothing."""

    def take(self, first: int, found: Found) -> Found | None:
        """A chunk from `first` on was judged; the result, once all before it are."""
        self.answers[first] = found
        while (oldest := self.answers.pop(self.judged_to, None)) is not None:
            if oldest.catch or oldest.error:
                return oldest
            self.judged_to += oldest.seeds
        return None


def search(mutants: Sequence[Mutant], seeds_max: int, jobs: int) -> Iterator[Found]:
    """Judge `mutants`, each by the seeds from 0 on; results come as they are ready."""
    searches = {mutant.name: _Search(mutant) for mutant in mutants}
    running: dict[Future[Found], tuple[str, int]] = {}
    with ProcessPoolExecutor(jobs, initializer=load_catalog) as pool:
        try:
            while searches:
                for name, first, count in _next_chunks(searches, seeds_max, 2 * jobs - len(running)):
                    running[pool.submit(_judge, name, first, count)] = name, first
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    name, first = running.pop(done)
                    if name not in searches:
                        continue
                    one = searches[name]
                    result = one.take(first, done.result())
                    if result is None and one.judged_to >= seeds_max:
                        result = Found(one.mutant, None, one.judged_to)
                    if result is not None:
                        del searches[name]
                        yield result
        finally:
            pool.shutdown(cancel_futures=True)


def _next_chunks(searches: dict[str, _Search], seeds_max: int, room: int) -> Iterator[tuple[str, int, int]]:
    """The chunks to run next: those of the mutants that are least far."""
    for _ in range(room):
        waiting = [one for one in searches.values() if one.next_seed < seeds_max]
        if not waiting:
            return
        one = min(waiting, key=lambda each: each.next_seed)
        first, count = one.next_seed, min(_CHUNK, seeds_max - one.next_seed)
        one.next_seed += count
        yield one.mutant.name, first, count


def _judge(name: str, first: int, count: int) -> Found:
    """In a worker: the first of some seeds that catches the mutant."""
    mutant = find(name)
    for seed in range(first, first + count):
        failure = failure_of(mutant, seed)
        if failure is None:
            continue
        sound = failure_without(mutant, seed)
        if sound is not None:
            return Found(mutant, None, seed, f"seed {seed} fails without the mutant: {sound}")
        try:
            return Found(mutant, Catch(seed, seed + 1, check_of(failure)), seed + 1)
        except ValueError as error:
            return Found(mutant, None, seed, f"seed {seed}: {error}")
    return Found(mutant, None, count)
