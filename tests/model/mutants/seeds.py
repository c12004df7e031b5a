"""The seeds of the simulator that are known to catch a mutant, kept in one file that `make mutants UPDATE=1` writes.

A seed is bound to what the simulator draws, so a change of the simulator or of the core may shift it; then the file is
written anew, and no code changes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from daybook.core import errors
from tests.model.mutants.registry import Mutant
from tests.model.sim.scenario import run_seed
from tests.model.sim.swarm import Swarm, draw
from tests.model.sim.world import World

FILE: Final = Path(__file__).with_name("seeds.json")
_JUDGES: Final = {"ViolationError", "AssertionError"} | {
    name for name in vars(errors) if name.endswith("Error")
}
"""What counts as a catch: a checker, an assertion or a refusal of the core. Any other error is a broken mutant."""


@dataclass(frozen=True, slots=True)
class Catch:
    """The seed that caught a mutant, how many it took to find, and which check it was."""

    seed: int
    tried: int
    check: str


def load_seeds(file: Path = FILE) -> dict[str, Catch]:
    """The known seeds by mutant."""
    if not file.exists():
        return {}
    return {name: Catch(**found) for name, found in json.loads(file.read_text(encoding="utf-8")).items()}


def save_seeds(catches: Mapping[str, Catch], file: Path = FILE) -> None:
    """Write the known seeds, one mutant on a line."""
    lines = [
        f"  {json.dumps(name)}: "
        + json.dumps({"seed": catch.seed, "tried": catch.tried, "check": catch.check}, ensure_ascii=False)
        for name, catch in sorted(catches.items())
    ]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def swarm_for(mutant: Mutant, seed: int) -> Swarm | None:
    """What `seed` is made of where the mutant fixes something; None to have it drawn as ever."""
    return replace(draw(World(seed).rng("swarm")), **mutant.swarm) if mutant.swarm else None


def check_of(failure: str) -> str:
    """The name of the check that failed: "ViolationError: name: details". Raises ValueError for what is no check."""
    kind, _, text = failure.partition(": ")
    if kind not in _JUDGES:
        msg = f"the mutant does not work: {failure}"
        raise ValueError(msg)
    return text.partition(": ")[0] if kind == "ViolationError" else f"{kind} of the core"


def failure_of(mutant: Mutant, seed: int) -> str | None:
    """What fails in `seed` without the rule; None if nothing does."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        return run_seed(seed, swarm=swarm_for(mutant, seed)).failure


def failure_without(mutant: Mutant, seed: int) -> str | None:
    """What fails in `seed` with the rule in its place: nothing may."""
    return run_seed(seed, swarm=swarm_for(mutant, seed)).failure
