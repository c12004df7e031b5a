"""What a topic names, read whole, and the deletion of ledgers that nothing names: for brokers and for jobs.

The proof that nothing will ever name a ledger needs the topic's list and its cursors, all of them or an error, after a `sync` (rule 28,
rule 46). A ledger is read again before it is deleted, at that version (rule 56).
"""

from daybook.client.client import Client
from daybook.core.errors import NoSuchLedgerError, NoSuchTopicError
from daybook.core.ids import LedgerId
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import NamedLedgers
from daybook.metadata.topics import TopicManager


async def named_by(topics: TopicManager, name: TopicName) -> NamedLedgers:
    """What the topic names now; of a topic that is deleted, nothing. Raises MetadataError, MetadataUnavailableError."""
    try:
        found = await topics.read(name, sync=True)
        subscriptions = await topics.cursors(name)
    except NoSuchTopicError:
        return NamedLedgers(None)
    cursors = []
    for subscription in subscriptions:
        try:
            cursors.append((await topics.read_cursor(name, subscription)).value)
        except NoSuchTopicError:
            continue  # unsubscribed meanwhile, and its ledger is its owner's to delete
    return NamedLedgers(found.value, tuple(cursors))


async def delete_unnamed(client: Client, ledger_id: LedgerId) -> bool:
    """Delete a ledger unless somebody does something with it just now; False if it is gone already.

    Raises LedgerChangedError, RecoveryFailedError, MetadataError, MetadataUnavailableError.
    """
    try:
        found = await client.ledgers.read(ledger_id, sync=True)
        await client.delete_ledger(ledger_id, version=found.version)
    except NoSuchLedgerError:
        return False
    return True
