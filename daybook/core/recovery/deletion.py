"""What comes before a ledger is deleted, or closed, without recovery: nobody can be acknowledged on it any more (rule 61).

An unclosed ledger whose disks are lost cannot be recovered, so recovery cannot be what keeps its old writer out
(rule 20). Instead, the metadata leaves OPEN by compare-and-set, so that the writer can name no other bookie; then its last
ensemble is fenced, bookies in limbo too. If the fences cover every write set, no ack quorum is left (rule 1). If not,
each bookie that has not fenced must be lost, which has one meaning here: not registered for longer than the cluster's
delay (rule 33). One that is registered and does not fence could acknowledge, so the deletion is refused. The deletion
itself is a compare-and-set against the version that comes out of this (rule 56).

A close without recovery comes after the same, and hears every bookie that is not lost: the ledger ends at the highest LAC that
one of them knows, where all before it was certainly acknowledged. Unless a bookie is lost or in limbo it is refused, since
then a recovery loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from daybook.core.effects import DeletionEffect, DeletionReady, DeletionRefused
from daybook.core.errors import Code, DaybookError, DeletionRefusedError, NoSuchLedgerError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    DeletionEvent,
    FenceAnswered,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.update import MetadataUpdate
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.fencing import Fencing


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    """How patiently bookies are fenced before a ledger is deleted without recovery."""

    lost_delay_ms: int
    """How long a bookie must be unregistered to count as lost (rule 33): the cluster's delay."""
    patience_ms: int = 15_000
    """How long a registered bookie may fail to fence before the deletion is refused."""
    retry_ms: int = 500
    """The pause before bookies, or the metadata, are asked again."""


