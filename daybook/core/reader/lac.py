"""How a reader learns what it may show: the LAC of a ledger that someone else writes.

`LacReader` asks once, the whole last ensemble that metadata names now (rule 59), and is done when the answers meet every
ack quorum: the highest LAC among them is then at least that of every add that was acknowledged before (but for the last
few, whose LAC still travels). `LacTail` follows an open ledger with long polls of one bookie at a time, and reads the
metadata when it begins and whenever polls bring nothing. For one reader the LAC never goes back; when metadata shows the ledger closed, the close is what counts, and nothing beyond it was ever shown (rule 12).
A bookie in limbo knows nothing (rule 29).
"""

from collections.abc import Callable
from dataclasses import dataclass

from daybook.core.effects import Effect, LacKnown, MetadataKnown, ReadFailed, ReadMetadata, SendLacRead
from daybook.core.errors import (
    Code,
    DaybookError,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughReplicasError,
    UnauthorizedError,
)
from daybook.core.events import BookieFailed, Event, LacAnswered, MetadataRead, MetadataUnreadable, Tick
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds, RetryTimer
from daybook.core.quorum import covers_every_write_set


@dataclass(frozen=True, slots=True)
class LacPolicy:
    """How patiently a LAC is asked for."""

    metadata_wait_ms: int = 2_000
    """How long a lenient reader waits for the metadata before it asks the bookies that it knows."""


