"""Creates the ledgers of topics as the terms of their policies say: ledgers of messages, of cursors, and of what a compaction left.

Readers of a topic ask its owner, and nobody reads the other two while they are written, so bookies need not know the last entry of an
idle ledger at once.
"""

from collections.abc import Mapping
from typing import Final

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.ids import NO_ENTRY, LedgerId
from daybook.core.topics.policy import LedgerTerms
from daybook.core.writer.policy import LAC_PUBLISH_MS_MAX, WriterPolicy

_WRITERS: Final = {
    go_on: WriterPolicy(go_on_without_spare=go_on, lac_publish_ms=LAC_PUBLISH_MS_MAX)
    for go_on in (False, True)
}


async def create_ledger(
    client: Client, terms: LedgerTerms, custom_metadata: Mapping[str, bytes], *, above: LedgerId = NO_ENTRY
) -> Ledger:
    """A ledger by these terms; `above` and the errors are those of `Client.create_ledger`."""
    return await client.create_ledger(
        ensemble_size=terms.quorum.ensemble_size,
        write_quorum=terms.quorum.write_quorum,
        ack_quorum=terms.quorum.ack_quorum,
        custom_metadata=custom_metadata,
        above=above,
        policy=_WRITERS[terms.go_on_without_spare],
    )
