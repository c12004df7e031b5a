"""Which bundles leave a broker that is busier than the others.

As Pulsar's ThresholdShedder: a broker sheds when it is busier than the average by more than a threshold, and not alone because it is
busy. What a move costs (every client of the bundle reconnects) is why it is rare and small: loads are smoothed, a broker must have
been over the threshold for some cycles in a row, it sheds until it is a margin below the threshold (hysteresis), a few bundles at
once, and a bundle that moved rests. A bundle that would make its new broker as busy as the old one stays: to move it would only move
the problem.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId, BrokerLoad


class Move(NamedTuple):
    """A bundle that is to leave `source` for `target`."""

    bundle: Bundle
    source: BrokerId
    target: BrokerId


@dataclass(frozen=True, slots=True)
class SheddingPolicy:
    """When a broker sheds, and how much. Loads are shares of a core."""

    threshold: float = 0.10
    """How much busier than the average a broker must be."""
    margin: float = 0.05
    """How far below the threshold it gets, and a target stays."""
    busy_min: float = 0.30
    """A broker that is less busy sheds nothing."""
    history: float = 0.7
    """The weight of earlier reports."""
    cycles_min: int = 3
    """For how many cycles in a row a broker must be over the threshold."""
    moves_max: int = 4
    """Moves of one cycle, of all brokers."""
    share_max: float = 0.3
    """The part of a broker's load that leaves it in one cycle."""
    rest_ms: int = 30 * 60_000
    """A bundle that moved stays for so long."""


class Shedder:
    """The leader's view of loads over time. A new leader begins without one, and so later than the old one would have."""

    def __init__(self, policy: SheddingPolicy | None = None) -> None:
        """Nothing is known yet."""
        self._policy = policy or SheddingPolicy()
        self._busy: dict[BrokerId, float] = {}
        self._cycles: dict[BrokerId, int] = {}
        """For how many cycles each broker has been over the threshold."""
        self._moved_ms: dict[Bundle, int] = {}

    def cycle(self, loads: Mapping[BrokerId, BrokerLoad], now_ms: int) -> list[Move]:
        """The moves of one cycle; `loads` are the latest reports of all registered brokers."""
        policy = self._policy
        history = policy.history
        self._busy = {
            broker: history * self._busy.get(broker, load.busy) + (1 - history) * load.busy
            for broker, load in sorted(loads.items())
        }
        self._moved_ms = {
            bundle: moved for bundle, moved in self._moved_ms.items() if now_ms - moved < policy.rest_ms
        }
        average = sum(self._busy.values()) / max(1, len(self._busy))
        self._cycles = {
            broker: self._cycles.get(broker, 0) + 1
            for broker, busy in self._busy.items()
            if busy > average + policy.threshold and busy >= policy.busy_min
        }
        moves: list[Move] = []
        expected = dict(self._busy)
        for broker in sorted(self._cycles, key=lambda each: (-self._busy[each], each)):
            if self._cycles[broker] >= policy.cycles_min:
                self._cycles[broker] = 0
                for move in self._shed(
                    broker, loads[broker], expected, average, policy.moves_max - len(moves)
                ):
                    self._moved_ms[move.bundle] = now_ms
                    moves.append(move)
        self._busy = expected  # what moves counts at its new broker at once, although loads are smoothed
        return moves

    def _shed(
        self,
        source: BrokerId,
        load: BrokerLoad,
        expected: dict[BrokerId, float],
        average: float,
        moves_max: int,
    ) -> Iterator[Move]:
        """What leaves one broker; `expected` changes with each move."""
        policy = self._policy
        level = average + policy.threshold - policy.margin
        left = min(expected[source] - level, policy.share_max * expected[source])
        for bundle, cost in load.heaviest:
            if not moves_max:
                return
            busy = cost / load.cost * self._busy[source] if load.cost else 0.0
            target = min(expected, key=lambda each: (expected[each], each))
            if bundle in self._moved_ms or not 0 < busy <= left or expected[target] + busy > level:
                continue
            expected[source] -= busy
            expected[target] += busy
            left -= busy
            moves_max -= 1
            yield Move(bundle, source, target)