class LacReader:
    """Reads the LAC once: `start()`, then `step(event)`; ends with `LacKnown` or `ReadFailed`.

    It reads the metadata first, because the bookies of an earlier ensemble would answer in good faith with a LAC that is
    long past (rule 59); `is_new`: that was done just now. `lenient`: any answer will do, where too few bookies answer for
    certainty, and the ensemble that is known, where the metadata cannot be read; the LAC may then be too low.
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

    def start(self) -> list[Effect]:
        """The first request; for a closed ledger the answer, since a close is final."""
        if self._is_new or self.metadata.is_closed:
            return self._ask()
        self._metadata_request = self._ids.next()
        return [ReadMetadata(self._metadata_request)]

    def step(self, event: Event) -> list[Effect]:
        """Take an answer, the loss of a channel, or the time."""
        if self.is_done:
            return []
        match event:
            case MetadataRead() | MetadataUnreadable():
                return self._metadata_answered(event)
            case Tick(now_ms):
                return self._tick(now_ms)
            case BookieFailed(bookie, code):
                self._lose(bookie, code)
            case LacAnswered():
                self._take(event)
            case _:
                msg = f"a LAC reader has no use for {type(event).__name__}: a driver sent it to the wrong machine"
                raise AssertionError(msg)
        return [] if self._metadata_request else self._judge()

    def _tick(self, now_ms: int) -> list[Effect]:
        """A lenient reader waits for metadata only so long."""
        is_late = self._metadata_request and self._lenient and now_ms >= self._give_up_ms
        return self._ask() if is_late else []

    def _lose(self, bookie: BookieId, code: Code) -> None:
        """Whatever `bookie` was asked has no answer."""
        bookies = self.metadata.last_fragment.bookies
        for request in [r for r, position in self._pending.items() if bookies[position] == bookie]:
            self._take(LacAnswered(bookie, request, code))

    def _metadata_answered(self, event: MetadataRead | MetadataUnreadable) -> list[Effect]:
        if event.request_id != self._metadata_request:
            return []
        ledger_id = self.metadata.ledger_id
        if isinstance(event, MetadataUnreadable):
            if self._lenient:
                return self._ask()
            return self._fail(
                MetadataUnavailableError(
                    f"the LAC of ledger {ledger_id} cannot be told while its metadata cannot be read: its ensemble may "
                    "have changed; try again later, or be lenient"
                )
            )
        if event.metadata is None:
            return self._fail(
                NoSuchLedgerError(f"ledger {ledger_id} was deleted while it was open for reading")
            )
        is_news = event.metadata != self.metadata
        self.metadata = event.metadata
        known: list[Effect] = [MetadataKnown(event.metadata)] if is_news else []
        return known + self._ask()

    def _ask(self) -> list[Effect]:
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

    def _judge(self) -> list[Effect]:
        if covers_every_write_set(self.metadata.quorum, self._answered):
            self.is_done = True
        elif not self._pending:
            self.is_done = True
            if not (self._lenient and self._answered):
                return self._fail(self._why())
        return [LacKnown(self._lac)] if self.is_done else []

    def _why(self) -> DaybookError:
        told = ", ".join(f"{bookie}: {code.name}" for bookie, code in sorted(self._refusals.items()))
        what = f"the LAC of ledger {self.metadata.ledger_id} cannot be read ({told})"
        if Code.UNAUTHORIZED in self._refusals.values():
            return UnauthorizedError(f"{what}: check the password")
        return NotEnoughReplicasError(f"{what}: bring the bookies back, or try again later")

    def _fail(self, error: DaybookError) -> list[Effect]:
        self.is_done = True
        return [ReadFailed(error)]


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
    """Follows the LAC of an open ledger: `start()`, then `step(event)`.

    `LacKnown` for every rise, the last one with the metadata of the close; `ReadFailed` if the ledger is deleted or the
    password is wrong. One bookie is polled at a time, the nearest first; the next one when it fails or has no news.
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
        self._out: list[Effect] = []
        self._ids = RequestIds()
        self._poll_request = 0
        self._polled: BookieId = ""
        self._turn = 0
        self._failures = 0
        self._retry = RetryTimer(self.policy.retry_ms)
        self._metadata_request = 0
        self._metadata_due_ms = now_ms + self.policy.metadata_ms

    def start(self) -> list[Effect]:
        """The first poll, and a look at the metadata, which may be old; for a closed ledger the end."""
        self._learn(self.metadata)
        if not self.is_done:
            self._read_metadata()
        return self._take_out()

    def step(self, event: Event) -> list[Effect]:
        """Take an event; answers to polls that were given up are dropped."""
        if not self.is_done:
            self._dispatch(event)
        return self._take_out()

    def _take_out(self) -> list[Effect]:
        out, self._out = self._out, []
        return out

    def _dispatch(self, event: Event) -> None:
        match event:
            case LacAnswered():
                self._answered(event)
            case BookieFailed(bookie, code):
                if self._poll_request and bookie == self._polled:
                    self._answered(LacAnswered(bookie, self._poll_request, code))
            case MetadataRead(request_id, metadata, _):
                if request_id == self._metadata_request:
                    self._metadata_read(metadata)
            case MetadataUnreadable(request_id):
                self._metadata_unreadable(request_id)
            case Tick(now_ms):
                self._tick(now_ms)
            case _:
                msg = f"a tail has no use for {type(event).__name__}: a driver sent it to the wrong machine"
                raise AssertionError(msg)

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

    def _metadata_read(self, metadata: LedgerMetadata | None) -> None:
        self._metadata_request = 0
        self._metadata_due_ms = self._now_ms + self.policy.metadata_ms
        if metadata is None:
            self._fail(
                NoSuchLedgerError(f"ledger {self.metadata.ledger_id} was deleted while it was followed")
            )
        else:
            self._learn(metadata)

    def _metadata_unreadable(self, request_id: int) -> None:
        if request_id == self._metadata_request:
            self._metadata_request = 0

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
                    f"{event.bookie} refuses to tell the LAC of ledger {self.metadata.ledger_id}: check the password"
                )
            )
        elif event.code is not Code.OK or event.limbo:
            self._no_use()
        else:
            self._failures = 0
            self._news(event)

    def _no_use(self) -> None:
        """Try the next bookie; after a round of failures look at the metadata and wait a little."""
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
        """Tell a higher LAC; a lower one is old (another bookie may lag behind)."""
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
