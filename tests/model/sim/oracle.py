"""What is known of one ledger by someone who sees everything: the checkers compare with it, the fault atlas asks it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata


@dataclass(slots=True)
class Oracle:
    """What is known of one ledger by someone who sees everything."""

    metadata: LedgerMetadata
    proposed: LedgerMetadata | None = None
    """What a repair asks the metadata to become; it may land long after whoever asked has gone."""
    changed_us: int = 0
    """When its metadata changed last."""
    content: dict[EntryId, bytes] = field(default_factory=dict)
    durable_ever: dict[EntryId, set[BookieId]] = field(default_factory=dict)
    synced_once: set[tuple[BookieId, EntryId]] = field(default_factory=set)
    """Like `durable_ever`, but a removal takes nothing out."""
    counted: dict[BookieId, set[EntryId]] = field(default_factory=dict)
    """What the writer received from each bookie as acknowledged, while metadata names the bookie for it (rule 17)."""
    not_written: dict[EntryId, bytes] = field(default_factory=dict)
    """What certainly was not written, by an error of its writer."""
    acked: EntryId = NO_ENTRY
    delivered: EntryId = NO_ENTRY
    seen_lac: EntryId = NO_ENTRY
    given: bool = False
    """Some client got it as its own creation."""
    deleted: bool = False
    collected: set[BookieId] = field(default_factory=set)

    @property
    def end(self) -> EntryId | None:
        """The last entry, once the ledger is closed; known for ever."""
        return self.metadata.last_entry if self.metadata.is_closed else None

    def count(self, bookie: BookieId, entry_ids: Iterable[EntryId]) -> None:
        """The writer received these acknowledgements; an answer of a bookie that it has replaced counts for nothing (rule 18)."""
        named = (entry for entry in entry_ids if bookie in self.metadata.fragment_of(entry).bookies)
        self.counted.setdefault(bookie, set()).update(named)

    def metadata_changed(self, new: LedgerMetadata, now_us: int) -> None:
        """The metadata is `new`: where it names a bookie no more, that one counts for nothing, even if it returns (rule 17).

        A writer replaces bookies from an entry on; a repair moves the entries of an earlier fragment to another bookie.
        """
        is_placed_anew = new.fragments != self.metadata.fragments
        self.metadata, self.proposed, self.changed_us = new, None, now_us
        if not is_placed_anew:
            return
        for bookie, entries in self.counted.items():
            entries.difference_update(
                [entry for entry in entries if bookie not in self.metadata.fragment_of(entry).bookies]
            )
