"""The promise, checked while a run goes on: what was acknowledged is never lost, reordered or changed.

A ghost beside every ledger remembers what no real component could: what was appended, which bookies ever had it
durably, what was acknowledged, what any reader has seen, how the ledger ended. The invariants carry the names that the
published TLA+ model of BookKeeper gives them; each is checked where it can first break, which is cheaper than after
every event and no weaker, for nothing that it depends on changes in between.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final, Protocol

from daybook.core.effects import LacKnown
from daybook.core.format.frame import Entry
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from tests.model.sim.audit_checks import AuditChecks
from tests.model.sim.ghost import Ghost
from tests.model.sim.world import ViolationError, World

PENDING_BYTES_MAX: Final = 1 << 20
REQUESTS_MAX: Final = 2000


class Disks(Protocol):
    """What the checkers may ask about a bookie that no client could."""

    replaced: bool

    def holds_durably(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """Whether the entry would survive a power cut now."""

    def holds(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """Whether a read would find the entry."""

    def vouches(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie would say that it is in no limbo."""

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie lost this ledger and was not repaired yet."""

    def is_fenced_durably(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger would be fenced after a power cut now."""

    def everything_held(self) -> Mapping[LedgerId, Collection[EntryId]]:
        """The entries of each ledger, in memory or on the disk."""


