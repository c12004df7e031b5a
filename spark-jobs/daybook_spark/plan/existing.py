"""What exists now: topics by their names, the entries of each, and how far an open ledger may be read."""

from collections.abc import Sequence
from dataclasses import dataclass

import daybook
from daybook.client.reader import Reader
from daybook.core.errors import DaybookError, NoSuchLedgerError, NoSuchTopicError
from daybook.core.ids import EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import ListState, Position
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import PartitionManager, partition, partition_of
from daybook.metadata.topics import TopicManager
from daybook_spark.options import OptionError, ReadOptions

LIST_READS_MAX = 5
"""How often a topic's list is read while ledgers of it vanish."""


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A topic as it is stored: one without partitions, or a partition."""

    name: TopicName
    topic: str
    """The name that users know: of a partition that of its topic."""
    partition: int | None = None


async def parts_of(client: daybook.Client, options: ReadOptions) -> list[TopicPart]:
    """The topics that the options name, each once. Raises NoSuchTopicError, TopicNameError, OptionError."""
    partitions = PartitionManager(client.store, client.layout)
    topics = TopicManager(client.store, client.layout)
    found: dict[TopicName, TopicPart] = {}
    for text in options.topics:
        name = TopicName.parse(text)
        record = await partitions.read(name)
        if record is None:
            found[name] = part_of(name)
            continue
        each = (partition(name, index) for index in range(record.value.partitions))
        found |= {part: part_of(part) for part in each}
    for text in options.namespaces:
        tenant, has_namespace, namespace = text.partition("/")
        if not has_namespace:
            msg = f"option namespace = {text!r}: use tenant/namespace, as in public/default"
            raise OptionError(msg)
        found |= {name: part_of(name) for name in await topics.topics(tenant, namespace)}
    return list(found.values())


def part_of(name: TopicName) -> TopicPart:
    """A stored topic by its name."""
    whole = partition_of(name)
    return TopicPart(name, str(name)) if whole is None else TopicPart(name, str(whole[0]), whole[1])


async def extent_of(client: daybook.Client, part: TopicPart) -> TopicExtent:
    """The entries of a topic that were acknowledged. Raises NoSuchTopicError, NotEnoughReplicasError.

    A partition that nobody used yet is empty: a broker makes it when it is used.
    """
    topics = TopicManager(client.store, client.layout)
    for attempt in range(LIST_READS_MAX):
        extent = TopicExtent()
        try:
            ledger_list = (await topics.read(part.name, sync=True)).value
        except NoSuchTopicError:
            if part.partition is not None:
                return extent
            raise
        extent.update(ledger_list)
        if ledger_list.state is not ListState.OPEN:
            return extent
        last = ledger_list.ledgers[-1]
        try:
            _, last_entry = await confirmed(client, last.ledger_id)
        except NoSuchLedgerError:
            if attempt + 1 == LIST_READS_MAX:
                raise
            continue  # its owner has closed and deleted it meanwhile, and the list says so now
        extent.confirm(Position(last.ledger_id, last_entry))
        return extent
    raise AssertionError("the last attempt returns or raises")


async def confirmed(client: daybook.Client, ledger_id: LedgerId) -> tuple[LedgerMetadata, EntryId]:
    """A ledger and its last entry that may be read: of what was acknowledged before, at most the last few entries are beyond.

    The answers of a quorum decide, because a single bookie may not have received the newest LAC (rule 59). Raises
    NoSuchLedgerError, NotEnoughReplicasError.
    """
    try:
        found = await client.ledgers.read(ledger_id, sync=True)
    except NoSuchLedgerError as error:
        raise _gone(ledger_id) from error
    reader = Reader(found.value, client)
    last = await reader.refresh(lenient=False)
    return reader.metadata, last


async def metadata_of(
    client: daybook.Client, ledger_ids: Sequence[LedgerId]
) -> dict[LedgerId, LedgerMetadata]:
    """The metadata of each ledger. Raises NoSuchLedgerError for one that is gone."""
    found: dict[LedgerId, LedgerMetadata] = {}
    for ledger_id, each in zip(ledger_ids, await client.ledgers.read_each(ledger_ids), strict=True):
        if isinstance(each, NoSuchLedgerError):
            raise _gone(ledger_id) from each
        if isinstance(each, DaybookError):
            raise each
        found[ledger_id] = each.value
    return found


def _gone(ledger_id: LedgerId) -> NoSuchLedgerError:
    return NoSuchLedgerError(
        f"ledger {ledger_id} does not exist: it was deleted, or trimmed from its topic. `daybook ledger list` shows those "
        "that do; a query over a topic can be run again"
    )
