"""Reading the LAC once: how far a reader may read a ledger that somebody else writes.

`LacReader` asks the whole last ensemble that metadata names now (rule 59), and is done when the answers meet every ack
quorum: the highest LAC among them is then at least that of every add that was acknowledged before (except for the last
few, whose LAC no frame has carried yet). A bookie in limbo proves nothing (rule 29). tail.py follows the LAC.
"""

from dataclasses import dataclass
from typing import assert_never

from daybook.core.effects import LacEffect, LacKnown, MetadataKnown, ReadFailed, ReadMetadata, SendLacRead
from daybook.core.errors import (
    Code,
    DaybookError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughReplicasError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    LacAnswered,
    LacEvent,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ids import NO_ENTRY, BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds
from daybook.core.quorum import covers_every_write_set


@dataclass(frozen=True, slots=True)
class LacPolicy:
    """How patiently a LAC is asked for."""

    metadata_wait_ms: int = 2_000
    """How long a lenient reader waits for the metadata before it asks the bookies that it knows."""


class LacReader:
    """Reads the LAC once; ends with `LacKnown` or `ReadFailed`.

    It reads the metadata first, because the bookies of an earlier ensemble would answer in good faith with a LAC that is
    out of date (rule 59); `is_new`: `metadata` was read just now. A `lenient` reader takes any answer where too few bookies
    answer for certainty, and the ensemble that it knows where the metadata cannot be read; the LAC may then be too low.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        lenient: bool = False,
        is_new: bool = False,
        policy: LacPolicy | None = None,
        now_ms: int = 0,
    ) -> None:
        self.metadata = metadata
        self.policy = policy or LacPolicy()
        self.is_done = False
        self._lenient = lenient
        self._is_new = is_new
        self._give_up_ms = now_ms + self.policy.metadata_wait_ms
        self._ids = RequestIds()
        self._metadata_request = 0
        self._pending: dict[int, int] = {}
        self._answered = 0
        self._lac = NO_ENTRY
        self._refusals: dict[BookieId, Code] = {}

    def start(self) -> list[LacEffect]:
        """The first request; for a closed ledger the answer, since a close is final."""
        if self._is_new or self.metadata.is_closed:
            return self._ask()
        self._metadata_request = self._ids.next()
        return [ReadMetadata(self._metadata_request)]

    def step(self, event: LacEvent) -> list[LacEffect]:
        """Take an event; answers that nobody waits for are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case MetadataRead(request_id, metadata):
                return self._metadata_read(metadata) if request_id == self._metadata_request else []
            case MetadataUnreadable(request_id):
                return self._metadata_unreadable() if request_id == self._metadata_request else []
            case LacAnswered():
                self._take(event)
                return self._judge()
            case BookieFailed(bookie, code):
                self._lose(bookie, code)
                return self._judge()
            case Tick(now_ms):
                return self._tick(now_ms)
            case BookiesChanged():
                return []
            case _:
                assert_never(event)

    def _tick(self, now_ms: int) -> list[LacEffect]:
        """A lenient reader waits for metadata only so long."""
        is_late = self._metadata_request and self._lenient and now_ms >= self._give_up_ms
        return self._ask() if is_late else []

    def _lose(self, bookie: BookieId, code: Code) -> None:
        """Whatever `bookie` was asked has no answer."""
        bookies = self.metadata.last_fragment.bookies
        for request in [r for r, position in self._pending.items() if bookies[position] == bookie]:
            self._take(LacAnswered(bookie, request, code))

    def _metadata_unreadable(self) -> list[LacEffect]:
        if self._lenient:
            return self._ask()
        return self._fail(
            MetadataUnavailableError(
                f"the LAC of ledger {self.metadata.ledger_id} is not known while its metadata cannot be read: its ensemble may "
                "have changed; try again later, or be lenient"
            )
        )

    def _metadata_read(self, metadata: LedgerMetadata | None) -> list[LacEffect]:
        if metadata is None:
            return self._fail(
                NoSuchLedgerError(
                    f"ledger {self.metadata.ledger_id} was deleted while it was open for reading"
                )
            )
        is_news = metadata != self.metadata
        self.metadata = metadata
        known: list[LacEffect] = [MetadataKnown(metadata)] if is_news else []
        return known + self._ask()

    def _ask(self) -> list[LacEffect]:
        """Ask the last ensemble; a closed ledger needs nobody."""
        self._metadata_request = 0
        if self.metadata.is_closed:
            self.is_done = True
            return [LacKnown(self.metadata.last_entry, self.metadata)]
        fragment = self.metadata.last_fragment
        self._lac = fragment.first_entry - 1
        self._pending = {self._ids.next(): position for position in range(len(fragment.bookies))}
        return [
            SendLacRead(fragment.bookies[position], request) for request, position in self._pending.items()
        ]

    def _take(self, event: LacAnswered) -> None:
        position = self._pending.pop(event.request_id, None)
        if position is None:
            return
        if event.code is Code.OK and not event.limbo:
            self._answered |= 1 << position
            self._lac = max(self._lac, event.last_add_confirmed)
        else:
            self._refusals[event.bookie] = Code.LIMBO if event.code is Code.OK else event.code

    def _judge(self) -> list[LacEffect]:
        if self._metadata_request:
            return []
        if covers_every_write_set(self.metadata.quorum, self._answered):
            self.is_done = True
        elif not self._pending:
            self.is_done = True
            if not (self._lenient and self._answered):
                return self._fail(self._why())
        return [LacKnown(self._lac)] if self.is_done else []

    def _why(self) -> DaybookError:
        codes = ", ".join(f"{bookie}: {code.name}" for bookie, code in sorted(self._refusals.items()))
        what = f"the LAC of ledger {self.metadata.ledger_id} cannot be read ({codes})"
        if Code.UNAUTHORIZED in self._refusals.values():
            return UnauthorizedError(f"{what}: check the password")
        return NotEnoughReplicasError(f"{what}: bring the bookies back, or try again later")

    def _fail(self, error: DaybookError) -> list[LacEffect]:
        self.is_done = True
        return [ReadFailed(error)]
