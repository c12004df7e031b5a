"""Whether a query has missed entries: trimming takes whole ledgers from the front of a topic, read or not.

A position whose ledger is still listed has lost nothing. Neither has one beyond everything that the topic ever acknowledged. The first
ledger that is left says which entry was the last before it: a query that has read it has lost nothing, and any other one has.

A list that ends before an entry that the query has read is that of another topic: the query's was deleted, and one of its name created
again. What the query had not read is gone then, and nobody knows whether there was any.

A ledger that an earlier release named does not say so, and then the rest of a trimmed ledger counts as lost, unless the query has a
subscription whose cursor did not pass it. Nothing else may be concluded from a cursor's node: while the cursor moves, its ledger has the
newer state.

A topic that came after the query began is read from its first entry, so all that was trimmed of it is lost. A topic that came to the query
only because somebody changed its options is read from what is left of it.

A topic that is not there any more, because it was deleted or the options name it no longer, has lost what the query has planned to read of it.
"""

from collections.abc import Collection

import daybook
from daybook.core.errors import NoSuchTopicError
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager
from daybook_spark.plan.bounds import FIRST
from daybook_spark.plan.existing import TopicPart, part_of


def has_gone(extent: TopicExtent, start: Position) -> bool:
    """Whether entries from `start` on may be gone, by the list alone."""
    ledger_list = extent.ledger_list
    if was_created_again(ledger_list, start):
        return True
    if start >= extent.first or any(each.ledger_id == start.ledger_id for each in ledger_list.ledgers):
        return False
    gone = last_gone(ledger_list)
    return (ledger_list.last_confirmed if gone is None else gone) >= start


def was_created_again(ledger_list: LedgerList, start: Position) -> bool:
    """Whether the list is that of another topic than the one of which a query has read the entry before `start`."""
    gone = last_gone(ledger_list)
    is_before = all(start.ledger_id < each.ledger_id for each in ledger_list.ledgers)
    return is_before and gone is not None and start.entry_id > 0 and gone < start.before


def last_gone(ledger_list: LedgerList) -> Position | None:
    """The last entry that was trimmed, NO_POSITION if none was; None where nobody knows."""
    return ledger_list.ledgers[0].follows if ledger_list.ledgers else ledger_list.last_confirmed


async def why_lost(
    client: daybook.Client, part: TopicPart, extent: TopicExtent, start: Position, subscription: str
) -> str:
    """What has happened to entries from `start` on that were not read; empty: nothing."""
    if not has_gone(extent, start):
        return ""
    if was_created_again(extent.ledger_list, start):
        return (
            f"{part.name} was deleted and created again, or a person closed a ledger of it without recovery, after the query had read up "
            f"to {start}: entries that it had from there on may be lost"
        )
    if subscription:
        try:
            record = await TopicManager(client.store, client.layout).read_cursor(part.name, subscription)
        except NoSuchTopicError:
            return f"the subscription {subscription!r} of {part.name} was deleted, and entries from {start} on were trimmed"
        mark = record.value.mark_delete
        if mark >= start:
            return f"somebody moved the subscription {subscription!r} of {part.name} to {mark}, beyond {start}, or it began there"
        if last_gone(extent.ledger_list) is None:
            return ""
        return f"somebody moved the subscription {subscription!r} of {part.name} beyond {start}, and entries from there on were trimmed"
    return f"{part.name} begins at {extent.first} now, and the query had read up to {start}: its retention took the entries between"


def why_topic_lost(name: str, start: Position) -> str:
    """What has happened to entries from `start` on of a topic that is not there."""
    return (
        f"{name} was deleted, or is no longer among the query's options, and the query had read up to {start}"
    )


def came_later(part: TopicPart, known: Collection[str], namespaces: Collection[str]) -> bool:
    """Whether a topic came after the query began, which followed the topics `known` and all those of `namespaces` before.

    It did if it is a partition of a topic whose other ones are known, or of a namespace of which another topic is, or if there was no topic.
    """
    others = [part_of(TopicName.parse(name)) for name in known]
    if any(other.topic == part.topic for other in others) or not others:
        return True
    namespace = _namespace_of(part)
    return namespace in namespaces and any(_namespace_of(other) == namespace for other in others)


def why_beginning_lost(part: TopicPart, extent: TopicExtent, start_time_ms: int | None) -> str:
    """What has happened to the first entries of a topic that came after the query began; empty: nothing, or nobody knows.

    What was published before `start_time_ms` the query does not want.
    """
    ledger_list = extent.ledger_list
    gone = last_gone(ledger_list)
    if gone is None or gone < FIRST:
        return ""
    if start_time_ms is not None and any(
        each.created_at_ms <= start_time_ms for each in ledger_list.ledgers[:1]
    ):
        return ""
    return f"{part.name} came after the query began, and its retention took the entries before {extent.first}"


def _namespace_of(part: TopicPart) -> str:
    return f"{part.name.tenant}/{part.name.namespace}"
