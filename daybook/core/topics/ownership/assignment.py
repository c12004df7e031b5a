"""The leader's choice of a broker for a bundle without an owner: the least busy one, and of equally busy ones that with the fewest bundles.

Reports are seconds old. So the leader counts what it chose lately as well, and a second client that asks for the same bundle gets the
same answer, although the chosen broker has not taken the lease yet.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId, BrokerLoad

_BUSY_STEPS: Final = 10
"""Brokers whose load differs by less than a tenth of a core count as equally busy."""
CHOICES_MAX: Final = 10_000
"""Choices that are kept in mind; the oldest go first."""


@dataclass(frozen=True, slots=True)
class _Choice:
    broker: BrokerId
    until_ms: int


class Assigner:
    """The choices of one leader."""

    def __init__(self, choice_ms: int = 10_000) -> None:
        """`choice_ms` is longer than it takes a broker to take the lease and to report it."""
        self._choice_ms = choice_ms
        self._choices: dict[Bundle, _Choice] = {}
        self._chosen: Counter[BrokerId] = Counter()
        """How many choices there are of each broker."""

    def choose(self, bundle: Bundle, loads: Mapping[BrokerId, BrokerLoad], now_ms: int) -> BrokerId | None:
        """The broker that is to own the bundle; None if there is none. `loads` are of the brokers that answer."""
        self._forget(now_ms)
        made = self._choices.get(bundle)
        if made is not None and made.broker in loads:
            return made.broker
        best = least_loaded(bundle, loads, self._chosen)
        if best is not None:
            self._drop(bundle)
            self._choices[bundle] = _Choice(best, now_ms + self._choice_ms)
            self._chosen[best] += 1
        return best

    def _forget(self, now_ms: int) -> None:
        """Drop the choices that are over; a later choice is never over before an earlier one."""
        while self._choices:
            oldest = next(iter(self._choices))
            if self._choices[oldest].until_ms > now_ms and len(self._choices) < CHOICES_MAX:
                return
            self._drop(oldest)

    def _drop(self, bundle: Bundle) -> None:
        before = self._choices.pop(bundle, None)
        if before is not None:
            self._chosen[before.broker] -= 1


def least_loaded(
    bundle: Bundle, loads: Mapping[BrokerId, BrokerLoad], chosen: Mapping[BrokerId, int]
) -> BrokerId | None:
    """The broker that one more bundle harms least; `chosen` counts the bundles that are on their way to each broker.

    A hash of bundle and broker decides between equal brokers, so that no broker is always the first.
    """
    return min(
        sorted(loads),
        key=lambda broker: (
            int(loads[broker].busy * _BUSY_STEPS),
            loads[broker].bundles + chosen.get(broker, 0),
            crc32(f"{bundle}/{broker}".encode()),
        ),
        default=None,
    )