class DeletionFence:
    """Makes one ledger unwritable; ends with `DeletionReady` or `DeletionRefused`. A closed ledger is ready as it is."""

    def __init__(
        self,
        ledger_id: LedgerId,
        *,
        policy: DeletionPolicy,
        bookies: Mapping[BookieId, BookieInfo],
        now_ms: int = 0,
        hears_all: bool = False,
    ) -> None:
        """`hears_all`: for a close. Who is registered must fence, also where other fences suffice, and somebody must be lost."""
        self.ledger_id = ledger_id
        self.policy = policy
        self._hears_all = hears_all
        self.is_done = False
        self._bookies = bookies
        self._now_ms = now_ms
        self._out: list[DeletionEffect] = []
        self._ids = RequestIds()
        self._metadata = MetadataUpdate(policy.retry_ms, self._ids)
        self._marked: LedgerMetadata | None = None
        """The metadata as it is stored, IN_RECOVERY."""
        self._version = -1
        self._fences: Fencing | None = None
        self._confirmed = (-1, 0)
        """The highest LAC, with its length, that a bookie has told in any round of fences."""
        self._fence_again = RetryTimer(policy.retry_ms)
        self._fencing_since_ms = now_ms
        self._unregistered_since_ms: dict[BookieId, int] = {}

    def start(self) -> list[DeletionEffect]:
        """Read the metadata."""
        self._metadata.read(self._out)
        return self._take_out()

    def step(self, event: DeletionEvent) -> list[DeletionEffect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case MetadataRead():
                self._metadata_read(event)
            case MetadataUnreadable():
                self._metadata.unreadable(event, self._now_ms)
            case CasAnswered():
                stored = self._metadata.cas_answered(event, self._out)
                if stored is not None:
                    self._begin_to_fence(stored, event.version)
            case FenceAnswered() | BookieFailed():
                self._fencing(event)
            case BookiesChanged(bookies):
                self._bookies = bookies
                self._note_who_is_unregistered()
            case Tick(now_ms):
                self._tick(now_ms)
            case _:
                assert_never(event)
        return self._take_out()

    def _take_out(self) -> list[DeletionEffect]:
        out, self._out = self._out, []
        return out

    def _tick(self, now_ms: int) -> None:
        self._now_ms = max(now_ms, self._now_ms)
        self._metadata.tick(self._now_ms, self._out)
        if self._fence_again.fires(self._now_ms):
            assert self._marked is not None
            assert self._fences is not None
            self._fence(self._marked, self._fences.fenced)

    def _metadata_read(self, event: MetadataRead) -> None:
        if not self._metadata.was_read(event):
            return
        metadata, version = event.metadata, event.version
        if metadata is None:
            self._refuse(NoSuchLedgerError(f"ledger {self.ledger_id} is not in the metadata"))
        elif metadata.is_closed:
            self._ready(metadata, version)
        elif metadata.state is LedgerState.IN_RECOVERY:
            self._begin_to_fence(metadata, version)
        else:
            self._metadata.propose(metadata.in_recovery(), version, self._out)

    # Fencing

    def _begin_to_fence(self, marked: LedgerMetadata, version: int) -> None:
        self._marked = marked
        self._version = version
        self._fencing_since_ms = self._now_ms
        self._note_who_is_unregistered()
        self._fence(marked, 0)

    def _note_who_is_unregistered(self) -> None:
        """Since when each bookie of the ensemble has not been registered."""
        if self._marked is None:
            return
        for bookie in self._marked.last_fragment.bookies:
            if bookie in self._bookies:
                self._unregistered_since_ms.pop(bookie, None)
            else:
                self._unregistered_since_ms.setdefault(bookie, self._now_ms)

    def _fence(self, marked: LedgerMetadata, fenced: int) -> None:
        """Fence the whole ensemble, for the first time or again."""
        self._fences = Fencing(marked, self._ids, fenced)
        self._out += self._fences.start()

    def _fencing(self, event: FenceAnswered | BookieFailed) -> None:
        fences, marked = self._fences, self._marked
        if fences is None or marked is None or not fences.step(event):
            return
        self._confirmed = max(self._confirmed, fences.starting_point())
        if fences.is_complete() and not self._hears_all:
            self._ready(marked, self._version)
        elif not fences.is_asking:
            self._judge(fences, marked)

    def _judge(self, fences: Fencing, marked: LedgerMetadata) -> None:
        """Everybody has answered or failed, and the fences do not suffice, or not for a close: are the others lost?"""
        bookies = marked.last_fragment.bookies
        unfenced = tuple(b for position, b in enumerate(bookies) if not fences.fenced >> position & 1)
        if not unfenced and not fences.in_limbo:
            self._refuse(self._nothing_is_lost())
            return
        if all(map(self._is_lost, unfenced)):
            self._ready(marked, self._version, unfenced)
            return
        registered = [bookie for bookie in unfenced if bookie in self._bookies]
        if registered and self._now_ms - self._fencing_since_ms >= self.policy.patience_ms:
            self._refuse(self._why(registered, fences.refusals))
        else:
            self._fence_again.start(self._now_ms)

    def _is_lost(self, bookie: BookieId) -> bool:
        since_ms = self._unregistered_since_ms.get(bookie)
        return since_ms is not None and self._now_ms - since_ms >= self.policy.lost_delay_ms

    def _why(self, registered: list[BookieId], refusals: Mapping[BookieId, Code]) -> DaybookError:
        codes = ", ".join(f"{b}: {refusals.get(b, Code.TIMEOUT).name}" for b in registered)
        return DeletionRefusedError(
            f"ledger {self.ledger_id} is not ended: bookies that are registered do not fence it ({codes}), and its writer "
            "could still be acknowledged by them; let them answer, or stop those that are broken, and try again"
        )

    def _nothing_is_lost(self) -> DaybookError:
        return DeletionRefusedError(
            f"ledger {self.ledger_id} is not closed without a recovery: all its bookies answer, and none has lost its disk; recover it"
        )

    # The end

    def _ready(self, metadata: LedgerMetadata, version: int, unfenced: tuple[BookieId, ...] = ()) -> None:
        self.is_done = True
        self._out.append(DeletionReady(metadata, version, unfenced, *self._confirmed))

    def _refuse(self, error: DaybookError) -> None:
        self.is_done = True
        self._out.append(DeletionRefused(error))
