"""Seeds that once failed pass now; a change that brings the defect back may turn them red again.

Seeds are bound to what the simulator draws, so an old one may no longer meet its defect: each defect has a test of its
own beside the code that had it, or is described in `REGRESSIONS` with enough detail to write one.
"""

import pytest

from tests.model.sim.regressions import REGRESSIONS
from tests.model.sim.run import replay_command
from tests.model.sim.scenario import run_seed


@pytest.mark.parametrize("seed", REGRESSIONS, ids=str)
def test_a_seed_that_once_failed(seed: int) -> None:
    result = run_seed(seed)
    assert result.failure is None, f"{REGRESSIONS[seed].why}: {result.failure}\n  {replay_command(seed)}"
