"""What a healed cluster must be able to do while one thing is wrong and stays wrong, each drill in some of the seeds.

Faults that come and go show what is unsafe. That something does not *wait* for what may never come shows only where it
never comes: a bookie that hangs (rule 1, rule 7), disks that are full (rule 30), ZooKeeper that is unavailable (rule 45, rule 46), a
writer with nothing to say (rule 48), another recovery that closes first (rule 11). Time-outs are off in a drill: a machine that decides on what it has needs none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from daybook.core.quorum import can_still_ack
from daybook.core.writer.member import MemberState
from tests.model.sim.actors import RecoveryClient
from tests.model.sim.world import MS
from tests.model.sim.writers import WriterClient

if TYPE_CHECKING:
    from tests.model.sim.scenario import Scenario

_CHANCE: Final = 0.5
_RACE_CHANCE: Final = 0.3
_LOSS_CHANCE: Final = 0.5
_STEP_US: Final = 5 * MS
_ANSWER_US: Final = 400 * MS
_LAC_US: Final = 120 * MS
_FOR_EVER_US: Final = 60_000 * MS


class DrillWriter(WriterClient):
    """A writer that appends when it is asked to."""

    def _append_later(self) -> None:
        """Not by itself."""

    def append(self, count: int) -> None:
        """Append so many times."""
        for _ in range(count):
            self._left = 1
            self._append()
            self.room()


class Drills:
    """The drill of one run, once all has healed."""

    def __init__(self, scenario: "Scenario") -> None:
        self._scenario = scenario
        self._cluster = scenario.cluster
        self._world = scenario.world
        self._rng = scenario.world.rng("drill")
        self._losses = scenario.world.rng("drill of lost LACs")
        self._chance = scenario.world.rng("drill of two recoveries")

    def run(self) -> None:
        """Draw one and do it; deferred sync has none, because only a force ends its waits."""
        if self._cluster.swarm.deferred_sync or self._rng.random() >= _CHANCE:
            return
        writer = self._scenario.new_writer(DrillWriter)
        assert isinstance(writer, DrillWriter)
        writer.append(2 * writer.machine.metadata.quorum.ensemble_size * 3)
        self._wait(lambda: not writer.checks.unanswered(), "every append is answered", "a calm one is not")
        self._idle_lac(writer)
        if (
            len(writer.machine._window.in_state(MemberState.LIVE))
            < writer.machine.metadata.quorum.ensemble_size
        ):
            return  # a bookie that came late is in limbo even for this ledger: one fault at a time
        if self._chance.random() < _RACE_CHANCE:
            self._close_race(writer)
        else:
            self._rng.choice((self._hanging_bookie, self._full_disks, self._without_zookeeper))(writer)

    def _wait(self, is_done: Callable[[], bool], invariant: str, why: str) -> None:
        deadline_us = self._world.now_us + _ANSWER_US
        while not is_done():
            if self._world.now_us >= deadline_us:
                self._cluster.checkers.fail(invariant, why)
            self._world.run(self._world.now_us + _STEP_US)

    def _idle_lac(self, writer: DrillWriter) -> None:
        """A writer that falls silent publishes its LAC to all its bookies, also when every row is lost at first (rule 48)."""
        loses = self._losses.random() < _LOSS_CHANCE
        if loses:
            for channel in writer.channels.values():
                channel.stream.broken = True
        self._world.run(self._world.now_us + (_ANSWER_US if loses else _LAC_US))
        lac = writer.machine.last_add_confirmed
        live = [member.bookie for member in writer.machine._window.in_state(MemberState.LIVE)]
        known = {
            name: self._cluster.bookies[name].lac_of(writer.ledger_id)
            for name in live
            if self._cluster.bookies[name].vouches(writer.ledger_id)
        }
        if any(known_lac != lac for known_lac in known.values()):
            self._cluster.checkers.fail(
                "an idle writer publishes its LAC", f"{known} is known, it is {lac} (rule 48)"
            )

    def _die_writing(self, writer: DrillWriter) -> None:
        """The writer dies with appends under way, of which some bookies may have something."""
        writer.append(2)
        self._world.run(self._world.now_us + int(3 * MS * self._rng.random()))
        writer.crash()

    def _recover(self, writer: DrillWriter, why: str, *, count: int = 1) -> None:
        """The ledger of a dead writer can be recovered all the same, and every recovery comes to its end."""
        recoveries = []
        for _ in range(count):
            recovery = RecoveryClient(self._cluster, self._scenario.name("drill"), writer.ledger_id)
            recovery.times_out = False
            recoveries.append(recovery)
        oracle = self._cluster.checkers.oracles[writer.ledger_id]
        self._wait(lambda: oracle.end is not None, "a recovery ends without the slowest bookie", why)
        if count > 1:
            self._wait(lambda: all(r.done for r in recoveries), "every recovery ends", why)

    def _close_race(self, writer: DrillWriter) -> None:
        """One bookie alone has the last entries: who asks it closes behind them, who asks the others before (rule 11)."""
        if writer.machine.metadata.quorum.ack_quorum < 2:
            return
        members = writer.machine.metadata.last_fragment.bookies
        for name in set(members) - {self._chance.choice(members)}:
            writer.channels[name].stream.broken = True
        writer.append(1)
        self._world.run(self._world.now_us + 2 * MS)
        writer.crash()
        self._recover(writer, "two recover, and each may see another end (rule 11)", count=2)

    def _hanging_bookie(self, writer: DrillWriter) -> None:
        """One bookie takes everything and answers nothing."""
        quorum = writer.machine.metadata.quorum
        if not 2 <= quorum.ack_quorum < quorum.write_quorum:
            return
        name = self._rng.choice(writer.machine.metadata.last_fragment.bookies)
        self._cluster.bookies[name].pause(self._world.now_us + _FOR_EVER_US)
        self._die_writing(writer)
        self._recover(writer, f"{name} hangs, and a quorum answers (rule 1, rule 7)")

    def _full_disks(self, writer: DrillWriter) -> None:
        """No bookie has space for normal adds; the reserve is for recoveries (rule 30)."""
        self._die_writing(writer)
        for bookie in self._cluster.bookies.values():
            bookie.set_read_only(read_only=True)
        self._recover(writer, "every disk is full, but for its reserve (rule 30)")

    def _without_zookeeper(self, writer: DrillWriter) -> None:
        """ZooKeeper is unavailable and a bookie dies: a writer with a quorum continues (rule 45, rule 46)."""
        quorum = writer.machine.metadata.quorum
        members = writer.machine.metadata.last_fragment.bookies
        position = self._rng.randrange(len(members))
        everyone = (1 << len(members)) - 1
        if not can_still_ack(quorum, everyone & ~(1 << position)):
            return
        self._cluster.store.is_faulty = True
        self._cluster.store_unavailable(self._world.now_us + _FOR_EVER_US)
        self._world.run(self._world.now_us + 4 * _STEP_US)
        self._cluster.bookies[members[position]].crash()
        writer.append(6)
        self._wait(
            lambda: not writer.checks.unanswered(),
            "a writer continues without ZooKeeper",
            f"{members[position]} is unavailable and a quorum is left (rule 46)",
        )
