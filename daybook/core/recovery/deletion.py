"""What comes before a ledger is deleted without recovery: nobody can be acknowledged on it any more (rule 61).

An unclosed ledger whose disks are lost cannot be recovered, so recovery cannot be what keeps its old writer out
(rule 20). Instead: the metadata leaves OPEN by compare-and-set, so that the writer can name no other bookie; then its last
ensemble is fenced, a bookie in limbo too. If the fences cover every write set, no ack quorum is left (rule 1). If not,
each bookie that has not fenced must be lost, which has one meaning here: not registered for longer than the cluster's
delay (rule 33). One that is registered and does not fence could acknowledge, so the deletion is refused. The deletion
itself is a compare-and-set against the version that comes out of this (rule 56).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from daybook.core.effects import CasMetadata, DeletionReady, DeletionRefused, Effect, ReadMetadata
from daybook.core.errors import Code, DaybookError, DeletionRefusedError, NoSuchLedgerError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.fencing import FenceRound


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    """How patiently bookies are fenced before a ledger is deleted without recovery."""

    lost_delay_ms: int
    """How long a bookie must be away to count as lost (rule 33): the cluster's delay."""
    patience_ms: int = 15_000
    """How long a registered bookie may fail to fence before the deletion is refused."""
    retry_ms: int = 500
    """The pause before bookies, or the metadata, are asked again."""


