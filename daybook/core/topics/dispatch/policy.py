"""How much a subscription reads, delivers and keeps unacknowledged at once. The values are Pulsar's, where it has them."""

from dataclasses import dataclass
from typing import Final

PERMITS_MAX: Final = 2**31 - 1
"""Permits of one consumer: more are not counted."""


@dataclass(frozen=True, slots=True)
class DispatchPolicy:
    """The limits of one subscription."""

    read_entries_max: int = 100
    """Entries that one read asks for."""
    read_bytes_max: int = 4 * 2**20
    """Bytes that one read asks for; one entry may exceed them."""
    turn_entries_max: int = 20
    """Entries that a consumer of a shared subscription receives before it is the next one's turn."""
    unacked_per_consumer_max: int = 50_000
    """Messages that a consumer of a shared subscription has not acknowledged; at this many it receives nothing until half are."""
    unacked_per_subscription_max: int = 200_000
    """The same of all consumers of a shared subscription together."""
    switch_delay_ms: int = 1_000
    """How long a failover subscription waits for the acknowledgements of its former active consumer."""
    retry_ms: int = 1_000
    """How long after a read that failed the next one is sent."""