class Checkers:
    """The invariants of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ghosts: dict[LedgerId, Ghost] = {}
        self.bookies: Mapping[BookieId, Disks] = {}
        self.audits = AuditChecks(self.fail)
        self.replaced_max: float = inf
        """How many disks may be lost at a time whose bookies have not looked yet what they owed."""

    def fail(self, invariant: str, why: str) -> None:
        """Raise ViolationError."""
        self.world.note("checker", f"VIOLATED {invariant}: {why}")
        msg = f"{invariant}: {why}"
        raise ViolationError(msg)

    # Metadata

    def ledger_created(self, metadata: LedgerMetadata) -> None:
        """A ledger begins."""
        self.ghosts[metadata.ledger_id] = Ghost(metadata)

    def metadata_changed(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """A compare-and-set was carried out, along `check_transition`."""
        ghost = self.ghosts[new.ledger_id]
        if ghost.deleted:
            self.fail(
                "a deleted ledger is never written again", f"metadata of ledger {new.ledger_id} changed"
            )
        ghost.metadata, ghost.proposed, ghost.changed_us = new, None, self.world.now_us
        if new.last_fragment != old.last_fragment:
            self.audits.ensemble_changed(new, self.world.now_ms)
        if new.is_closed and not old.is_closed:
            self._closed(ghost, new)
        self.acked_entries_are_readable(ghost)

    def _closed(self, ghost: Ghost, new: LedgerMetadata) -> None:
        """The ledger ends at `new.last_entry`, for good."""
        name, end = f"ledger {new.ledger_id}", new.last_entry
        self.world.note("checker", f"{name} is closed at {end}; acknowledged up to {ghost.acked}")
        if end < ghost.acked:
            self.fail(
                "AllAckedEntriesAreReadable", f"{name} is closed at {end}, but {ghost.acked} is acknowledged"
            )
        if end < ghost.delivered:
            self.fail(
                "a reader sees nothing beyond the close", f"{name} ends at {end}, {ghost.delivered} was read"
            )
        if end < ghost.seen_lac:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData", f"{name} ends at {end}, a LAC said {ghost.seen_lac}"
            )
        lied = [
            entry
            for entry, data in ghost.not_written.items()
            if entry <= end and ghost.content[entry] == data
        ]
        if lied:
            self.fail(
                "after a fence the outcome is unknown", f"{name} has {lied}, said to be not written (rule 13)"
            )
        missing = [entry for entry in range(end + 1) if entry not in ghost.content]
        if missing:
            self.fail("NoOutOfOrderEntries", f"{name} ends at {end}, but {missing} were never appended")
        length = sum(len(ghost.content[entry]) for entry in range(end + 1))
        if new.length != length:
            self.fail(
                "a close is final", f"{name} has {length} bytes up to {end}, metadata says {new.length}"
            )
        for entry in range(end + 1):
            self._reaches_ack_quorum(ghost, new, entry)

    def _reaches_ack_quorum(self, ghost: Ghost, metadata: LedgerMetadata, entry: EntryId) -> None:
        ensemble = metadata.fragment_of(entry).bookies
        holders = ghost.durable_ever.get(entry, set())
        members = [ensemble[position] for position in write_set(metadata.quorum, entry)]
        having = [bookie for bookie in members if bookie in holders]
        if len(having) < metadata.quorum.ack_quorum:
            self.fail(
                "AllCommittedEntriesReachAckQuorum",
                f"entry {entry} of ledger {metadata.ledger_id} was durable on {having} of {members} only",
            )

    def ledger_deleted(self, ledger_id: LedgerId) -> None:
        """The metadata is gone."""
        self.ghosts[ledger_id].deleted = True

    # Writers

    def appended(self, ledger_id: LedgerId, entry_id: EntryId, payload: bytes) -> None:
        """The writer was given `payload`, which will be `entry_id` if anything."""
        content = self.ghosts[ledger_id].content
        assert entry_id not in content
        content[entry_id] = payload

    def withdrawn(self, ledger_id: LedgerId, entry_ids: Collection[EntryId]) -> None:
        """These ids are free again: no bookie may have anything under them (rule 21)."""
        ghost = self.ghosts[ledger_id]
        for bookie, disk in self.bookies.items():
            having = sorted(set(entry_ids).intersection(disk.everything_held().get(ledger_id, ())))
            if having:
                self.fail("an id is given once", f"{bookie} has {having} of ledger {ledger_id} (rule 21)")
        for entry in entry_ids:
            ghost.content.pop(entry, None)

    def not_written(self, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """The user was told that nothing of this was written, and may write it elsewhere (rule 13)."""
        ghost = self.ghosts[ledger_id]
        ghost.not_written |= {entry: ghost.content[entry] for entry in entry_ids if entry in ghost.content}

    def completed(
        self, metadata: LedgerMetadata, first: EntryId, last: EntryId, *, everywhere: bool = False
    ) -> None:
        """A writer acknowledged first … last; `metadata` is the writer's view. `everywhere`: by a force (rule 22)."""
        ghost = self.ghosts[metadata.ledger_id]
        name = f"ledger {metadata.ledger_id}"
        if first != ghost.acked + 1 or last < first or last not in ghost.content:
            self.fail("NoOutOfOrderEntries", f"{name}: {first} … {last} acknowledged after {ghost.acked}")
        if ghost.end is not None and last > ghost.end:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData",
                f"{name} is closed at {ghost.end}, and {last} was acknowledged",
            )
        ghost.acked = last
        for entry in range(first, last + 1):
            self._reaches_ack_quorum(ghost, metadata, entry)
            if everywhere:
                self._is_everywhere(ghost, metadata, entry)
        self.acked_entries_are_readable(ghost)

    def _is_everywhere(self, ghost: Ghost, metadata: LedgerMetadata, entry: EntryId) -> None:
        ensemble = metadata.fragment_of(entry).bookies
        members = {ensemble[position] for position in write_set(metadata.quorum, entry)}
        without = members - ghost.durable_ever.get(entry, set())
        if without:
            self.fail(
                "a force is answered by the whole ensemble",
                f"entry {entry} of ledger {metadata.ledger_id} was never durable on {sorted(without)} (rule 22)",
            )

    def reader_lac(self, ledger_id: LedgerId, before: EntryId, now: EntryId) -> None:
        """What one reader was told, and what it is told now."""
        if now < before:
            self.fail("LAC never goes back", f"for a reader of ledger {ledger_id}, from {before} to {now}")
        self.lac_seen(ledger_id, now)

    def writer_lac(self, ledger_id: LedgerId, before: EntryId, now: EntryId) -> None:
        """A machine's LAC after a step."""
        if now < before:
            self.fail("LAC never goes back", f"of ledger {ledger_id}, from {before} to {now}")
        self.lac_seen(ledger_id, now)

    def lac_seen(self, ledger_id: LedgerId, lac: EntryId) -> None:
        """Someone was told that everything up to `lac` is safe."""
        ghost = self.ghosts[ledger_id]
        if lac <= ghost.seen_lac:
            return
        if ghost.end is not None and lac > ghost.end:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData",
                f"ledger {ledger_id} is closed at {ghost.end}, a LAC says {lac}",
            )
        for entry in range(ghost.seen_lac + 1, lac + 1):
            self._reaches_ack_quorum(ghost, ghost.metadata, entry)
        ghost.seen_lac = lac

    def ended(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        """A client was told that the ledger ended so."""
        ghost = self.ghosts[ledger_id]
        if (metadata.last_entry, metadata.length) != (ghost.metadata.last_entry, ghost.metadata.length):
            self.fail(
                "a close is final",
                f"ledger {ledger_id} is closed at {ghost.metadata.last_entry}, told {metadata.last_entry}",
            )

    # Readers

    def refreshed(self, ledger_id: LedgerId, began_with: LedgerMetadata, told: LacKnown) -> None:
        """A reader asked for the LAC when metadata was `began_with`: it is told no less than that says (rule 59)."""
        if began_with.is_closed:
            if told.closed is None:
                self.fail(
                    "a refresh follows the metadata",
                    f"ledger {ledger_id} was closed, and was told to be open",
                )
            return
        least = began_with.last_fragment.first_entry - 1
        if told.last_add_confirmed < least:
            self.fail(
                "a refresh follows the metadata",
                f"ledger {ledger_id} was at {least} by metadata alone, a reader was told {told.last_add_confirmed}",
            )

    def delivered(
        self, ledger_id: LedgerId, entries: Iterable[Entry], after: EntryId, *, unconfirmed: bool
    ) -> EntryId:
        """A reader that had got everything up to `after` got `entries`; returns where it is now.

        One that reads past the LAC on its own risk may see what is lost later, but never other bytes.
        """
        ghost = self.ghosts[ledger_id]
        for entry_id, data in entries:
            if entry_id != after + 1:
                self.fail("NoOutOfOrderEntries", f"ledger {ledger_id}: {entry_id} delivered after {after}")
            after = entry_id
            if not unconfirmed and ghost.end is not None and entry_id > ghost.end:
                self.fail(
                    "a reader sees nothing beyond the close",
                    f"ledger {ledger_id} ends at {ghost.end}, {entry_id} was read",
                )
            if ghost.content.get(entry_id) != data:
                self.fail(
                    "a reader never sees different bytes",
                    f"entry {entry_id} of ledger {ledger_id} is {ghost.content.get(entry_id)!r}, read {data!r}",
                )
        if not unconfirmed:
            ghost.delivered = max(ghost.delivered, after)
        return after

    # Bookies

    def became_durable(self, bookie: BookieId, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """`bookie` has these entries on its disk from now on."""
        ghost = self.ghosts[ledger_id]
        for entry_id in entry_ids:
            ghost.durable_ever.setdefault(entry_id, set()).add(bookie)
            ghost.synced_once.add((bookie, entry_id))

    def acked_by(self, bookie: BookieId, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """A client heard that `bookie` has synced these entries (rule 23, rule 49, rule 54)."""
        once = self.ghosts[ledger_id].synced_once
        missing = [entry for entry in entry_ids if (bookie, entry) not in once]
        if missing:
            self.fail(
                "what is answered is synced", f"{bookie} acked {missing} of ledger {ledger_id} unsynced"
            )

    def fence_answered(self, bookie: BookieId, ledger_id: LedgerId) -> None:
        """`bookie` says that the ledger is fenced: it is, after a power cut too (rule 3, rule 4)."""
        ghost = self.ghosts.get(ledger_id)
        is_there = ghost is not None and not ghost.deleted
        if is_there and not self.bookies[bookie].is_fenced_durably(ledger_id):
            self.fail("a fence is durable before it is answered", f"ledger {ledger_id} on {bookie} (rule 4)")

    def accepted(
        self,
        bookie: BookieId,
        ledger_id: LedgerId,
        *,
        recovery: bool,
        lac: EntryId,
        fenced: bool,
        looked: bool,
    ) -> None:
        """`bookie` took a frame. `fenced`: it was fenced then; `looked`: it has read the metadata of the ledger."""
        ghost = self.ghosts[ledger_id]
        if not recovery and fenced:
            self.fail(
                "a fence lets nothing normal pass", f"ledger {ledger_id} on {bookie} (rule 10, rule 43)"
            )
        if not recovery and not looked:
            self.fail("the first frame needs the metadata", f"ledger {ledger_id} on {bookie} (rule 20)")
        if not recovery and bookie in ghost.collected:
            self.fail("a deleted ledger is never written again", f"ledger {ledger_id} on {bookie}")
        self.lac_seen(ledger_id, lac)

    def collected(self, bookie: BookieId, ledger_id: LedgerId) -> None:
        """`bookie` threw the ledger away."""
        ghost = self.ghosts[ledger_id]
        if not ghost.deleted:
            self.fail("only deleted ledgers are collected", f"ledger {ledger_id} on {bookie} (rule 28)")
        ghost.collected.add(bookie)

    def removed(
        self,
        bookie: BookieId,
        ledger_id: LedgerId,
        entries: Collection[EntryId],
        *,
        raised: bool,
        added_to: bool,
    ) -> None:
        """`bookie` removed replicas: none that it owes (rule 47).

        `raised`: the version was since the metadata was read; `added_to`: the ledger was since the look at it began.
        """
        ghost = self.ghosts[ledger_id]
        if not raised:
            self.fail("a removal raises the version first", f"{bookie}, ledger {ledger_id} (rule 47)")
        if added_to:
            self.fail("an add cancels a removal", f"{bookie}, ledger {ledger_id} (rule 47)")
        if ghost.deleted:
            return
        if ghost.end is None:
            self.fail("only of closed ledgers", f"{bookie} removed {entries} of ledger {ledger_id} (rule 47)")
        owed = set(self.owed_by(ghost, bookie)).intersection(entries)
        if owed:
            self.fail("nothing that is owed is removed", f"{bookie}, ledger {ledger_id}: {owed} (rule 47)")
        for entry in entries:
            ghost.durable_ever.get(entry, set()).discard(bookie)

    def limbo_cleared(self, bookie: BookieId, ledger_id: LedgerId, held: Collection[EntryId]) -> None:
        """`bookie` vouches for the ledger again: it must hold everything it owes (rule 29)."""
        ghost = self.ghosts[ledger_id]
        if ghost.deleted:
            return
        if ghost.end is None:
            self.fail("limbo ends only after the close", f"ledger {ledger_id} on {bookie} (rule 29)")
        missing = [entry for entry in self.owed_by(ghost, bookie) if entry not in held]
        if missing:
            self.fail("limbo ends only when all is copied", f"ledger {ledger_id} on {bookie} lacks {missing}")

    def read_meets(
        self, bookie: BookieId, ledger_id: LedgerId, accepted: Iterable[EntryId], met: Collection[EntryId]
    ) -> None:
        """A read on `bookie` meets what was accepted, synced or not (rule 43)."""
        missed = [entry for entry in accepted if entry not in met]
        if missed:
            self.fail("a read meets what was accepted", f"{bookie}, ledger {ledger_id}: {missed} (rule 43)")

    def successor_holds(self, bookie: BookieId, ledger_id: LedgerId, first: EntryId) -> None:
        """A repair that named `bookie` in the fragment from `first` on is done: it has its share there (rule 29, rule 32).

        One that lost its disk since it was named is in limbo.
        """
        ghost, disk = self.ghosts[ledger_id], self.bookies[bookie]
        if ghost.deleted or ghost.end is None or disk.is_in_limbo(ledger_id):
            return
        fragment = ghost.metadata.fragment_of(first)
        owed = self.owed_by(ghost, bookie) if bookie in fragment.bookies else []
        lacks = [
            entry
            for entry in owed
            if ghost.metadata.fragment_of(entry) is fragment and not disk.holds_durably(ledger_id, entry)
        ]
        if lacks:
            self.fail("a successor has its share", f"{bookie} lacks {lacks} of ledger {ledger_id}")

    @staticmethod
    def owed_by(ghost: Ghost, bookie: BookieId) -> list[EntryId]:
        """The entries of a closed ledger that metadata places on `bookie`."""
        assert ghost.end is not None
        return [
            entry
            for first, last, stripe in ghost.metadata.stripes_of(bookie)
            for entry in range(first, (ghost.end if last is None else last) + 1)
            if stripe.holds(entry)
        ]

    def nothing_is_under_replicated(self, began_us: int) -> None:
        """An auditor said so after a round from `began_us` on: all ledgers were closed, and the last fault was over."""
        left = self.under_replicated(began_us)
        if left:
            self.fail("FullyReplicated is true when it is said", "; ".join(left))

    def under_replicated(self, heard_us: int | None = None) -> list[str]:
        """What some bookie owes of a closed ledger and does not hold, or cannot vouch for; in words.

        `heard_us`: as bookies told from then on. What they have accepted and not synced yet is in their listings; one
        that a repair names since may be in limbo still, with all that it owes.
        """
        found = []
        for ledger_id, ghost in self.ghosts.items():
            if ghost.deleted or ghost.end is None:
                continue
            for bookie in sorted(ghost.metadata.bookies()):
                disk = self.bookies[bookie]
                holds = disk.holds_durably if heard_us is None else disk.holds
                is_excused = heard_us is not None and (
                    disk.vouches(ledger_id) or ghost.changed_us >= heard_us
                )
                if disk.is_in_limbo(ledger_id) and not is_excused:
                    found.append(f"{bookie} is in limbo for ledger {ledger_id}")
                lacks = [entry for entry in self.owed_by(ghost, bookie) if not holds(ledger_id, entry)]
                if lacks:
                    found.append(f"{bookie} lacks {lacks} of ledger {ledger_id}")
        return found

    def disks_changed(self) -> None:
        """Some disk lost something."""
        for ghost in self.ghosts.values():
            self.acked_entries_are_readable(ghost)

    def acked_entries_are_readable(self, ghost: Ghost) -> None:
        """Every acknowledged entry is on the disk of a bookie where metadata tells readers to look."""
        if ghost.deleted:
            return
        metadata, ledger_id = ghost.metadata, ghost.metadata.ledger_id
        for entry in range(ghost.acked + 1):
            ensemble = metadata.fragment_of(entry).bookies
            for position in write_set(metadata.quorum, entry):
                if self.bookies[ensemble[position]].holds_durably(ledger_id, entry):
                    break
            else:
                self.fail(
                    "AllAckedEntriesAreReadable",
                    f"entry {entry} of ledger {ledger_id} is on none of {ensemble} any more",
                )
