"""Seeds that once failed, and why. They pass now; a change that brings the defect back may turn them red again.

Seeds are bound to what the simulator draws, so an old one may no longer meet its defect: each defect has a test of its
own beside the code that had it, or is told here with enough detail to write one.
"""

import pytest

from tests.sim.run import replay_command
from tests.sim.scenario import run_seed

SEEDS = {
    968: "a frame that one bookie refused waited for ever for another that was missing (rule 21)",
    471: "a reader met a second answer for a piece that was complete (rule 18)",
    65337: "a simulated bookie whose journal had no room never said again what it holds, though its store had all of it",
    78434: "a commit that happened and was told as failed was taken for a journal that forgets (rule 23)",
    1121: "a replica that is damaged in the store and sound in the journal was never removed as surplus",
    197496: "a simulated worker tried the same plan for ever, although another one could mend what it lacked",
    153809: "an entry that is damaged in the store counted as held while the journal had it, and two more were damaged",
    166378: "the same, and two disks were lost beside it",
    38758: "a removal was stored, its flush cut short, and what a repair wrote meanwhile was not synced",
    330987: "a worker whose repair had finished in the same instant was asked to stop it when its lock went (rule 34)",
    332290: "an open ledger was in need of one bookie at one look and of another at the next: its grace was over (rule 31)",
}


@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_a_seed_that_once_failed(seed: int) -> None:
    result = run_seed(seed)
    assert result.failure is None, f"{SEEDS[seed]}: {result.failure}\n  {replay_command(seed)}"