class DeletionFence:
    """Makes one ledger unwritable: `start()`, then `step(event)`; ends with `DeletionReady` or `DeletionRefused`.

    A ledger that is closed is ready as it is.
    """

    def __init__(
        self,
        ledger_id: LedgerId,
        *,
        policy: DeletionPolicy,
        bookies: Mapping[BookieId, BookieInfo],
        now_ms: int = 0,
    ) -> None:
        self.ledger_id = ledger_id
        self.policy = policy
        self.is_done = False
        self._bookies = bookies
        self._now_ms = now_ms
        self._out: list[Effect] = []
        self._ids = RequestIds()
        self._metadata_request = 0
        self._marked: LedgerMetadata | None = None
        """The metadata IN_RECOVERY: proposed while a compare-and-set is under way, stored once one was done."""
        self._version = -1
        self._fences: FenceRound | None = None
        self._asked_since_ms = now_ms
        self._retry = RetryTimer(policy.retry_ms)
        self._refusals: dict[BookieId, Code] = {}
        self._away_since_ms: dict[BookieId, int] = {}

    # The driver's side

    def start(self) -> list[Effect]:
        """The first effects."""
        self._read_metadata()
        return self._take_out()

    def step(self, event: Event) -> list[Effect]:
        """Take an event; answers to requests that no longer matter are dropped (rule 18)."""
        if not self.is_done:
            self._dispatch(event)
        return self._take_out()

    def _take_out(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _dispatch(self, event: Event) -> None:
        match event:
            case MetadataRead() | MetadataUnreadable() | CasAnswered():
                self._metadata_answered(event)
            case FenceAnswered():
                self._fence_answered(event)
            case BookieFailed(bookie, code):
                self._bookie_failed(bookie, code)
            case BookiesChanged(bookies):
                self._bookies = bookies
                self._note_who_is_away()
            case Tick(now_ms):
                self._tick(now_ms)
            case _:
                msg = (
                    f"a deletion has no use for {type(event).__name__}: a driver sent it to the wrong machine"
                )
                raise AssertionError(msg)

    def _tick(self, now_ms: int) -> None:
        self._now_ms = max(now_ms, self._now_ms)
        if not self._retry.fires(self._now_ms):
            return
        if self._fences is None:
            self._read_metadata()
        else:
            self._ask(self._fences.fenced)

    # Metadata

    def _read_metadata(self) -> None:
        self._metadata_request = self._ids.next()
        self._out.append(ReadMetadata(self._metadata_request))

    def _metadata_answered(self, event: MetadataRead | MetadataUnreadable | CasAnswered) -> None:
        if event.request_id != self._metadata_request:
            return
        self._metadata_request = 0
        match event:
            case MetadataUnreadable():
                self._retry.start(self._now_ms)
            case MetadataRead(_, metadata, version):
                self._metadata_read(metadata, version)
            case CasAnswered(_, CasOutcome.DONE, version):
                self._begin_to_fence(version)
            case _:
                self._read_metadata()  # the compare-and-set lost, or nobody knows

    def _metadata_read(self, metadata: LedgerMetadata | None, version: int) -> None:
        if metadata is None:
            self._refuse(NoSuchLedgerError(f"ledger {self.ledger_id} is not in the metadata"))
        elif metadata.is_closed:
            self._ready(metadata, version, ())
        else:
            self._marked = metadata.in_recovery()
            if metadata.state is LedgerState.IN_RECOVERY:
                self._begin_to_fence(version)
            else:
                self._metadata_request = self._ids.next()
                self._out.append(CasMetadata(self._metadata_request, self._marked, version))

    # Fencing

    def _begin_to_fence(self, version: int) -> None:
        self._version = version
        self._asked_since_ms = self._now_ms
        self._note_who_is_away()
        self._ask(0)

    def _note_who_is_away(self) -> None:
        """Since when each bookie of the ensemble has been registered no more."""
        if self._marked is None:
            return
        for bookie in self._marked.last_fragment.bookies:
            if bookie in self._bookies:
                self._away_since_ms.pop(bookie, None)
            else:
                self._away_since_ms.setdefault(bookie, self._now_ms)

    def _ask(self, fenced: int) -> None:
        """Fence the whole ensemble (again); who has fenced stays fenced (rule 4)."""
        assert self._marked is not None
        self._fences = FenceRound(self._marked)
        self._fences.fenced = fenced
        self._refusals.clear()
        self._out += self._fences.ask(self._ids)

    def _fence_answered(self, event: FenceAnswered) -> None:
        fences = self._fences
        if fences is None or not fences.answer(event):
            return
        if event.code is not Code.OK:
            self._refusals[event.bookie] = event.code
        self._judge(fences)

    def _bookie_failed(self, bookie: BookieId, code: Code) -> None:
        """Whatever `bookie` was asked has no answer."""
        for request in self._fences.owed_by(bookie) if self._fences is not None else ():
            self._fence_answered(FenceAnswered(bookie, request, code))

    def _judge(self, fences: FenceRound) -> None:
        assert self._marked is not None
        if fences.is_complete():
            self._ready(self._marked, self._version, ())
            return
        if fences.is_asking:
            return
        bookies = self._marked.last_fragment.bookies
        unfenced = tuple(b for position, b in enumerate(bookies) if not fences.fenced >> position & 1)
        if all(map(self._is_lost, unfenced)):
            self._ready(self._marked, self._version, unfenced)
            return
        registered = [bookie for bookie in unfenced if bookie in self._bookies]
        if registered and self._now_ms - self._asked_since_ms >= self.policy.patience_ms:
            self._refuse(self._why(registered))
        else:
            self._retry.start(self._now_ms)

    def _is_lost(self, bookie: BookieId) -> bool:
        since_ms = self._away_since_ms.get(bookie)
        return since_ms is not None and self._now_ms - since_ms >= self.policy.lost_delay_ms

    def _why(self, registered: list[BookieId]) -> DaybookError:
        told = ", ".join(f"{b}: {self._refusals.get(b, Code.TIMEOUT).name}" for b in registered)
        return DeletionRefusedError(
            f"ledger {self.ledger_id} is not deleted: bookies that are registered do not fence it ({told}), and its writer "
            "could still be acknowledged by them; let them answer, or stop those that are broken, and try again"
        )

    # The end

    def _ready(self, metadata: LedgerMetadata, version: int, unfenced: tuple[BookieId, ...]) -> None:
        self.is_done = True
        self._out.append(DeletionReady(metadata, version, unfenced))

    def _refuse(self, error: DaybookError) -> None:
        self.is_done = True
        self._out.append(DeletionRefused(error))
