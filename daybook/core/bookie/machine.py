"""A bookie: what it accepts, what it refuses, what it journals, and what it may answer when that is durable.

`BookieMachine` decides about all ledgers of a bookie. It has no thread, lock, clock or file. Its owner holds one lock
around each call, gives it a storage, and does the rest in this order (the server and the simulator alike):

    with lock:
        decided = machine.append(…) / fence(…) / clear_limbo(…) / delete(…)
        queue decided.records for the journal            # in the order of the decisions
    journal: write and sync everything that is queued, as one group
    answer OK, or READ_ONLY where the disk had no room   # nothing earlier (rule 23), except what the machine says

Every accepted frame is in the write cache when `append` returns, so that every later fence or read finds it (rule 43).
A request that needs the ledger's metadata gets NEEDS_METADATA; the owner holds the ledger, reads, and calls the
`…_with_metadata` method with the held object. A request that only waits for the journal (`force`, a LAC that must be
durable) queues an item without records: it is settled after everything that was queued before it.

The methods are plain calls rather than events, and nothing is allocated for a message beyond what it leaves behind: this is
the hot path. Work is done for each message and frame, never for each entry.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from daybook.core.bookie.decisions import (
    Decision,
    FenceDropped,
    FencePlaced,
    KeyLearned,
    LedgerDeleted,
    LimboCleared,
    LimboMarked,
)
from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, LacAnswer, LedgerRecord, Purpose
from daybook.core.bookie.open_ledgers import OpenLedgers
from daybook.core.bookie.refusals import Refusals
from daybook.core.bookie.watch import Watch, Watches
from daybook.core.errors import Code
from daybook.core.format.frame import Buffer, FrameHeader
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import NO_ENTRY, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata

Record = TypeVar("Record")
"""A record of the journal, as the owner's storage spells it."""
RecordMade = TypeVar("RecordMade", covariant=True)

NO_LAC: Final = LacAnswer(NO_ENTRY, 0, limbo=False, fenced=False)
"""What a bookie says of a ledger that it does not know."""


class BookieStorage(Protocol[RecordMade]):
    """Write cache and store, as the machine sees them; called under the owner's lock."""

    def ledger(self, ledger_id: LedgerId) -> LedgerRecord | None:
        """What cache and store know of a ledger, entries aside; None if they know nothing."""

    def has_entries(self, ledger_id: LedgerId) -> bool:
        """Whether cache or store has any entry of the ledger."""

    def accept(self, frame: Buffer, header: FrameHeader) -> RecordMade:
        """Take a frame into the write cache; the record that the journal needs."""

    def publish(self, rows: Sequence[LacRow]) -> Iterable[RecordMade]:
        """Take the LACs of a table into the write cache; the records that the journal needs."""

    def decide(self, decision: Decision) -> RecordMade:
        """Take a decision into the write cache; the record that the journal needs."""

    @property
    def has_room(self) -> bool:
        """Whether the write cache takes more while nothing is flushed."""


class TableDecided(Protocol[Record]):
    """What `publish` leaves behind for one table of LACs; all lists are empty before."""

    records: list[Record]
    """To be journalled, in this order."""
    news: list[tuple[LedgerId, LacAnswer]]
    """What long polls wait for, once the records are durable."""


class MessageDecided(TableDecided[Record], Protocol[Record]):
    """What `append` leaves behind for one message; all lists are empty before."""

    frames: list[int]
    """The indexes of the frames that are answered when the records are durable."""
    early: list[int]
    """The indexes of the frames that are answered now (rule 22)."""


class FenceDecided(Generic[Record]):
    """A fence that stands; it is answered with `lac` once `records` and all before them are durable (rule 4)."""

    __slots__ = ("_ledger", "_number", "lac", "records")

    def __init__(self, ledger: BookieLedger, number: int, records: list[Record]) -> None:
        self._ledger = ledger
        self._number = number
        self.lac = ledger.last_add_confirmed()
        """It was confirmed, but need not be durable here: the journal may have had no room for the frame that brought it,
        and that must not keep a fence from its answer (rule 30)."""
        self.records = records

    def is_durable(self) -> None:
        """The journal has the records."""
        self._ledger.fence_is_durable(self._number)


