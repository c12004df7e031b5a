"""Whether a topic is still its owner's, by its list as it is now (rule 38).

An owner that was superseded learns that from its next change of the list. Until then what it knows of the list may be old, and explains
nothing that it misses (rule 70).
"""

from daybook.core.errors import DaybookError, NoSuchTopicError, NotOwnerError
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager
from daybook_broker.topics.ledger_reads import ReadDelayedError


async def why_lost(topics: TopicManager, name: TopicName, owner_token: str) -> DaybookError | None:
    """Why the topic is not this owner's any more; None if it is. Raises ReadDelayedError if the list cannot be read."""
    try:
        found = (await topics.read(name, sync=True)).value
    except NoSuchTopicError as error:
        return error
    except DaybookError as error:
        msg = f"the list of topic {name} cannot be read ({error}): its entries are delivered once it can"
        raise ReadDelayedError(msg) from error
    if found.owner_token == owner_token:
        return None
    return NotOwnerError(f"topic {name} has another owner: look it up again")
