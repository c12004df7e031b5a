"""Which ledgers of a topic nobody needs any more (rule 51).

Whole ledgers go, from the front, and only closed ones. A ledger is needed while a mark is before its last entry: the persisted
mark-delete position of a subscription, a replication's, the horizon of the topic's compaction or of one that is under way: whoever
reads what is compacted continues behind the horizon. The retention keeps it for longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position


@dataclass(frozen=True, slots=True)
class Retention:
    """How long ledgers are kept that every mark has passed: until they are older than `time_ms`, or the topic is larger than `size_bytes`.

    None is no limit: with both None they are kept for ever. The default is Pulsar's: they go as soon as every mark has passed.
    """

    time_ms: int | None = 0
    size_bytes: int | None = None


def trimmed(ledger_list: LedgerList, marks: Sequence[Position], retention: Retention, unix_ms: int) -> int:
    """How many ledgers at the front of the list can go."""
    if ledger_list.compaction is not None:
        marks = (*marks, ledger_list.compaction.horizon)
    size_bytes = sum(ledger.size_bytes for ledger in ledger_list.ledgers)
    count = 0
    for ledger in ledger_list.ledgers:
        is_passed = all(mark >= ledger.last_position for mark in marks)
        if not is_passed or _is_kept(ledger, retention, size_bytes, unix_ms):
            break
        size_bytes -= ledger.size_bytes
        count += 1
    return count


def retains(ledger_list: LedgerList, confirmed: Position, retention: Retention, unix_ms: int) -> bool:
    """Whether the retention alone keeps an entry of the topic, whose last one is `confirmed`: until then nobody deletes it as unused.

    A ledger that is open counts whatever its age: its owner closes it once it is idle, and the retention judges it after that.
    """
    if retention.time_ms == 0:
        return False
    size_bytes = sum(ledger.size_bytes for ledger in ledger_list.ledgers)
    for ledger in ledger_list.ledgers:
        has_entries = ledger.entries > 0 or ledger.ledger_id == confirmed.ledger_id
        if has_entries and _is_kept(ledger, retention, size_bytes, unix_ms):
            return True
        size_bytes -= ledger.size_bytes
    return False


def _is_kept(ledger: ListedLedger, retention: Retention, size_bytes: int, unix_ms: int) -> bool:
    """`size_bytes` is of the ledger and all later ones."""
    if ledger.closed_at_ms is None:
        return True
    ended_at_ms = ledger.closed_at_ms if ledger.last_published_at_ms is None else ledger.last_published_at_ms
    is_too_old = retention.time_ms is not None and unix_ms - ended_at_ms >= retention.time_ms
    is_too_large = retention.size_bytes is not None and size_bytes > retention.size_bytes
    return not is_too_old and not is_too_large