class BookieMachine(Generic[Record]):
    """The decisions of one bookie."""

    def __init__(
        self, storage: BookieStorage[Record], has_waiters: Callable[[LedgerId], bool] = lambda _: False
    ) -> None:
        """`has_waiters`: whether a long poll waits for news of a ledger."""
        self.ledgers = OpenLedgers(storage.ledger)
        self._storage = storage
        self._has_waiters = has_waiters
        self.watches = Watches()
        self.refusals = Refusals()
        self._takes_all = True
        self._keeps_reserve = True

    # Space (rule 30)

    def set_space(self, *, takes_all: bool, keeps_reserve: bool) -> None:
        """What may be written: everything, or what recovery writes, as long as there is a reserve for it."""
        self._takes_all = takes_all
        self._keeps_reserve = keeps_reserve

    def _refuses_for_space(self, header: FrameHeader) -> bool:
        return not (header.is_recovery and self._keeps_reserve and self._storage.has_room)

    # Frames

    def append(
        self,
        stream_id: int,
        message: bytes | bytearray,
        frames: Sequence[tuple[FrameHeader, int]],
        refused: dict[int, Code],
        decided: MessageDecided[Record],
    ) -> None:
        """Decide over the frames of a message, except those that are `refused` already; refusals are added there.

        `frames` has each frame's header and offset in `message`. What is kept is a view of the message, without a copy: the
        view keeps all of it in memory, and the cache counts only the frames, so where most was refused they are copied, or
        a client could fill the memory with what was refused. If this raises, what `decided` has by then is in the write
        cache and must be journalled all the same.
        """
        ledgers, refused_bytes = self._judge(stream_id, frames, refused)
        view = memoryview(message)
        is_copied = 2 * refused_bytes > len(message)
        records, early, waiting = decided.records, decided.early, decided.frames
        for index, ((header, offset), ledger) in enumerate(zip(frames, ledgers, strict=True)):
            if ledger is None:
                continue
            if ledger.record_changed:
                records += self._changed_records(ledger)
            frame = view[offset : offset + header.size_bytes]
            records.append(self._cache_frame(header, bytes(frame) if is_copied else frame))
            (early if ledger.may_ack_before_sync(header) else waiting).append(index)
            if self._has_waiters(header.ledger_id):
                decided.news.append((header.ledger_id, ledger.last_add_confirmed()))

    def publish(self, stream_id: int, rows: Sequence[LacRow], decided: TableDecided[Record]) -> None:
        """Take the LACs of a table (rule 48). Nobody is answered, so a row that does not count vanishes.

        Where nothing is in `decided.news`, the records need no sync of their own: whoever asks for a LAC later waits for the journal.
        If this raises, what `decided` has by then must be journalled all the same.
        """
        if not self._takes_all:
            return
        news = []
        for row in rows:
            ledger_id, lac, length = row
            ledger = self.ledgers.get(ledger_id)
            if ledger is None or not ledger.publish_lac(stream_id, lac, length):
                continue
            if ledger.record_changed:
                decided.records += self._changed_records(ledger)
            if ledger_id in self.watches.of:
                self.watches.touched(ledger_id)
            if self._has_waiters(ledger_id):
                decided.news.append((ledger_id, ledger.last_add_confirmed()))
            news.append(row)
        if news:
            decided.records += self._storage.publish(news)

    def _judge(
        self, stream_id: int, frames: Sequence[tuple[FrameHeader, int]], refused: dict[int, Code]
    ) -> tuple[list[BookieLedger | None], int]:
        """Of each frame the ledger that accepts it, if it does; and how many bytes are refused."""
        ledgers: list[BookieLedger | None] = []
        refused_bytes = 0
        find = self.ledgers.get
        for index, (header, _) in enumerate(frames):
            ledger = find(header.ledger_id)
            if index in refused:
                code = refused[index]
            elif ledger is None:
                code = Code.NOT_ATTACHED
            elif not self._takes_all and self._refuses_for_space(header):
                code = Code.READ_ONLY
            else:
                code = ledger.accept(stream_id, header)
            if code is not Code.OK:
                refused[index] = code
                refused_bytes += header.size_bytes
                ledger = None
            ledgers.append(ledger)
        return ledgers, refused_bytes

    def _cache_frame(self, header: FrameHeader, frame: Buffer) -> Record:
        """Make an accepted frame visible, in the same hold of the lock that accepted it (rule 43)."""
        if header.ledger_id in self.watches.of:
            self.watches.touched(header.ledger_id)
        return self._storage.accept(frame, header)

    def _changed_records(self, ledger: BookieLedger) -> list[Record]:
        """What must be journalled before the ledger's next frame: its key, and whether it may be written (rule 20)."""
        decisions: list[Decision] = [FenceDropped(ledger.ledger_id)] if ledger.fence_dropped else []
        decisions.append(KeyLearned(ledger.ledger_id, ledger.key or "", ledger.introduced))
        ledger.record_is_journalled()
        return [self._storage.decide(decision) for decision in decisions]

    # Passwords and attachments

    def authorize(self, ledger_id: LedgerId, key: str) -> AttachVerdict:
        """Judge the key that a call presents. A ledger that is not known here has nothing to hide."""
        ledger = self.ledgers.find(ledger_id)
        return AttachVerdict.OK if ledger is None else ledger.authorize(key)

    def authorize_with_metadata(
        self, held: BookieLedger, key: str, metadata: LedgerMetadata | None
    ) -> AttachVerdict:
        """`authorize` with the metadata that NEEDS_METADATA asked for; None if the ledger is not there."""
        self.watches.touched(held.ledger_id)
        return held.authorize_with_metadata(key, metadata)

    def attach(self, stream_id: int, ledger_id: LedgerId, key: str, purpose: Purpose) -> AttachVerdict:
        """Let the frames of a stream in, if that can be decided without metadata (rule 20)."""
        ledger = self.ledgers.obtain(ledger_id)
        return self._attached(stream_id, ledger, ledger.attach(stream_id, key, purpose))

    def attach_with_metadata(
        self,
        held: BookieLedger,
        stream_id: int,
        key: str,
        purpose: Purpose,
        metadata: LedgerMetadata | None,
    ) -> AttachVerdict:
        """`attach` with the metadata that NEEDS_METADATA asked for; None if the ledger is not there.

        NEEDS_METADATA again: the held ledger was deleted meanwhile, so the metadata is too old. Let it go, hold the
        ledger's new object, and read again.
        """
        self.watches.touched(held.ledger_id)
        verdict = held.attach_with_metadata(stream_id, key, purpose, metadata)
        return self._attached(stream_id, held, verdict)

    def _attached(self, stream_id: int, ledger: BookieLedger, verdict: AttachVerdict) -> AttachVerdict:
        if verdict is AttachVerdict.OK:
            self.ledgers.attached(stream_id, ledger.ledger_id)
        else:
            self.ledgers.release(ledger.ledger_id)
        return verdict

    # Fence and force

    def fence(self, held: BookieLedger, key: str) -> FenceDecided[Record] | AttachVerdict:
        """Fence a ledger, known or not, which the caller holds until that is durable (rule 2, rule 3, rule 4).

        Each fencer that must wait journals the fence again, behind what is queued; one group makes all of them durable.
        A verdict: nothing was decided; with NEEDS_METADATA use `authorize_with_metadata`, then call again.
        """
        verdict = held.fence(key)
        if verdict.verdict is not AttachVerdict.OK:
            return verdict.verdict
        records = self._changed_records(held) if held.record_changed else []
        if verdict.wait:
            records.append(self._storage.decide(FencePlaced(held.ledger_id)))
        self.watches.touched(held.ledger_id)
        return FenceDecided(held, verdict.number, records)

    def force(self, ledger_id: LedgerId) -> Code:
        """Whether everything accepted so far may be vouched for, once the journal has it (rule 22).

        Where the ledger is unknown, no entry of it is striped here yet.
        """
        ledger = self.ledgers.find(ledger_id)
        return Code.OK if ledger is None else ledger.force()

    # What it knows

    def lac(self, ledger_id: LedgerId) -> LacAnswer:
        """What the bookie knows of a ledger's LAC, durable or not."""
        ledger = self.ledgers.find(ledger_id)
        return NO_LAC if ledger is None else ledger.last_add_confirmed()

    # Limbo (rule 29)

    def mark_limbo(self, ledger_id: LedgerId, nonce: str) -> Record:
        """The bookie may have lost entries, a LAC or a fence of the ledger; `nonce` is new each time."""
        self.ledgers.obtain(ledger_id).enter_limbo(nonce)
        record = self._storage.decide(LimboMarked(ledger_id, nonce))
        self.ledgers.release(ledger_id)
        return record

    def clear_limbo(self, ledger_id: LedgerId, nonce: str) -> Record | None:
        """End limbo if `nonce` still stands; None if it does not."""
        ledger = self.ledgers.obtain(ledger_id)
        record = self._storage.decide(LimboCleared(ledger_id, nonce)) if ledger.clear_limbo(nonce) else None
        self.ledgers.release(ledger_id)
        return record

    # Deletion

    def delete(self, ledger_ids: Iterable[LedgerId]) -> list[Record]:
        """These ledgers are certainly gone (rule 28): who is attached must attach again (rule 20)."""
        records = []
        for ledger_id in ledger_ids:
            self.ledgers.forget(ledger_id)
            self.watches.touched(ledger_id)
            records.append(self._storage.decide(LedgerDeleted(ledger_id)))
        return records

    def is_bare(self, ledger_id: LedgerId) -> bool:
        """Whether there is no more of the ledger than a fence."""
        record = self._storage.ledger(ledger_id)
        if record is not None and proves_existence(record):
            return False
        return not self._storage.has_entries(ledger_id)

    def drop_fence(self, watch: Watch) -> Record | None:
        """The ledger's id was never given out, so what fenced it before it was watched is void (rule 3).

        None if nothing is dropped: a ledger that was created and fenced, or written to, since then keeps what it has.
        """
        ledger_id = watch.ledger_id
        if watch.changes or not self.is_bare(ledger_id):
            return None
        ledger = self.ledgers.obtain(ledger_id)
        record = None
        if not ledger.introduced:
            ledger.never_existed()
            if ledger.fence_dropped:
                ledger.record_is_journalled()
                record = self._storage.decide(FenceDropped(ledger_id))
        self.ledgers.release(ledger_id)
        return record


def proves_existence(record: LedgerRecord) -> bool:
    """A LAC, an introduction and a limbo mark all follow a read of the ledger's metadata (rule 20, rule 29)."""
    return record.last_add_confirmed != NO_ENTRY or record.introduced or record.limbo_nonce is not None
