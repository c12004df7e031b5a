"""Messages between processes: lost, late, twice, out of order, or cut off in one direction only.

Two kinds, as on the real wire. A *call* (fence, read, force, attach) stands for itself and may meet any of these. A
*stream* carries frames and their answers; when one of its messages is lost the stream is broken, whatever is sent on it
afterwards goes nowhere, and both ends learn of it some time later, the client perhaps only by its own time-outs. What
was under way on a broken stream may still arrive, after newer things on the next one.
"""

from collections.abc import Callable
from typing import Any, Final

from tests.model.sim.swarm import Swarm
from tests.model.sim.world import MS, Process, World

_DELAY_MIN_US: Final = 150
_DELAY_SPREAD_US: Final = 900
_SLOW_US: Final = 120 * MS
_REORDER_US: Final = 8 * MS


class Network:
    """Every message between clients and bookies."""

    def __init__(self, world: World, swarm: Swarm) -> None:
        self.world = world
        self.swarm = swarm
        self.is_faulty = True
        self._rng = world.rng("network")
        self._cut_until_us: dict[tuple[str, str], int] = {}
        self._streams = 0

    def cut(self, source: str, target: str, until_us: int) -> None:
        """Nothing gets from `source` to `target` until then; the other direction is not touched."""
        self._cut_until_us[source, target] = until_us

    def repair(self) -> None:
        """Every way is open again."""
        self._cut_until_us.clear()

    def is_cut(self, source: str, target: str) -> bool:
        """Whether the way is cut now."""
        return self._cut_until_us.get((source, target), 0) > self.world.now_us

    def delay_us(self) -> int:
        """How long a message takes."""
        rng = self._rng
        delay = _DELAY_MIN_US + int(_DELAY_SPREAD_US * rng.random())
        if not self.is_faulty:
            return delay
        swarm = self.swarm
        if swarm.slow and rng.random() < swarm.slow:
            self.world.tally.fault("slow message")
            delay += int(_SLOW_US * rng.random())
        if swarm.reorder and rng.random() < swarm.reorder:
            self.world.tally.fault("reorder")
            delay += int(_REORDER_US * rng.random())
        return delay

    def loses_fence(self) -> bool:
        """Draw whether a fence is lost: its loss has a ratio of its own, because what follows from it is subtle."""
        ratio = self.swarm.fence_loss
        if not self.is_faulty or not ratio or self._rng.random() >= ratio:
            return False
        self.world.tally.fault("loss")
        return True

    def is_lost(self, source: str, target: str) -> bool:
        """Draw whether a message is lost."""
        if not self.is_faulty:
            return False
        if self._cut_until_us and self.is_cut(source, target):
            return True
        if self.swarm.loss and self._rng.random() < self.swarm.loss:
            self.world.tally.fault("loss")
            return True
        return False

    def is_doubled(self) -> bool:
        """Draw whether a message arrives twice."""
        if self.is_faulty and self.swarm.duplicate and self._rng.random() < self.swarm.duplicate:
            self.world.tally.fault("duplicate")
            return True
        return False

    def call(self, source: Process, target: Process, receive: Callable[..., None], *args: Any) -> None:
        """Deliver `receive(*args)` at `target`, once, twice or never."""
        if not target.alive or self.is_lost(source.name, target.name):
            return
        now = self.world.now_us
        self.world.at(now + self.delay_us(), target, receive, *args)
        if self.is_doubled():
            self.world.at(now + self.delay_us(), target, receive, *args)

    def open(self, client: Process, bookie: Process) -> "Stream":
        """A new stream from `client` to `bookie`."""
        self._streams += 1
        return Stream(self, self._streams, client, bookie)


class Stream:
    """One stream: in order in each direction and nothing twice, while it lasts."""

    __slots__ = ("_boot", "_last_us", "_network", "bookie", "broken", "client", "ended", "number")

    def __init__(self, network: Network, number: int, client: Process, bookie: Process) -> None:
        self._network = network
        self.number = number
        self.client = client
        self.bookie = bookie
        self.broken = not bookie.alive
        """Nothing that is sent from now on arrives."""
        self.ended = False
        """The bookie has forgotten it: what was still under way to it is dropped (rule 49)."""
        self._boot = bookie.incarnation
        self._last_us = {client.name: 0, bookie.name: 0}

    def send(self, target: Process, receive: Callable[..., None], *args: Any) -> bool:
        """Deliver at `target` after everything that went there before; False if that broke the stream."""
        if self.broken:
            return False
        source = self.client if target is self.bookie else self.bookie
        network = self._network
        restarted = self.bookie.incarnation != self._boot
        if restarted or not target.alive or network.is_lost(source.name, target.name):
            self.broken = True
            return False
        world = network.world
        arrival = max(world.now_us + network.delay_us(), self._last_us[target.name])
        self._last_us[target.name] = arrival
        world.at(arrival, target, receive, *args)
        return True
