"""Following the LAC of an open ledger to its close.

`LacTail` long-polls one bookie at a time, the nearest first, and the next one when that fails or has no news. It reads the
metadata when it begins and whenever polls bring nothing, because the bookies that it knows may have been replaced
(rule 59). For one reader the LAC never goes back; when metadata shows the ledger closed, the close is what counts, and nothing
beyond it was ever shown (rule 12). A bookie in limbo knows nothing (rule 29).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from daybook.core.effects import LacEffect, LacKnown, MetadataKnown, ReadFailed, ReadMetadata, SendLacRead
from daybook.core.errors import Code, DaybookError, NoSuchLedgerError, UnauthorizedError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    LacAnswered,
    LacEvent,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer


@dataclass(frozen=True, slots=True)
class TailPolicy:
    """How patiently a ledger is followed."""

    poll_ms: int = 5_000
    """How long a bookie may hold a long poll."""
    metadata_ms: int = 1_000
    """Metadata is read again when polls brought nothing for this long, at most this often."""
    retry_ms: int = 200
    """The pause after every bookie of the ensemble failed."""


class LacTail:
    """Follows the LAC of an open ledger.

    It gives `LacKnown` for every rise, the last one with the metadata of the close, and `ReadFailed` if the ledger is deleted
    or the password is wrong. `rank` says how far a bookie is: smaller is nearer.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        last_add_confirmed: EntryId = NO_ENTRY,
        rank: Callable[[BookieId], int] | None = None,
        policy: TailPolicy | None = None,
        now_ms: int = 0,
    ) -> None:
        self.metadata = metadata
        self.policy = policy or TailPolicy()
        self.last_add_confirmed = last_add_confirmed
        self.is_done = False
        self._rank = rank or (lambda _: 0)
        self._known_fenced = False
        self._now_ms = now_ms
        self._out: list[LacEffect] = []
        self._ids = RequestIds()
        self._poll_request = 0
        self._polled: BookieId = ""
        self._turn = 0
        self._failures = 0
        self._retry = RetryTimer(self.policy.retry_ms)
        self._metadata_request = 0
        self._metadata_due_ms = now_ms + self.policy.metadata_ms

    def start(self) -> list[LacEffect]:
        """The first poll, and a read of the metadata, which may have changed; for a closed ledger the end."""
        self._learn(self.metadata)
        if not self.is_done:
            self._read_metadata()
        return self._take_out()

    def step(self, event: LacEvent) -> list[LacEffect]:
        """Take an event; answers that nobody waits for are dropped (rule 18)."""
        if self.is_done:
            return []
        match event:
            case LacAnswered():
                self._answered(event)
            case BookieFailed(bookie, code):
                if self._poll_request and bookie == self._polled:
                    self._answered(LacAnswered(bookie, self._poll_request, code))
            case MetadataRead(request_id, metadata):
                if request_id == self._metadata_request:
                    self._metadata_read(metadata)
            case MetadataUnreadable(request_id):
                self._metadata_unreadable(request_id)
            case Tick(now_ms):
                self._tick(now_ms)
            case BookiesChanged():
                pass
            case _:
                assert_never(event)
        return self._take_out()

    def _take_out(self) -> list[LacEffect]:
        out, self._out = self._out, []
        return out

    # Metadata

    def _learn(self, metadata: LedgerMetadata) -> None:
        """Follow what metadata says: a close ends the tail, a new fragment confirms everything before it."""
        moved = metadata.last_fragment != self.metadata.last_fragment
        if metadata != self.metadata and not metadata.is_closed:
            self._out.append(MetadataKnown(metadata))
        self.metadata = metadata
        if metadata.is_closed:
            assert self.last_add_confirmed <= metadata.last_entry, (
                "a LAC beyond the close was shown (rule 12)"
            )
            self.last_add_confirmed = metadata.last_entry
            self.is_done = True
            self._out.append(LacKnown(metadata.last_entry, metadata))
            return
        self._rise(metadata.last_fragment.first_entry - 1)
        if moved or not self._poll_request:
            self._turn = self._failures = 0
            self._poll()

    def _metadata_unreadable(self, request_id: int) -> None:
        """It is read again when it is due."""
        if request_id == self._metadata_request:
            self._metadata_request = 0

    def _metadata_read(self, metadata: LedgerMetadata | None) -> None:
        self._metadata_request = 0
        self._metadata_due_ms = self._now_ms + self.policy.metadata_ms
        if metadata is None:
            self._fail(
                NoSuchLedgerError(f"ledger {self.metadata.ledger_id} was deleted while it was followed")
            )
        else:
            self._learn(metadata)

    def _read_metadata(self) -> None:
        if not self._metadata_request:
            self._metadata_request = self._ids.next()
            self._metadata_due_ms = self._now_ms + self.policy.metadata_ms
            self._out.append(ReadMetadata(self._metadata_request))

    # Polls

    def _poll(self) -> None:
        """Long-poll the bookie whose turn it is; an earlier poll is given up."""
        bookies = sorted(self.metadata.last_fragment.bookies, key=self._rank)
        self._polled = bookies[self._turn % len(bookies)]
        self._poll_request = self._ids.next()
        self._retry.stop()
        self._out.append(
            SendLacRead(
                self._polled,
                self._poll_request,
                self.last_add_confirmed,
                self._known_fenced,
                self.policy.poll_ms,
            )
        )

    def _answered(self, event: LacAnswered) -> None:
        if event.request_id != self._poll_request:
            return
        self._poll_request = 0
        if event.code is Code.UNAUTHORIZED:
            self._fail(
                UnauthorizedError(
                    f"{event.bookie} does not give the LAC of ledger {self.metadata.ledger_id}: check the password"
                )
            )
        elif event.code is not Code.OK or event.limbo:
            self._no_use()
        else:
            self._failures = 0
            self._news(event)

    def _no_use(self) -> None:
        """Try the next bookie; once all have failed, read the metadata and wait a little."""
        self._turn += 1
        self._failures += 1
        if self._failures % len(self.metadata.last_fragment.bookies):
            self._poll()
        else:
            self._retry.start(self._now_ms)
            self._read_metadata()

    def _news(self, event: LacAnswered) -> None:
        if event.fenced and not self._known_fenced:
            self._known_fenced = True
            self._read_metadata()
        if event.last_add_confirmed > self.last_add_confirmed:
            self._rise(event.last_add_confirmed)
        else:
            self._turn += 1
            self._read_metadata()
        self._poll()

    def _rise(self, last_add_confirmed: EntryId) -> None:
        """Report a higher LAC; a lower one is old (another bookie may lag behind)."""
        if last_add_confirmed > self.last_add_confirmed:
            self.last_add_confirmed = last_add_confirmed
            self._metadata_due_ms = self._now_ms + self.policy.metadata_ms
            self._out.append(LacKnown(last_add_confirmed))

    def _tick(self, now_ms: int) -> None:
        self._now_ms = max(now_ms, self._now_ms)
        if self._retry.fires(self._now_ms):
            self._poll()
        if self._now_ms >= self._metadata_due_ms:
            self._read_metadata()

    def _fail(self, error: DaybookError) -> None:
        self.is_done = True
        self._out.append(ReadFailed(error))
