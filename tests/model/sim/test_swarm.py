"""More than a thousand seeds of the simulator: the promise holds in each, and together they met everything that matters.

Chunks, so that test workers share them; each is large enough to reach every named state by itself. A failure names its
seed and the command that replays it as a readable trace.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.model.mutants.catalog.swarms import LOST_DISKS
from tests.model.sim.clients import Driver
from tests.model.sim.disk_swarm import draw_disks
from tests.model.sim.queues import unlisted
from tests.model.sim.run import replay_command, run_chunk
from tests.model.sim.scenario import run_seed
from tests.model.sim.shipped.swarm import draw_shipped
from tests.model.sim.swarm import draw
from tests.model.sim.topics.owner import TopicOwner
from tests.model.sim.topics.swarm import draw_topics
from tests.model.sim.trace import FAULTS, RARE
from tests.model.sim.world import World

CHUNK: Final = 600
CHUNKS: Final = 2


@pytest.mark.timeout(400)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_seed_keeps_the_promise_and_every_named_state_is_reached(chunk: int) -> None:
    summary = run_chunk(range(chunk * CHUNK, (chunk + 1) * CHUNK))
    failures = [
        f"seed {found.seed}: {found.failure}\n  {replay_command(found.seed)}" for found in summary.failures
    ]
    assert not failures, "\n".join(failures)
    assert summary.tally.missing_states() == []
    assert [name for name in FAULTS if not summary.tally.faults[name]] == []
    assert summary.acked > 10 * CHUNK, "a run that acknowledges nothing proves nothing"


def test_limbo_of_an_open_ledger_ends_where_disks_are_lost_often() -> None:
    def reaches_it(seed: int) -> bool:
        found = run_seed(seed, swarm=replace(draw(World(seed).rng("swarm")), **LOST_DISKS))
        assert found.failure is None
        return found.tally.states[RARE] > 0

    assert any(map(reaches_it, range(300)))


def drawn(has: Callable[[World], object], count: int) -> list[int]:
    """The first seeds that draw something."""
    return [seed for seed in range(200) if has(World(seed))][:count]


def test_a_seed_repeats_itself_event_for_event() -> None:
    shipped = drawn(lambda world: draw_shipped(world.rng("whole processes")).processes, 4)
    journalled = drawn(lambda world: draw_disks(world.rng("disk swarm")).journalled, 2)
    owned = drawn(lambda world: draw_topics(world.rng("owned topics")).topics, 2)
    for seed in (7, *shipped, *journalled, *owned):
        once, again = run_seed(seed, tracing=True), run_seed(seed, tracing=True)
        assert once.failure is None
        assert once.trace == again.trace
        assert len(once.trace) > 50
        assert once.events == run_seed(seed).events, "tracing changes nothing"


def test_every_container_of_every_machine_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only those: what is listed exists, so that `bounded queues` checks something."""
    check, found = Driver.after_step, set()

    def also_check_closely(self: Driver) -> None:
        found.update(unlisted(self.machine))
        check(self)

    check_owner = TopicOwner.check_queues

    def also_check_owner(self: TopicOwner, machine: object) -> None:
        found.update(unlisted(machine), unlisted(self.extent))
        check_owner(self, machine)

    monkeypatch.setattr(Driver, "after_step", also_check_closely)
    monkeypatch.setattr(TopicOwner, "check_queues", also_check_owner)
    owned = drawn(lambda world: draw_topics(world.rng("owned topics")).topics, 1)
    for seed in (0, 5, 9, *owned):
        assert run_seed(seed).failure is None
    assert found == set(), "give each a limit in tests/model/sim/queues.py"
