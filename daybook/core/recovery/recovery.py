"""Recovery: closes a ledger whose writer is gone, at an end that holds everything that was ever acknowledged.

The steps, each with the rule of docs/protocol.md that it keeps:

1. Mark the metadata IN_RECOVERY by compare-and-set, so that the writer can change nothing there (rule 11).
2. Fence the last fragment's bookies until no write set has an ack quorum left outside (fencing.py: rule 1, rule 3,
   rule 8), without waiting for the rest (rule 7).
3. Start from the highest LAC that metadata or a bookie that can vouch for it knows (rule 5, rule 29).
4. Read on from there with reads that fence (rule 2) until an entry is proved absent (replay.py, evidence.py: rule 6),
   and write what was found back (write_back.py: rule 10, rule 12).
   A bookie that fails is replaced within the ledger's pool (rule 69).
5. Of a ledger whose metadata was restored: ask every bookie of the cluster whether the next entry lies elsewhere (elsewhere.py:
   rule 68).
6. Close by compare-and-set, with recovery's own ensemble changes (rule 9).

Whatever proves nothing ends in RecoveryFailed: the ledger stays IN_RECOVERY and a later recovery begins anew. Recovery may
run many times and at the same time as others: one close wins, and every recovery returns that one (rule 11). This is
why a recovery that must give up reads the metadata once more: somebody else may have closed the ledger meanwhile.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, assert_never

from daybook.core.effects import Recovered, RecoveryEffect, RecoveryFailed
from daybook.core.errors import (
    Code,
    DaybookError,
    LedgerChangedError,
    NoSuchLedgerError,
    RecoveryFailedError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    FenceAnswered,
    FrameAcked,
    FrameFailed,
    MetadataRead,
    MetadataUnreadable,
    ReadAnswered,
    RecoveryEvent,
    Tick,
)
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.update import MetadataUpdate
from daybook.core.machine import RequestIds
from daybook.core.placement.among import in_pool
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.recovery.elsewhere import Elsewhere
from daybook.core.recovery.fencing import Fencing, describe_codes
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.replay import Replay, ReplayEvent
from daybook.core.recovery.write_back import Spares


class Phase(Enum):
    """Where a recovery is."""

    READING = "reading the metadata"
    MARKING = "marking the ledger IN_RECOVERY"
    FENCING = "fencing"
    REPLAYING = "reading what may have been written, and writing it back"
    SEARCHING = "asking every bookie for the next entry, because the metadata was restored"
    CLOSING = "closing"
    FAILING = "checking whether somebody else has closed the ledger, before giving up"
    DONE = "done"


TRANSITIONS: Final[Mapping[tuple[Phase, Phase], str]] = {
    (Phase.READING, Phase.MARKING): "it is OPEN",
    (Phase.READING, Phase.FENCING): "it is IN_RECOVERY already",
    (
        Phase.READING,
        Phase.DONE,
    ): "it is closed, deleted, or not at the version that the recovery is meant for",
    (Phase.MARKING, Phase.MARKING): "its metadata changed first",
    (Phase.MARKING, Phase.FENCING): "it is marked",
    (Phase.MARKING, Phase.DONE): "somebody else closed, deleted or changed it",
    (Phase.FENCING, Phase.REPLAYING): "no write set has an ack quorum left (rule 1)",
    (Phase.FENCING, Phase.FAILING): "too few bookies can be fenced (rule 8)",
    (Phase.REPLAYING, Phase.CLOSING): "the end is proved, and Qa bookies hold all before it",
    (Phase.REPLAYING, Phase.FAILING): "an entry cannot be decided, or not be written back (rule 6)",
    (Phase.REPLAYING, Phase.SEARCHING): "the same, of a ledger whose metadata was restored",
    (Phase.SEARCHING, Phase.CLOSING): "no next entry was acknowledged anywhere (rule 68)",
    (
        Phase.SEARCHING,
        Phase.FAILING,
    ): "the next entry is, or may be, where the metadata does not say (rule 68)",
    (Phase.CLOSING, Phase.CLOSING): "a repair of an older fragment came first (rule 19)",
    (Phase.CLOSING, Phase.FAILING): "the fragment that was recovered has changed",
    (Phase.CLOSING, Phase.DONE): "it is closed, here or by somebody else (rule 11), or deleted",
    (Phase.FAILING, Phase.DONE): "somebody else closed or deleted it, or the recovery has failed",
}


class LedgerRecovery:
    """Recovers one ledger; ends with `Recovered` or `RecoveryFailed`.

    The driver carries out the effects with the ledger's key, and answers every request, with a failure where no
    answer comes in time.
    """

    def __init__(
        self,
        ledger_id: LedgerId,
        *,
        placement: PlacementPolicy,
        rng: RandomSource,
        bookies: Mapping[BookieId, BookieInfo],
        policy: RecoveryPolicy | None = None,
        expected_version: int | None = None,
        now_ms: int = 0,
    ) -> None:
        """`expected_version`: of the metadata that the recovery is meant for. At any other it does nothing (rule 56)."""
        self.ledger_id = ledger_id
        self.policy = policy or RecoveryPolicy()
        self.phase = Phase.READING
        self.started_with: LedgerMetadata | None = None
        """The metadata whose last ensemble is fenced and read (rule 9)."""
        self.version = -1
        self.start_lac: EntryId = NO_ENTRY
        self._placement = placement
        self._spares = Spares(placement, rng, bookies)
        self._expected_version = expected_version
        self._may_be_marked = False
        """A mark had no answer: the version after the expected one may be this recovery's own."""
        self._now_ms = now_ms
        self._out: list[RecoveryEffect] = []
        self._ids = RequestIds()
        self._metadata = MetadataUpdate(self.policy.metadata_retry_ms, self._ids)
        self._fences: Fencing | None = None
        """While it is fencing. Once that is decided, nobody waits for the rest (rule 7)."""
        self._replay: Replay | None = None
        self._elsewhere: Elsewhere | None = None
        """While it is searching."""
        self._failure: DaybookError | None = None

    @property
    def is_done(self) -> bool:
        """Whether the last effect was `Recovered` or `RecoveryFailed`."""
        return self.phase is Phase.DONE

    def start(self) -> list[RecoveryEffect]:
        """Read the metadata."""
        self._metadata.read(self._out)
        return self._take_out()

    def step(self, event: RecoveryEvent) -> list[RecoveryEffect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case MetadataRead():
                self._metadata_answered(event)
            case MetadataUnreadable():
                self._metadata_unreadable(event)
            case CasAnswered():
                self._cas_answered(event)
            case FenceAnswered():
                self._fencing(event)
            case ReadAnswered():
                self._replaying(event)
                self._searching(event)
            case FrameAcked() | FrameFailed():
                self._replaying(event)
            case BookieFailed():
                self._fencing(event)
                self._replaying(event)
                self._searching(event)
            case BookiesChanged(bookies):
                self._spares.bookies = bookies
            case Tick(now_ms):
                self._now_ms = max(now_ms, self._now_ms)
                self._metadata.tick(self._now_ms, self._out)
                self._replaying(event)
            case _:
                assert_never(event)
        return self._take_out()

    def _take_out(self) -> list[RecoveryEffect]:
        out, self._out = self._out, []
        return out

    def _go_to(self, phase: Phase) -> None:
        assert (self.phase, phase) in TRANSITIONS, f"{self.phase} to {phase}"
        self.phase = phase

    # Metadata

    def _cas_answered(self, event: CasAnswered) -> None:
        stored = self._metadata.cas_answered(event, self._out)
        if stored is None:
            self._may_be_marked |= event.outcome is CasOutcome.UNKNOWN
            return
        self.version = event.version
        if self.phase is Phase.MARKING:
            self._fence(stored)
        else:
            assert self.phase is Phase.CLOSING
            self._recovered(stored)

    def _metadata_unreadable(self, event: MetadataUnreadable) -> None:
        if self._metadata.unreadable(event, self._now_ms) and self.phase is Phase.FAILING:
            self._finish_failing()

    def _metadata_answered(self, event: MetadataRead) -> None:
        """Decide what follows, from the start or after a compare-and-set that lost or had no answer."""
        if not self._metadata.was_read(event):
            return
        metadata = event.metadata
        if metadata is None:
            self._failure = NoSuchLedgerError(
                f"ledger {self.ledger_id} is not in the metadata: it was deleted, or never created"
            )
            self._finish_failing()
        elif not self._is_meant_for(metadata, event.version):
            self._failure = LedgerChangedError(
                f"the metadata of ledger {self.ledger_id} is at version {event.version}, and the recovery was meant for version "
                f"{self._expected_version}: nothing was done; read it again and decide anew"
            )
            self._finish_failing()
        elif metadata.is_closed:
            self._recovered(metadata)
        elif self.phase is Phase.FAILING:
            self._finish_failing()
        elif self.phase is Phase.CLOSING:
            self._close_again(metadata, event.version)
        else:
            self._mark(metadata, event.version)

    def _is_meant_for(self, metadata: LedgerMetadata, version: int) -> bool:
        """Whether the recovery may begin, or has begun, with this metadata."""
        if self._expected_version is None or self.phase not in (Phase.READING, Phase.MARKING):
            return True
        is_own_mark = self._may_be_marked and metadata.state is LedgerState.IN_RECOVERY
        return version == self._expected_version or (is_own_mark and version == self._expected_version + 1)

    def _mark(self, metadata: LedgerMetadata, version: int) -> None:
        self.version = version
        if metadata.state is LedgerState.IN_RECOVERY:
            self._fence(metadata)
        else:
            self._go_to(Phase.MARKING)
            self._metadata.propose(metadata.in_recovery(), version, self._out)

    def _recovered(self, metadata: LedgerMetadata) -> None:
        """The ledger is closed, by this recovery or by somebody else: that close is the one that counts (rule 11)."""
        self._go_to(Phase.DONE)
        self._out.append(Recovered(metadata))

    # Fencing

    def _fence(self, marked: LedgerMetadata) -> None:
        self._go_to(Phase.FENCING)
        self.started_with = marked
        self._spares.placement = in_pool(marked.pool, self._placement)
        self._fences = Fencing(marked, self._ids)
        self._out += self._fences.start()

    def _fencing(self, event: FenceAnswered | BookieFailed) -> None:
        fences = self._fences
        if fences is None or not fences.step(event):
            return
        if fences.is_complete():
            self._begin_to_replay(fences)
        elif fences.is_hopeless():
            assert self.started_with is not None
            self._fail(
                f"too few bookies could be fenced: {self.started_with.quorum.coverage} of every write set of "
                f"{', '.join(self.started_with.last_fragment.bookies)} are needed ({describe_codes(fences.refusals)})",
                fences.refusals,
            )

    # Replaying

    def _begin_to_replay(self, fences: Fencing) -> None:
        assert self.started_with is not None
        self._go_to(Phase.REPLAYING)
        self._fences = None
        self._replay = Replay(
            self.started_with,
            fences,
            spares=self._spares,
            ids=self._ids,
            policy=self.policy,
            now_ms=self._now_ms,
        )
        self.start_lac = self._replay.start_lac
        self._out += self._replay.start()

    def _replaying(self, event: ReplayEvent) -> None:
        replay = self._replay
        if self.phase is not Phase.REPLAYING or replay is None:
            return
        self._out += replay.step(event)
        if replay.failure is not None:
            self._fail(replay.failure, replay.refusals)
        elif replay.is_complete:
            assert self.started_with is not None
            if self.started_with.restored_among:
                self._search(self.started_with, replay.write_back.recovered_to)
            else:
                self._close(self.started_with)

    # Searching

    def _search(self, marked: LedgerMetadata, end: EntryId) -> None:
        self._go_to(Phase.SEARCHING)
        self._elsewhere = Elsewhere(marked, end, self._ids)
        self._out += self._elsewhere.start()

    def _searching(self, event: ReadAnswered | BookieFailed) -> None:
        elsewhere = self._elsewhere
        if self.phase is not Phase.SEARCHING or elsewhere is None:
            return
        elsewhere.step(event)
        if not elsewhere.is_decided:
            return
        assert self.started_with is not None
        self._elsewhere = None
        refusal = elsewhere.refusal()
        if refusal:
            self._fail(refusal, elsewhere.silent)
        else:
            self._close(self.started_with)

    # The end

    def _close(self, metadata: LedgerMetadata) -> None:
        """Close the ledger that `metadata` describes."""
        self._go_to(Phase.CLOSING)
        self._metadata.propose(self._closed_from(metadata), self.version, self._out)

    def _closed_from(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """`metadata` with recovery's own ensemble changes, closed (rule 9)."""
        assert self._replay is not None
        write_back = self._replay.write_back
        for fragment in write_back.changes:
            metadata = metadata.with_ensemble(fragment.first_entry, fragment.length_before, fragment.bookies)
        return metadata.closed(write_back.recovered_to, write_back.length)

    def _close_again(self, metadata: LedgerMetadata, version: int) -> None:
        """The close lost: a repair of an older fragment may be kept (rule 19), nothing else explains it."""
        assert self.started_with is not None
        assert self._replay is not None
        if metadata.last_fragment != self.started_with.last_fragment:
            self._fail("the fragment that was recovered has changed in the metadata", self._replay.refusals)
            return
        self.version = version
        self._close(metadata)

    def _fail(self, why: str, refusals: Mapping[BookieId, Code]) -> None:
        """Give up, unless somebody else has closed the ledger meanwhile, or deleted it."""
        message = (
            f"recovery of ledger {self.ledger_id} cannot go on: {why}; it stays IN_RECOVERY, try again later"
        )
        if Code.UNAUTHORIZED in refusals.values():
            self._failure = UnauthorizedError(f"{message}; check the password")
        else:
            self._failure = RecoveryFailedError(message)
        self._go_to(Phase.FAILING)
        self._fences = None
        self._metadata.read(self._out)

    def _finish_failing(self) -> None:
        assert self._failure is not None
        self._go_to(Phase.DONE)
        self._out.append(RecoveryFailed(self._failure))
