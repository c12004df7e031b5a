"""What is known of one ledger by someone who sees everything: the checkers compare with it, the fault atlas asks it."""

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
