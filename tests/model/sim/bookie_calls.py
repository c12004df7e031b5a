"""What a simulated bookie holds, and the calls it answers: fence, read, force, listing, clearing limbo.

Nothing is answered that rests on the journal before the sync that covers it has returned (rule 4, rule 23), and what
was accepted is met by every later call at once (rule 43).
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, compose_range
from daybook.core.effects import SendLacRead
from daybook.core.errors import Code
from daybook.core.events import (
    FenceAnswered,
    ForceAnswered,
    LacAnswered,
    LimboCleared,
    LimboRead,
    ReadAnswered,
)
from daybook.core.format.frame import Entry
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.stream import StreamAnswers
from tests.model.sim.bookie_disk import BookieDisk
from tests.model.sim.bookie_gc import Collector
from tests.model.sim.bookie_polls import LacPolls
from tests.model.sim.disk import EntriesRemoved, FrameWritten, LedgerDropped, RecordWritten
from tests.model.sim.journalled import JournalledDisk
from tests.model.sim.metadata_model import Session, place_of
from tests.model.sim.network import Stream

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster


class BookieCalls(BookieDisk):
    """The state of a bookie and its calls; `SimBookie` adds its life and its streams."""

    session: Session

    def __init__(self, cluster: "Cluster", bookie: BookieId, info: BookieInfo) -> None:
        super().__init__(cluster, bookie, place_of(info))
        self.info = info
        self._noise = self.world.rng(f"{bookie}/limbo")
        self.alive = False
        self._reset()

    def _reset(self) -> None:
        """Forget what only memory held."""
        self._reset_disk()
        self.ledgers = {}
        self.caches: dict[LedgerId, dict[EntryId, bytes]] = {}
        """The entries of each ledger that a read meets: write cache and store together."""
        self.streams: dict[int, tuple[Stream, StreamAnswers]] = {}
        self.adds: Counter[LedgerId] = Counter()
        self.looked: set[LedgerId] = set()
        """The ledgers of which it has seen the metadata, for the checkers."""
        self.polls = LacPolls(self)
        self.collector = Collector(self)
        self.serving = False
        self._fencers: dict[LedgerId, list[tuple[Callable[[], None], Callable[[], None]]]] = {}
        """Who waits for a fence: what to do when it is durable, and when there was no room for it."""
        self._forcers: list[tuple[BookieLedger, int, Callable[[], None]]] = []

    @property
    def boot_id(self) -> str:
        """New with each start."""
        return f"{self.place}/{self.incarnation}"

    # What the checkers ask

    def holds_durably(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """Whether the entry would survive a power cut now."""
        stored = self.disk.ledgers.get(ledger_id)
        return stored is not None and entry_id in stored.entries

    def holds(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        """Whether a read would find the entry."""
        return self.serving and entry_id in self.caches.get(ledger_id, ())

    def vouches(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie would say that it is in no limbo."""
        return self.serving and ledger_id in self.ledgers and not self.ledgers[ledger_id].in_limbo

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie lost this ledger and was not repaired yet; a disk that was just lost counts."""
        if self.replaced or self.doomed:
            return True
        stored = self.disk.ledgers.get(ledger_id)
        return stored is not None and stored.record.limbo_nonce is not None

    def is_fenced_durably(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger would be fenced after a power cut now."""
        stored = self.disk.ledgers.get(ledger_id)
        return stored is not None and stored.record.fenced

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        """The LAC that a reader would be told."""
        return self._ledger(ledger_id).last_add_confirmed().last_add_confirmed

    def everything_held(self) -> dict[LedgerId, set[EntryId]]:
        """The entries of each ledger, in memory or on the disk."""
        held = {ledger_id: set(cache) for ledger_id, cache in self.caches.items()}
        for ledger_id, stored in self.disk.ledgers.items():
            held.setdefault(ledger_id, set()).update(stored.entries)
        return held

    # The journal

    def _ledger(self, ledger_id: LedgerId) -> BookieLedger:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            self.caches[ledger_id] = {}
            ledger = self.ledgers[ledger_id] = BookieLedger(ledger_id)
        return ledger

    def _journal_record(self, ledger: BookieLedger) -> None:
        """Journal the ledger's durable fields, its fence among them."""
        record = ledger.record()
        ledger.record_is_journalled()
        self.disk.write(
            RecordWritten(record),
            partial(self._record_is_durable, ledger, ledger.fence_number, fenced=record.fenced),
            partial(self._record_is_refused, ledger),
        )

    def _record_is_durable(self, ledger: BookieLedger, number: int, *, fenced: bool) -> None:
        if fenced and not ledger.forgotten:
            ledger.fence_is_durable(number)
            for done, _ in self._fencers.pop(ledger.ledger_id, ()):
                done()

    def _record_is_refused(self, ledger: BookieLedger) -> None:
        for _, refused in self._fencers.pop(ledger.ledger_id, ()):
            refused()

    # Fence, read, force

    def fence(self, ledger_id: LedgerId, key: str, request_id: int, reply: Callable[..., None]) -> None:
        """Fence and tell the LAC, once the fence is durable (rule 4)."""
        refused = partial(reply, FenceAnswered(self.name, request_id, Code.READ_ONLY))
        code = self._fence(ledger_id, key, partial(self._fence_done, ledger_id, request_id, reply), refused)
        if code is not Code.OK:
            reply(FenceAnswered(self.name, request_id, code))

    def _fence(
        self, ledger_id: LedgerId, key: str, done: Callable[[], None], refused: Callable[[], None]
    ) -> Code:
        """Fence; with OK, `done` is called when that is durable, or `refused` when the disk is full."""
        if not self.serving:
            return Code.UNAVAILABLE
        ledger = self._ledger(ledger_id)
        verdict = ledger.fence(key)
        if verdict.verdict is not AttachVerdict.OK:
            return verdict.verdict.code
        if verdict.journal or (verdict.wait and not self._fencers.get(ledger_id)):
            self._journal_record(ledger)
            self.polls.wake(ledger)
        if verdict.wait:
            self._fencers.setdefault(ledger_id, []).append((done, refused))
            self._sync_soon()
        else:
            done()
        return Code.OK

    def _fence_done(self, ledger_id: LedgerId, request_id: int, reply: Callable[..., None]) -> None:
        lac = self._ledger(ledger_id).last_add_confirmed()
        if not self.was_replaced:  # the checkers look at the disk that counts
            self.cluster.checkers.fence_answered(self.name, ledger_id)
        self.cluster.twins.testifies(
            self, ledger_id, self.caches[ledger_id], limbo=lac.limbo or self.journalled is not None
        )
        # In limbo it is worth nothing, so it may as well be anything (rule 29).
        told = lac.last_add_confirmed + (self._noise.randrange(4) if lac.limbo else 0)
        self.note(f"is fenced for ledger {ledger_id}; LAC {lac.last_add_confirmed}{', in limbo' * lac.limbo}")
        reply(FenceAnswered(self.name, request_id, Code.OK, told, lac.length_at_lac, lac.limbo))

    def read(
        self,
        ledger_id: LedgerId,
        key: str,
        request: tuple[int, EntryId, EntryId, int],
        reply: Callable[..., None],
        *,
        fence: bool,
    ) -> None:
        """Read (request id, first, last, most bytes); a recovery read fences first (rule 2)."""
        if not self.serving:
            code = Code.UNAVAILABLE
        elif self._draws_read_error():
            code = Code.IO_ERROR
        elif fence:
            refused = partial(reply, ReadAnswered(self.name, request[0], Code.READ_ONLY))
            code = self._fence(ledger_id, key, partial(self._read, ledger_id, request, reply), refused)
        else:
            code = Code.OK
            self._read(ledger_id, request, reply)
        if code is not Code.OK:
            reply(ReadAnswered(self.name, request[0], code))

    def _draws_read_error(self) -> bool:
        error = self.cluster.swarm.read_error
        if not self.cluster.is_faulty or not error or self._rng.random() >= error:
            return False
        self.world.tally.fault("read error")
        return True

    def _read(
        self, ledger_id: LedgerId, request: tuple[int, EntryId, EntryId, int], reply: Callable[..., None]
    ) -> None:
        if self.journalled is not None:
            self._read_through(self.journalled, ledger_id, request, reply)
            return
        request_id, first, last, bytes_max = request
        ledger, cache = self._ledger(ledger_id), self.caches[ledger_id]
        self.cluster.checkers.read_meets(self.name, ledger_id, self._unsynced(ledger_id), cache)
        stored = sorted(entry for entry in cache if first <= entry <= last)
        found: list[Entry] = []
        size = 0
        for entry in stored:
            if found and size + len(cache[entry]) > bytes_max:
                break
            found.append(Entry(entry, cache[entry]))
            size += len(cache[entry])
        tried = stored[: len(found)]
        answer = compose_range(last, tried, tried, complete=len(found) == len(stored))
        lac = ledger.last_add_confirmed()
        reply(
            ReadAnswered(
                self.name,
                request_id,
                Code.OK,
                tuple(found),
                answer.damaged,
                answer.through,
                lac.limbo,
                lac.last_add_confirmed,
                lac.length_at_lac,
            )
        )

    def _read_through(
        self,
        disk: JournalledDisk,
        ledger_id: LedgerId,
        request: tuple[int, EntryId, EntryId, int],
        reply: Callable[..., None],
    ) -> None:
        """As the server reads: cache and store, and what cannot be read is named (rule 26)."""
        request_id, first, last, bytes_max = request
        self._ledger(ledger_id)
        walk, found, damaged = self.walk(disk, ledger_id, first, last, bytes_max)
        held, told = disk.held(ledger_id), found.keys() | set(damaged)
        silent = [n for n in range(first, walk.through + 1) if held.contains(n) and n not in told]
        if silent:
            self.cluster.checkers.fail(
                "what is there is given or named",
                f"{self.name} is silent on {silent} of {ledger_id} (rule 26)",
            )
        accepted = [entry for entry in self._unsynced(ledger_id) if first <= entry <= walk.through]
        self.cluster.checkers.read_meets(self.name, ledger_id, accepted, found)
        reply(
            ReadAnswered(
                self.name,
                request_id,
                Code.OK,
                tuple(Entry(entry, found[entry]) for entry in sorted(found)),
                tuple(damaged),
                walk.through,
                walk.limbo,
                walk.last_add_confirmed,
                walk.length_at_lac,
            )
        )

    def _unsynced(self, ledger_id: LedgerId) -> list[EntryId]:
        """The entries that were accepted, and not removed again, since the last sync."""
        found: dict[EntryId, None] = {}
        for written in (waiting.written for waiting in self.disk.unsynced):
            if written.ledger_id != ledger_id:
                continue
            if isinstance(written, FrameWritten):
                found.update(dict.fromkeys(written.entries))
            elif isinstance(written, EntriesRemoved):
                for entry in written.entries:
                    found.pop(entry, None)
            elif isinstance(written, LedgerDropped):
                found.clear()
        return list(found)

    def read_lac(self, ledger_id: LedgerId, request: SendLacRead, reply: Callable[..., None]) -> None:
        """Tell the LAC, now or when it is news."""
        if self.serving:
            self.polls.ask(self._ledger(ledger_id), request, reply)
        else:
            reply(LacAnswered(self.name, request.request_id, Code.UNAVAILABLE))

    def force(self, ledger_id: LedgerId, request_id: int, reply: Callable[..., None]) -> None:
        """Answer once everything that was accepted deferred is synced (rule 22)."""
        if not self.serving:
            reply(ForceAnswered(self.name, request_id, Code.UNAVAILABLE, self.boot_id))
            return
        ledger = self._ledger(ledger_id)
        verdict = ledger.force()
        done = partial(self._force_done, request_id, verdict.code, reply)
        if verdict.code is not Code.OK or ledger.deferred_is_synced(verdict.number):
            done()
        else:
            self._forcers.append((ledger, verdict.number, done))
            self._sync_soon()

    def _force_done(self, request_id: int, code: Code, reply: Callable[..., None]) -> None:
        """What was refused for want of room is not durable, though it was answered when it was accepted (rule 22)."""
        code = Code.READ_ONLY if code is Code.OK and self.owes else code
        reply(ForceAnswered(self.name, request_id, code, self.boot_id))

    def _answer_forcers(self) -> None:
        waiting = self._forcers
        self._forcers = []
        for ledger, number, done in waiting:
            if ledger.deferred_is_synced(number):
                done()
            else:
                self._forcers.append((ledger, number, done))

    # Auditor and repair

    def listing(self, ledger_id: LedgerId, reply: Callable[..., None]) -> None:
        """Tell which entries are here, the LAC, and whether that is all in limbo."""
        if self.serving and not self.owes:
            ledger = self._ledger(ledger_id)
            entries = frozenset(self.caches[ledger_id]) - self.known_damage(ledger_id)
            reply(self.name, entries, ledger.last_add_confirmed())

    def read_limbo(self, ledger_id: LedgerId, request_id: int, reply: Callable[..., None]) -> None:
        """Tell the nonce of limbo, and the boot id."""
        if not self.serving:
            reply(LimboRead(self.name, request_id, Code.UNAVAILABLE))
            return
        nonce = self._ledger(ledger_id).limbo_nonce
        reply(LimboRead(self.name, request_id, Code.OK, nonce, self.boot_id))

    def clear_limbo(
        self, ledger_id: LedgerId, request_id: int, nonce: str, reply: Callable[..., None]
    ) -> None:
        """End limbo, if `nonce` still stands; answered when that is durable."""
        if not self.serving:
            reply(LimboCleared(self.name, request_id, Code.UNAVAILABLE))
            return
        ledger = self._ledger(ledger_id)
        stands = ledger.limbo_nonce
        if not ledger.clear_limbo(nonce):
            reply(LimboCleared(self.name, request_id, Code.OK, cleared=False))
            return
        self.world.tally.state("limbo cleared")
        self.note(f"is out of limbo for ledger {ledger_id}")
        if nonce != stands:
            self.cluster.checkers.fail("a stale nonce clears nothing", f"{self.name}, {ledger_id} (rule 29)")
        self.cluster.checkers.limbo_cleared(self.name, ledger_id, self.caches[ledger_id])
        record = ledger.record()
        ledger.record_is_journalled()
        answer = LimboCleared(self.name, request_id, Code.OK, cleared=True)
        refused = LimboCleared(self.name, request_id, Code.READ_ONLY, cleared=False)
        self.disk.write(RecordWritten(record), partial(reply, answer), partial(reply, refused))
        self._sync_soon()

    # For the collector

    def removable(self, ledger_id: LedgerId) -> IntervalSet:
        """What is here of the ledger and could be taken out; what is still in the write cache waits for later."""
        if self.journalled is not None:
            return self.journalled.stored(ledger_id)
        held = IntervalSet()
        held.add_ids(sorted(self.caches[ledger_id]))
        return held

    def remove(self, ledger_id: LedgerId, entries: list[EntryId]) -> None:
        """Take replicas out, with the next flush or sync."""
        if self.journalled is None:
            for entry in entries:
                del self.caches[ledger_id][entry]
        self.journal(EntriesRemoved(ledger_id, tuple(entries)))

    def on_removed(self, ledger_id: LedgerId) -> None:
        """The store has what was left."""
        assert self.journalled is not None
        if ledger_id in self.caches:
            held, cache = self.journalled.held(ledger_id), self.caches[ledger_id]
            for entry in [entry for entry in cache if not held.contains(entry)]:
                del cache[entry]

    def drop(self, ledger_id: LedgerId) -> None:
        """Forget a ledger."""
        del self.ledgers[ledger_id], self.caches[ledger_id]
        self.looked.discard(ledger_id)
        self._fencers.pop(ledger_id, None)
