"""The deletion of a topic by its owner: with its ledgers, those of its cursors, and all its nodes.

The topic is unloaded first, so nothing is written any more, and requests for it are held until the end. Then its list loses all ledgers
by compare-and-set (rule 38), and only after that the ledgers themselves go: a deletion that ends half-way leaves ledgers that no list
names, never a list that names what is gone.
"""

from collections.abc import Iterable
from dataclasses import replace

from daybook.client.client import Client
from daybook.core.errors import NoSuchLedgerError, NotOwnerError
from daybook.core.ids import LedgerId
from daybook.core.topics.cursor_record import NO_LEDGER
from daybook.core.topics.ledger_list import ListState
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager
from daybook.runtime.logs import get_logger
from daybook_broker.topics.registry import TopicRegistry
from daybook_broker.topics.topic import Topic

log = get_logger(__name__)


def users_of(topic: Topic) -> dict[str, int]:
    """How many producers and subscriptions a topic has, those too that are being opened; a connected reader has a subscription.

    `delete_topic` begins to unload a topic that is served before it awaits anything, so nobody comes between this call and that one.
    """
    names = {each.name for each in topic.subscriptions.all()}.union(topic.subscriptions.marks_by_name())
    return {"producers": len(topic.producers), "subscriptions": len(names)}


async def delete_topic(
    name: TopicName, registry: TopicRegistry, client: Client, topics: TopicManager
) -> None:
    """Delete a topic that this broker owns, whoever uses it. Raises NoSuchTopicError, NotOwnerError, NotReadyError, MetadataUnavailableError."""
    await registry.load(name, create=False)
    unload = registry.unload([name])
    try:
        await unload.finished()
        found = await topics.read(name, sync=True)
        if found.value.state is ListState.OPEN:
            msg = f"topic {name} could not be closed, so its last ledger is not known: try again"
            raise NotOwnerError(msg)
        cursors = [await topics.read_cursor(name, each) for each in await topics.cursors(name)]
        ledgers = sorted(found.value.named_ids)
        ledgers += [
            cursor.value.cursor_ledger for cursor in cursors if cursor.value.cursor_ledger != NO_LEDGER
        ]
        if found.value.ids | found.value.compacted_ids:
            found = await topics.cas(name, found, replace(found.value, ledgers=(), compaction=None))
        await topics.delete(name, found.version)
        log.info("topic deleted", topic=str(name), ledgers=len(ledgers))
        await _delete_ledgers(ledgers, client)
    finally:
        unload.announce(None)


async def _delete_ledgers(ledgers: Iterable[LedgerId], client: Client) -> None:
    """No list names them any more: a ledger that stays, because this ends here, does no harm."""
    for ledger_id in ledgers:
        try:
            await client.delete_ledger(ledger_id)
        except NoSuchLedgerError:
            log.info("a ledger was deleted before", ledger_id=ledger_id)
