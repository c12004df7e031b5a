"""The simulator is worth something only if it finds bugs: without a rule, the seed that is known for it must fail.

`make mutants UPDATE=1` looks for the seeds and writes them; here each is replayed, with the rule and without it.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.model.mutants.registry import RULES, Mutant, load_catalog, registered
from tests.model.mutants.seeds import (
    Catch,
    check_of,
    failure_of,
    failure_without,
    load_seeds,
    save_seeds,
)

WINDOW: Final = 40
"""How many seeds after the known one may catch the mutant instead: a harmless change shifts what a seed meets."""

load_catalog()
SIMULATED: Final = [mutant for mutant in registered() if not mutant.not_simulated]
SEEDS: Final = load_seeds()


def test_every_mutant_has_a_seed_or_says_why_it_has_none() -> None:
    assert sorted(SEEDS) == sorted(mutant.name for mutant in SIMULATED), (
        "run `make mutants UPDATE=1`; what no seed catches is a hole in the simulator: close that"
    )


def test_rules_that_no_seed_can_catch_are_known() -> None:
    assert sorted(RULES - {mutant.rule for mutant in SIMULATED}) == NOT_SIMULATED


NOT_SIMULATED: Final = [27, 41, 52, 58, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74]
"""Their objects are LMDB's file, what is compacted, a compaction that fails, a disk that went back in time, a deletion that gives up what is lost, a ZooKeeper
that went back in time, how long a read takes, who gets what is read, the manifests of Spark's jobs, Topic resources, a restore of the
metadata, pools, files of an object store, their restore, and CronJobs; the tests named after them have them."""


@pytest.mark.parametrize(
    "mutant",
    SIMULATED,
    ids=lambda mutant: f"{mutant.rule:02d}-{mutant.name}",
)
def test_a_known_seed_catches_the_mutant(mutant: Mutant) -> None:
    seed = SEEDS[mutant.name].seed
    sound = failure_without(mutant, seed)
    assert sound is None, f"seed {seed} fails with all rules in place: {sound}"
    for candidate in range(seed, seed + WINDOW):
        failure = failure_of(mutant, candidate)
        if failure is not None:
            assert check_of(failure)
            return
    pytest.fail(f"no seed from {seed} to {seed + WINDOW - 1} fails: run `make mutants UPDATE=1`")


def test_only_a_check_catches_a_mutant() -> None:
    assert check_of("ViolationError: LAC never goes back: of ledger 0") == "LAC never goes back"
    assert check_of("AssertionError: an ensemble changes at LAC + 1") == "AssertionError of the core"
    with pytest.raises(ValueError, match="does not work"):
        check_of("TypeError: seat() takes 3 arguments")


def test_seeds_are_kept_one_on_a_line(tmp_path: Path) -> None:
    seeds = {"b.two": Catch(7, 8, "a close is final"), "a.one": Catch(0, 1, "it does not heal …")}
    file = tmp_path / "seeds.json"
    save_seeds(seeds, file)
    assert load_seeds(file) == seeds
    assert [line[:9] for line in file.read_text(encoding="utf-8").splitlines()[1:-1]] == [
        '  "a.one"',
        '  "b.two"',
    ]
