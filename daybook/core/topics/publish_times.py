"""Where in a topic a time is, as far as its list says it: what a subscription's TTL and a seek by time need to read only the rest.

The list has the times at which an owner sent the first and the last entry of a ledger, by its own clock; entries have those of their
producers. The two differ, so a ledger counts as earlier or later only beyond a tolerance, and what is near the time is read.
"""

from typing import Final

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position

CLOCK_TOLERANCE_MS: Final = 60_000
"""How far clocks of producers and owners may differ before a search by time is off."""


def around(
    extent: TopicExtent, unix_ms: int, *, tolerance_ms: int = CLOCK_TOLERANCE_MS
) -> tuple[Position, Position]:
    """`(earlier, last)`: entries up to `earlier` were published before `unix_ms`, and those behind `last` at that time or later.

    Publish times are taken as rising. What is between is to be read, which takes a binary search; nothing is if the two are equal.
    """
    earlier, last = extent.before(extent.first), extent.last_confirmed
    for ledger in extent.ledger_list.ledgers:
        sent_last_ms, sent_first_ms = ledger.last_published_at_ms, ledger.first_published_at_ms
        if ledger.entries and sent_last_ms is not None and sent_last_ms + tolerance_ms < unix_ms:
            earlier = max(earlier, ledger.last_position)
        elif sent_first_ms is not None and sent_first_ms - tolerance_ms >= unix_ms:
            last = min(last, extent.before(Position(ledger.ledger_id, 0)))
            break
    return earlier, max(earlier, last)
