"""When a bookie may remove over-replicated entries: those that metadata no longer places on it (rule 47).

A repair puts a successor in a bookie's place and never touches what that bookie has; only the bookie removes it. The
danger is a repair that names the bookie again while it removes. So it may remove only from a CLOSED ledger (nothing
else can still need the entries), only after a compare-and-set that raises the version without changing anything (a
repair that planned before it has to read the metadata again, and copies again), and only if nothing happened to the ledger
since the metadata was read (a repair that plans after it has not copied yet).
"""

from dataclasses import dataclass, field

from daybook.core.bookie.watch import Watch
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata


def over_replicated(metadata: LedgerMetadata, bookie: BookieId, listed: IntervalSet) -> IntervalSet:
    """The entries that `bookie` has of a CLOSED ledger and does not owe; nothing of a ledger that is not CLOSED."""
    found = IntervalSet()
    if not metadata.is_closed:
        return found
    owed = IntervalSet()
    for first, last, stripe in metadata.stripes_of(bookie):
        if last is not None and first <= last:
            owed.add(first, last, stripe)
    for interval in listed:
        for extra in owed.missing(*interval):
            found.add(*extra)
    return found


@dataclass(slots=True)
class OverReplicatedRemoval:
    """One attempt of one bookie on one ledger.

    `watch` began before the metadata is read. Call `metadata_read` with a synced read; if it returns true, write the same
    metadata back at that version; if that succeeded, ask `may_remove` under the lock that covers accepting frames, and
    remove under it.
    """

    bookie: BookieId
    watch: Watch
    entries: IntervalSet = field(default_factory=IntervalSet)
    _version: int | None = None
    _raised: bool = False

    def metadata_read(self, metadata: LedgerMetadata, version: int, listed: IntervalSet) -> bool:
        """Whether there is anything to remove: then raise the version by writing `metadata` back at `version`."""
        self.entries = over_replicated(metadata, self.bookie, listed)
        self._version = version if self.entries else None
        return bool(self.entries)

    def version_raised(self, version: int) -> None:
        """The compare-and-set succeeded, and the version is now `version`. After a conflict, begin anew."""
        assert self._version is not None
        assert version > self._version
        self._raised = True

    def may_remove(self) -> bool:
        """Whether `entries` may go now."""
        return self._raised and not self.watch.changes
