"""Where the entries of a range are, once they are not any more where the driver found them.

Between planning and reading, a topic's owner may give the replicas of an offloaded ledger up (rule 70), or have a ledger brought back from its
file, perhaps as a copy (rule 72). The topic's list names both before anything is deleted, so it says where the entries are. A ledger that it does
not name was trimmed, and one that it still names where the task has looked is lost: neither has another place.
"""

from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList
from daybook_spark.plan.entry_range import FileRange, Range


def other_place(entries: Range, ledger_list: LedgerList) -> FileRange | LedgerId | None:
    """A file, or the ledger that bookies have the entries in; None if the list names no other place than the range does."""
    row = next((row for row in ledger_list.ledgers if row.ledger_id == entries.ledger_id), None)
    if row is None:
        return None
    if row.has_replicas:
        known = None if isinstance(entries, FileRange) else entries.metadata.ledger_id
        return None if row.replicas_id == known else row.replicas_id
    file = FileRange.of(row, entries.first, entries.last, entries.topic, entries.partition)
    return None if isinstance(entries, FileRange) and entries.place == file.place else file
