"""The promise, checked during a run: what was acknowledged is never lost, reordered or changed.

An oracle beside every ledger remembers what no real component could: what was appended, which bookies ever had it
durably, what was acknowledged, what any reader has seen, how the ledger ended. The invariants carry the names that the
published TLA+ model of BookKeeper gives them; each is checked where it can first break, which is cheaper than after
every event and no weaker, for nothing that it depends on changes in between.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import Final, Protocol

from daybook.core.effects import LacKnown
from daybook.core.format.entries import Entry
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import write_set
from tests.model.sim.audit_checks import AuditChecks
from tests.model.sim.oracle import Oracle
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
        self.oracles: dict[LedgerId, Oracle] = {}
        self.bookies: Mapping[BookieId, Disks] = {}
        self.audits = AuditChecks(self.fail)
        self.replaced_max: float = inf
        """How many disks may be lost at a time whose bookies have not listed yet what they owed."""

    def fail(self, invariant: str, why: str) -> None:
        """Raise ViolationError."""
        self.world.note("checker", f"VIOLATED {invariant}: {why}")
        msg = f"{invariant}: {why}"
        raise ViolationError(msg)

    # Metadata

    def ledger_created(self, metadata: LedgerMetadata) -> None:
        """A ledger begins."""
        self.oracles[metadata.ledger_id] = Oracle(metadata)

    def metadata_changed(self, old: LedgerMetadata, new: LedgerMetadata) -> None:
        """A compare-and-set was carried out, along `check_transition`."""
        oracle = self.oracles[new.ledger_id]
        if oracle.deleted:
            self.fail(
                "a deleted ledger is never written again", f"metadata of ledger {new.ledger_id} changed"
            )
        oracle.metadata_changed(new, self.world.now_us)
        if new.last_fragment != old.last_fragment:
            self.audits.ensemble_changed(new, self.world.now_ms)
        if new.is_closed and not old.is_closed:
            self._closed(oracle, new)
        self.acked_entries_are_readable(oracle)

    def _closed(self, oracle: Oracle, new: LedgerMetadata) -> None:
        """The ledger ends at `new.last_entry`, for good."""
        name, end = f"ledger {new.ledger_id}", new.last_entry
        self.world.note("checker", f"{name} is closed at {end}; acknowledged up to {oracle.acked}")
        if end < oracle.acked:
            self.fail(
                "AllAckedEntriesAreReadable", f"{name} is closed at {end}, but {oracle.acked} is acknowledged"
            )
        if end < oracle.delivered:
            self.fail(
                "a reader sees nothing beyond the close", f"{name} ends at {end}, {oracle.delivered} was read"
            )
        if end < oracle.seen_lac:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData", f"{name} ends at {end}, a LAC said {oracle.seen_lac}"
            )
        lied = [
            entry
            for entry, data in oracle.not_written.items()
            if entry <= end and oracle.content[entry] == data
        ]
        if lied:
            self.fail(
                "after a fence the outcome is unknown", f"{name} has {lied}, said to be not written (rule 13)"
            )
        missing = [entry for entry in range(end + 1) if entry not in oracle.content]
        if missing:
            self.fail("NoOutOfOrderEntries", f"{name} ends at {end}, but {missing} were never appended")
        length = sum(len(oracle.content[entry]) for entry in range(end + 1))
        if new.length != length:
            self.fail(
                "a close is final", f"{name} has {length} bytes up to {end}, metadata says {new.length}"
            )
        for entry in range(end + 1):
            self._reaches_ack_quorum(oracle, new, entry)

    def _reaches_ack_quorum(self, oracle: Oracle, metadata: LedgerMetadata, entry: EntryId) -> None:
        ensemble = metadata.fragment_of(entry).bookies
        holders = oracle.durable_ever.get(entry, set())
        members = [ensemble[position] for position in write_set(metadata.quorum, entry)]
        having = [bookie for bookie in members if bookie in holders]
        if len(having) < metadata.quorum.ack_quorum:
            self.fail(
                "AllCommittedEntriesReachAckQuorum",
                f"entry {entry} of ledger {metadata.ledger_id} was durable on {having} of {members} only",
            )

    def ledger_deleted(self, ledger_id: LedgerId) -> None:
        """The metadata is gone."""
        self.oracles[ledger_id].deleted = True

    # Writers

    def appended(self, ledger_id: LedgerId, entry_id: EntryId, payload: bytes) -> None:
        """The writer was given `payload`, which will be `entry_id` if anything."""
        content = self.oracles[ledger_id].content
        assert entry_id not in content
        content[entry_id] = payload

    def withdrawn(self, ledger_id: LedgerId, entry_ids: Collection[EntryId]) -> None:
        """These ids are free again: no bookie may have anything under them (rule 21)."""
        oracle = self.oracles[ledger_id]
        for bookie, disk in self.bookies.items():
            having = sorted(set(entry_ids).intersection(disk.everything_held().get(ledger_id, ())))
            if having:
                self.fail("an id is given once", f"{bookie} has {having} of ledger {ledger_id} (rule 21)")
        for entry in entry_ids:
            oracle.content.pop(entry, None)

    def not_written(self, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """The user got the error that nothing of this was written, and may write it elsewhere (rule 13)."""
        oracle = self.oracles[ledger_id]
        oracle.not_written |= {entry: oracle.content[entry] for entry in entry_ids if entry in oracle.content}

    def completed(
        self, metadata: LedgerMetadata, first: EntryId, last: EntryId, *, everywhere: bool = False
    ) -> None:
        """A writer acknowledged first … last; `metadata` is the writer's view. `everywhere`: by a force (rule 22)."""
        oracle = self.oracles[metadata.ledger_id]
        name = f"ledger {metadata.ledger_id}"
        if first != oracle.acked + 1 or last < first or last not in oracle.content:
            self.fail("NoOutOfOrderEntries", f"{name}: {first} … {last} acknowledged after {oracle.acked}")
        if oracle.end is not None and last > oracle.end:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData",
                f"{name} is closed at {oracle.end}, and {last} was acknowledged",
            )
        oracle.acked = last
        for entry in range(first, last + 1):
            self._reaches_ack_quorum(oracle, metadata, entry)
            if everywhere:
                self._is_everywhere(oracle, metadata, entry)
        self.acked_entries_are_readable(oracle)

    def _is_everywhere(self, oracle: Oracle, metadata: LedgerMetadata, entry: EntryId) -> None:
        ensemble = metadata.fragment_of(entry).bookies
        members = {ensemble[position] for position in write_set(metadata.quorum, entry)}
        without = members - oracle.durable_ever.get(entry, set())
        if without:
            self.fail(
                "a force is answered by the whole ensemble",
                f"entry {entry} of ledger {metadata.ledger_id} was never durable on {sorted(without)} (rule 22)",
            )

    def reader_lac(self, ledger_id: LedgerId, before: EntryId, now: EntryId) -> None:
        """The LAC that one reader had, and the one that it gets now."""
        if now < before:
            self.fail("LAC never goes back", f"for a reader of ledger {ledger_id}, from {before} to {now}")
        self.lac_seen(ledger_id, now)

    def writer_lac(self, ledger_id: LedgerId, before: EntryId, now: EntryId) -> None:
        """A machine's LAC after a step."""
        if now < before:
            self.fail("LAC never goes back", f"of ledger {ledger_id}, from {before} to {now}")
        self.lac_seen(ledger_id, now)

    def lac_seen(self, ledger_id: LedgerId, lac: EntryId) -> None:
        """Someone learned that everything up to `lac` is safe."""
        oracle = self.oracles[ledger_id]
        if lac <= oracle.seen_lac:
            return
        if oracle.end is not None and lac > oracle.end:
            self.fail(
                "NoDivergenceBetweenClientAndMetaData",
                f"ledger {ledger_id} is closed at {oracle.end}, a LAC says {lac}",
            )
        for entry in range(oracle.seen_lac + 1, lac + 1):
            self._reaches_ack_quorum(oracle, oracle.metadata, entry)
        oracle.seen_lac = lac

    def ended(self, ledger_id: LedgerId, metadata: LedgerMetadata) -> None:
        """A client got this close of the ledger."""
        oracle = self.oracles[ledger_id]
        if (metadata.last_entry, metadata.length) != (oracle.metadata.last_entry, oracle.metadata.length):
            self.fail(
                "a close is final",
                f"ledger {ledger_id} is closed at {oracle.metadata.last_entry}, a client got {metadata.last_entry}",
            )

    # Readers

    def refreshed(self, ledger_id: LedgerId, began_with: LedgerMetadata, known: LacKnown) -> None:
        """A reader asked for the LAC when metadata was `began_with`: it gets no less than that says (rule 59)."""
        if began_with.is_closed:
            if known.closed is None:
                self.fail(
                    "a refresh follows the metadata",
                    f"ledger {ledger_id} was closed, and reported as open",
                )
            return
        least = began_with.last_fragment.first_entry - 1
        if known.last_add_confirmed < least:
            self.fail(
                "a refresh follows the metadata",
                f"ledger {ledger_id} was at {least} by metadata alone, a reader got {known.last_add_confirmed}",
            )

    def delivered(
        self, ledger_id: LedgerId, entries: Iterable[Entry], after: EntryId, *, unconfirmed: bool
    ) -> EntryId:
        """A reader that had got everything up to `after` got `entries`; returns where it is now.

        One that reads past the LAC on its own risk may see what is lost later, but never other bytes.
        """
        oracle = self.oracles[ledger_id]
        for entry_id, data in entries:
            if entry_id != after + 1:
                self.fail("NoOutOfOrderEntries", f"ledger {ledger_id}: {entry_id} delivered after {after}")
            after = entry_id
            if not unconfirmed and oracle.end is not None and entry_id > oracle.end:
                self.fail(
                    "a reader sees nothing beyond the close",
                    f"ledger {ledger_id} ends at {oracle.end}, {entry_id} was read",
                )
            if oracle.content.get(entry_id) != data:
                self.fail(
                    "a reader never sees different bytes",
                    f"entry {entry_id} of ledger {ledger_id} is {oracle.content.get(entry_id)!r}, read {data!r}",
                )
        if not unconfirmed:
            oracle.delivered = max(oracle.delivered, after)
        return after

    # Bookies

    def became_durable(self, bookie: BookieId, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """`bookie` has these entries on its disk from now on."""
        oracle = self.oracles[ledger_id]
        for entry_id in entry_ids:
            oracle.durable_ever.setdefault(entry_id, set()).add(bookie)
            oracle.synced_once.add((bookie, entry_id))

    def synced_by(self, bookie: BookieId, ledger_id: LedgerId, entry_ids: Iterable[EntryId]) -> None:
        """`bookie` says that it has synced these: to who sent them (rule 23, rule 49, rule 54), or in a listing (rule 47)."""
        once = self.oracles[ledger_id].synced_once
        missing = [entry for entry in entry_ids if (bookie, entry) not in once]
        if missing:
            self.fail(
                "what is answered is synced", f"{bookie} reports {missing} of ledger {ledger_id} unsynced"
            )

    def fence_answered(self, bookie: BookieId, ledger_id: LedgerId) -> None:
        """`bookie` says that the ledger is fenced: it is, after a power cut too (rule 3, rule 4)."""
        oracle = self.oracles.get(ledger_id)
        is_there = oracle is not None and not oracle.deleted
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
        has_read: bool,
    ) -> None:
        """`bookie` took a frame. `fenced`: it was fenced then; `has_read`: it has read the metadata of the ledger."""
        oracle = self.oracles[ledger_id]
        if not recovery and fenced:
            self.fail(
                "a fence lets nothing normal pass", f"ledger {ledger_id} on {bookie} (rule 10, rule 43)"
            )
        if not recovery and not has_read:
            self.fail("the first frame needs the metadata", f"ledger {ledger_id} on {bookie} (rule 20)")
        if not recovery and bookie in oracle.collected:
            self.fail("a deleted ledger is never written again", f"ledger {ledger_id} on {bookie}")
        self.lac_seen(ledger_id, lac)

    def collected(self, bookie: BookieId, ledger_id: LedgerId) -> None:
        """`bookie` deleted the ledger."""
        oracle = self.oracles[ledger_id]
        if not oracle.deleted:
            self.fail("only deleted ledgers are collected", f"ledger {ledger_id} on {bookie} (rule 28)")
        oracle.collected.add(bookie)

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

        `raised`: the version was since the metadata was read; `added_to`: the ledger was since its observation began.
        """
        oracle = self.oracles[ledger_id]
        if not raised:
            self.fail("a removal raises the version first", f"{bookie}, ledger {ledger_id} (rule 47)")
        if added_to:
            self.fail("an add cancels a removal", f"{bookie}, ledger {ledger_id} (rule 47)")
        if oracle.deleted:
            return
        if oracle.end is None:
            self.fail("only of closed ledgers", f"{bookie} removed {entries} of ledger {ledger_id} (rule 47)")
        owed = set(self.owed_by(oracle, bookie)).intersection(entries)
        if owed:
            self.fail("nothing that is owed is removed", f"{bookie}, ledger {ledger_id}: {owed} (rule 47)")
        for entry in entries:
            oracle.durable_ever.get(entry, set()).discard(bookie)

    def limbo_cleared(self, bookie: BookieId, ledger_id: LedgerId, held: Collection[EntryId]) -> None:
        """`bookie` vouches for the ledger again: it must hold everything it owes, or that its writer counts on (rule 29)."""
        oracle = self.oracles[ledger_id]
        if oracle.deleted:
            return
        if oracle.end is None:
            self.world.tally.state("limbo cleared before the close")
        owed = sorted(oracle.counted.get(bookie, ())) if oracle.end is None else self.owed_by(oracle, bookie)
        missing = [entry for entry in owed if entry not in held]
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
        oracle, disk = self.oracles[ledger_id], self.bookies[bookie]
        if oracle.deleted or oracle.end is None or disk.is_in_limbo(ledger_id):
            return
        fragment = oracle.metadata.fragment_of(first)
        owed = self.owed_by(oracle, bookie) if bookie in fragment.bookies else []
        lacks = [
            entry
            for entry in owed
            if oracle.metadata.fragment_of(entry) is fragment and not disk.holds_durably(ledger_id, entry)
        ]
        if lacks:
            self.fail("a successor has its share", f"{bookie} lacks {lacks} of ledger {ledger_id}")

    @staticmethod
    def owed_by(oracle: Oracle, bookie: BookieId) -> list[EntryId]:
        """The entries of a closed ledger that metadata places on `bookie`."""
        assert oracle.end is not None
        return [
            entry
            for first, last, stripe in oracle.metadata.stripes_of(bookie)
            for entry in range(first, (oracle.end if last is None else last) + 1)
            if stripe.holds(entry)
        ]

    def nothing_is_under_replicated(self, began_us: int) -> None:
        """An auditor reported so after a cycle from `began_us` on: all ledgers were closed, and the last fault was over."""
        left = self.under_replicated(began_us)
        if left:
            self.fail("FullyReplicated is true when it is said", "; ".join(left))

    def under_replicated(self, reported_us: int | None = None) -> list[str]:
        """What some bookie owes of a closed ledger and does not hold, or cannot vouch for; in words.

        `reported_us`: as bookies reported from then on. What they have accepted and not synced yet is in their listings; one
        that a repair names since may be in limbo still, with all that it owes.
        """
        found = []
        for ledger_id, oracle in self.oracles.items():
            if oracle.deleted or oracle.end is None:
                continue
            for bookie in sorted(oracle.metadata.bookies()):
                disk = self.bookies[bookie]
                holds = disk.holds_durably if reported_us is None else disk.holds
                is_excused = reported_us is not None and (
                    disk.vouches(ledger_id) or oracle.changed_us >= reported_us
                )
                if disk.is_in_limbo(ledger_id) and not is_excused:
                    found.append(f"{bookie} is in limbo for ledger {ledger_id}")
                lacks = [entry for entry in self.owed_by(oracle, bookie) if not holds(ledger_id, entry)]
                if lacks:
                    found.append(f"{bookie} lacks {lacks} of ledger {ledger_id}")
        return found

    def disks_changed(self) -> None:
        """Some disk lost something."""
        for oracle in self.oracles.values():
            self.acked_entries_are_readable(oracle)

    def acked_entries_are_readable(self, oracle: Oracle) -> None:
        """Every acknowledged entry is on the disk of a bookie where metadata sends readers."""
        if oracle.deleted:
            return
        metadata, ledger_id = oracle.metadata, oracle.metadata.ledger_id
        for entry in range(oracle.acked + 1):
            ensemble = metadata.fragment_of(entry).bookies
            for position in write_set(metadata.quorum, entry):
                if self.bookies[ensemble[position]].holds_durably(ledger_id, entry):
                    break
            else:
                self.fail(
                    "AllAckedEntriesAreReadable",
                    f"entry {entry} of ledger {ledger_id} is on none of {ensemble} any more",
                )
