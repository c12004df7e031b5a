"""Which consumer of a failover subscription is the active one.

The consumers of the highest priority share a topic's partitions: in the order of their names, each has every n-th partition. A topic
without partitions has nothing to count, so its name and theirs decide; many topics are shared as evenly, and a consumer that comes or goes
moves few of them.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from daybook.core.topics.dispatch.consumers import Consumer

NO_PARTITION: Final = -1


def choose_active(consumers: Iterable[Consumer], topic: str, partition: int) -> Consumer | None:
    """The consumer that is to be active; None if there is none. Consumers with the same name go by the order in which they came."""
    ordered = sorted(consumers, key=lambda each: (each.priority, each.name, each.key))
    best = [each for each in ordered if each.priority == ordered[0].priority]
    if not best:
        return None
    if partition == NO_PARTITION:
        return max(best, key=lambda each: _weight(topic, each.name))
    return best[partition % len(best)]


def _weight(topic: str, name: str) -> bytes:
    return blake2b(f"{topic}\0{name}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
