"""Which ledgers a bookie may delete: those that metadata certainly has no longer (rule 28).

It is the most dangerous thing a bookie does, so absence is proved twice: the ledger is in no complete listing that began
after the bookie knew it, and a direct read after a sync finds nothing. An error proves nothing. A ledger whose id was never
given out, when the counter of ids was read, is not deleted, since it may come to be: its fence is dropped (rule 3).
"""

from collections.abc import Collection, Iterable, Iterator

from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata


class DeletionCycle:
    """One comparison of what a bookie has with what metadata lists.

    The bookie lists its ledgers first, then reads the counter of ids, then lists the metadata.
    """

    def __init__(self, known: Iterable[LedgerId], next_id: LedgerId, existing: Collection[LedgerId]) -> None:
        """`known`: what the bookie has; `next_id`: the id that the next ledger gets; `existing`: the listing."""
        unlisted = [ledger_id for ledger_id in known if ledger_id not in existing]
        self.never_created = [ledger_id for ledger_id in unlisted if ledger_id >= next_id]
        """Their fences are dropped."""
        self.missing = [ledger_id for ledger_id in unlisted if ledger_id < next_id]
        """Read the metadata of each of these, after a sync."""
        self.certain: list[LedgerId] = []
        """May be deleted; see `take_certain`."""

    def metadata_read(self, ledger_id: LedgerId, metadata: LedgerMetadata | None) -> bool:
        """A direct read of a missing ledger's metadata, or None if it is not there; whether the ledger may be deleted.

        A listing alone proves nothing: one that misses a directory deleted live ledgers elsewhere (rule 28).
        """
        gone = metadata is None
        if gone:
            self.certain.append(ledger_id)
        return gone

    def take_certain(self, at_least: int = 1) -> Iterator[list[LedgerId]]:
        """The ledgers to delete now, as one batch, if there are so many."""
        if len(self.certain) >= at_least:
            batch, self.certain = self.certain, []
            yield batch
