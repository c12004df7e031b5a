"""What brokers report of their load: how busy the process is, and which bundles it is busy with.

A broker is one process with one event loop, so its limit is a core. `busy` is measured: the CPU time of the process. What a bundle
takes of it cannot be measured, so a cost is estimated from the bundle's entries and bytes, and counts only as a share of the broker's
own sum of costs: a wrong scale of the estimate cancels out.
"""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from daybook.core.topics.ownership.bundles import Bundle

BrokerId: TypeAlias = str
"""A name for life, like `broker-0`; never an address."""

REPORTED_BUNDLES_MAX: Final = 64
"""A report names the bundles with the highest costs; the leader moves no other."""

_BROKER_ID: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_ENTRY_COST: Final = 10e-6
"""Seconds of CPU for an entry that is received or dispatched."""
_BYTE_COST: Final = 3e-6 / 1024
_TOPIC_COST: Final = 5e-6
"""Seconds of CPU a second for a topic that does nothing."""


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """What happens in a bundle; entries and bytes are received and dispatched ones together."""

    topics: int = 0
    entries_per_s: float = 0.0
    bytes_per_s: float = 0.0

    @property
    def cost(self) -> float:
        """An estimate of the share of a core."""
        return self.topics * _TOPIC_COST + self.entries_per_s * _ENTRY_COST + self.bytes_per_s * _BYTE_COST


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The report of a broker."""

    busy: float = 0.0
    """The share of a core that the process used lately."""
    bundles: int = 0
    """How many bundles it owns."""
    cost: float = 0.0
    """The sum of the costs of all its bundles."""
    heaviest: tuple[tuple[Bundle, float], ...] = ()
    """The bundles with the highest costs, from the highest on: at most `REPORTED_BUNDLES_MAX`."""


def check_broker_id(broker: str) -> BrokerId:
    """Return `broker` if it can name a broker; raise ValueError otherwise."""
    if not _BROKER_ID.fullmatch(broker):
        msg = (
            f"{broker[:200]!r} cannot name a broker: use up to 253 letters, digits, '.', '_' or '-', "
            "with a letter or digit first and last"
        )
        raise ValueError(msg)
    return broker


def report_of(busy: float, bundles: dict[Bundle, BundleLoad]) -> BrokerLoad:
    """The report of a broker that is `busy` and owns `bundles`."""
    costs = sorted(
        ((bundle, load.cost) for bundle, load in bundles.items()), key=lambda each: (-each[1], each[0])
    )
    return BrokerLoad(busy, len(costs), sum(cost for _, cost in costs), tuple(costs[:REPORTED_BUNDLES_MAX]))
