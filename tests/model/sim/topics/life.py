"""Who owns a topic when: its first owner, those who take it over from a live one, those who come after a death, and the last one."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core.topics.cursor_record import NO_LEDGER
from daybook.core.topics.name import TopicName
from tests.model.sim.actors import RecoveryClient
from tests.model.sim.shipped.zookeeper import TreeStore
from tests.model.sim.topics.checks import TopicChecks
from tests.model.sim.topics.nodes import TopicNodes
from tests.model.sim.topics.owner import TopicOwner
from tests.model.sim.topics.swarm import TopicSwarm
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

_WATCH_US: Final = 40 * MS
_STEP_US: Final = 20 * MS
_STEPS_MAX: Final = 200
_TRIES_MAX: Final = 50
"""A former owner that finds no bookies rolls its ledger again and again, and each change of the list refuses a take-over."""


class TopicLife:
    """One topic, from its creation to the unloading by its last owner."""

    def __init__(
        self,
        cluster: "Cluster",
        topic: TopicName,
        checks: TopicChecks,
        new_name: Callable[[str], str],
    ) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.topic = topic
        self.checks = checks
        self.swarm = cluster.topics
        self.owners: list[TopicOwner] = []
        self._new_name = new_name
        self._rng = self.world.rng(f"life of {topic}")
        self.is_over = False
        """Whether nothing goes wrong any more, and everything is to come to its end."""

    def schedule(self) -> None:
        """Begin."""
        self.begin()
        window_us = self.cluster.swarm.fault_window_us
        for count, what in ((self.swarm.rivals, self._begin_rival), (self.swarm.recover, self._recover)):
            for _ in range(count):
                self.world.at(self.world.now_us + int(window_us * self._rng.random()), None, what)
        self.world.at(self.world.now_us + _WATCH_US, None, self._watch)

    def begin(self) -> TopicOwner:
        """Another owner takes the topic over."""
        owner = TopicOwner(self.cluster, self._new_name("owner"), self, self.swarm.publishes)
        self.owners.append(owner)
        owner.start(owner.work)
        return owner

    def _begin_rival(self) -> None:
        if not self.is_over:
            self.begin()

    def _watch(self) -> None:
        """Where no owner is left, another one begins."""
        if self.is_over:
            return
        self.world.at(self.world.now_us + _WATCH_US, None, self._watch)
        if not self._live() and self._rng.random() < 0.5:
            self.begin()

    def _live(self) -> list[TopicOwner]:
        return [owner for owner in self.owners if not owner.done]

    def _recover(self) -> None:
        """The auditor closes what it takes for abandoned, or a person does (rule 50)."""
        oracle = self.checks.oracles[str(self.topic)]
        written = {ledger.ledger_id for ledger in oracle.ledger_list.ledgers if ledger.is_open}
        written |= {cursor.node.cursor_ledger for cursor in oracle.cursors.values()} - {NO_LEDGER}
        if not self.is_over and written:
            ledger_id = self._rng.choice(sorted(written))
            RecoveryClient(self.cluster, self._new_name("recovery"), ledger_id)

    def served(self, owner: TopicOwner) -> None:
        """`owner` has taken the topic over."""
        if any(other.is_serving for other in self._live() if other is not owner):
            self.world.tally.state("two owners")

    # The end

    def settle(self) -> None:
        """A last owner takes the topic over, publishes and unloads it, and all others learn that it is not theirs."""
        self.is_over = True
        for owner in self._live():
            owner.stop_publishing()
        self._until(lambda: all(owner.is_serving for owner in self._live()), "an owner takes it over")
        last = self._begin_last()
        last.publish_soon(1)
        acked = self.checks.oracles[str(self.topic)].last_ack
        self._until(lambda: last.name in acked, "the last message is acknowledged")
        self._until(lambda: last.is_drained, "every subscription comes to the end")
        for owner in self._live():
            if owner is not last:
                owner.unload()
        self._until(lambda: self._live() == [last], "the former owners end")
        last.unload()
        self._until(lambda: last.done, "it is unloaded")
        self.checks.settled(str(self.topic))

    def _begin_last(self) -> TopicOwner:
        """One that takes the topic over; it begins again where the change of a former owner came between."""
        for _ in range(_TRIES_MAX):
            last = self.begin()
            last.stop_publishing()
            self._until(partial(_is_decided, last), "the last owner takes it over")
            if last.is_serving:
                return last
        self._not_served("one of many owners takes it over")
        return last

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        for _ in range(_STEPS_MAX):
            if is_so():
                return
            self.world.run(self.world.now_us + _STEP_US)
        self._not_served(what)

    def _not_served(self, what: str) -> None:
        self.cluster.checkers.fail("a topic is served once the faults have stopped", f"{self.topic}: {what}")


def _is_decided(owner: TopicOwner) -> bool:
    return owner.is_serving or owner.done


def begin_topics(cluster: "Cluster", new_name: Callable[[str], str]) -> list[TopicLife]:
    """The topics of this run, none in most."""
    swarm: TopicSwarm = cluster.topics
    if not swarm.topics:
        return []
    checks = TopicChecks(cluster.checkers)
    cluster.store.deletion_watchers.append(checks.deleted)
    assert isinstance(cluster.store, TreeStore)
    nodes = TopicNodes(cluster.store, checks)
    names = [TopicName("tenant", "namespace", f"topic-{i}") for i in range(swarm.topics)]
    for name in names:
        nodes.create(name)
    lives = [TopicLife(cluster, name, checks, new_name) for name in names]
    for life in lives:
        life.schedule()
    return lives
