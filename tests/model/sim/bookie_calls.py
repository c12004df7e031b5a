"""What a simulated bookie holds, and the calls it answers: fence, read, force, listing, clearing limbo.

The core's machine decides all, as on the server. Nothing is answered that rests on the journal before the sync that covers it returned
(rule 4, rule 23), and later calls find at once what was accepted (rule 43).
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from daybook_bookie.service.reads import StorageSource

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.bookie.ledger import BookieLedger, LacAnswer
from daybook.core.bookie.life import BookieLife
from daybook.core.bookie.listing import Listing
from daybook.core.bookie.machine import NO_LAC, BookieMachine, FenceDecided
from daybook.core.bookie.questions import FenceQuestion, KeyQuestion, Question
from daybook.core.bookie.range_scan import RangeSource
from daybook.core.errors import Code
from daybook.core.format.entries import Entry
from daybook.core.format.frame import FrameHeader
from daybook.core.format.intervals import IntervalSet
from daybook.core.format.lac_table import LacRow
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.placement.policy import BookieInfo
from daybook.core.stream import StreamAnswers
from tests.model.sim.bookie_disk import BookieDisk
from tests.model.sim.bookie_gc import Collector
from tests.model.sim.bookie_polls import SimPolls
from tests.model.sim.bookie_storage import MemorySource, SimStorage
from tests.model.sim.disk import EntriesRemoved, FrameWritten, LedgerDropped, Written, nothing
from tests.model.sim.metadata_model import LOST, SUPERSEDED, Session, Versioned, place_of
from tests.model.sim.network import Stream

if TYPE_CHECKING:
    from tests.model.sim.cluster import Cluster

Call: TypeAlias = fx.SendFence | fx.SendRead | fx.SendForce | fx.SendLacRead | fx.ReadLimbo | fx.ClearLimbo
CallAnswer: TypeAlias = (
    ev.FenceAnswered | ev.ReadAnswered | ev.ForceAnswered | ev.LacAnswered | ev.LimboRead | ev.LimboCleared
)
ANSWERS: Final = dict(zip(get_args(Call), get_args(CallAnswer), strict=True))
"""The type of its answer, by the type of a call."""


def refusal(call: Call, code: Code) -> CallAnswer:
    """The answer to `call` that grants nothing."""
    answer: CallAnswer = ANSWERS[type(call)](call.bookie, call.request_id, code)
    return answer


class BookieCalls(BookieDisk):
    """The state of a bookie and its calls; `SimBookie` adds its life and its streams."""

    session: Session
    was_the_bookie = False
    """This start of it has been registered."""

    def __init__(self, cluster: "Cluster", bookie: BookieId, info: BookieInfo) -> None:
        super().__init__(cluster, bookie, place_of(info))
        self.info = info
        self._noise = self.world.rng(f"{bookie}/limbo")
        self.alive = False
        self._reset()

    def _reset(self) -> None:
        """Forget what only memory held."""
        self._reset_disk()
        self.storage = SimStorage(self)
        self.polls = SimPolls(self)
        self.machine: BookieMachine[Written] = BookieMachine(self.storage, self.polls.has_waiters)
        self.streams: dict[int, tuple[Stream, StreamAnswers]] = {}
        self.has_read: set[LedgerId] = set()
        """The ledgers of which it has seen the metadata, for the checkers."""
        self.collector = Collector(self)
        self.life = BookieLife(self.name)

    @property
    def serving(self) -> bool:
        """Whether it answers."""
        return self.life.is_serving

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
        return self.serving and entry_id in self.storage.caches.get(ledger_id, ())

    def vouches(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie would say that it is in no limbo.

        It says so of a ledger that it does not know, and is right unless its disk has a mark: one that is `doomed` has its disk,
        and need not have received anything of a ledger that was closed empty.
        """
        ledger = self.machine.ledgers.find(ledger_id)
        is_marked = ledger_id in self.disk.ledgers if ledger is None else ledger.in_limbo
        return self.serving and not is_marked

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        """Whether the bookie lost this ledger and was not repaired yet; a disk that was just lost counts."""
        if self.replaced or self.doomed:
            return True
        stored = self.disk.ledgers.get(ledger_id)
        return stored is not None and stored.record.limbo_nonce is not None

    def knows_durably(self, ledger_id: LedgerId) -> EntryId:
        """The LAC that it would know after a power cut now."""
        stored = self.disk.ledgers.get(ledger_id)
        return NO_ENTRY if stored is None else stored.last_add_confirmed

    def is_fenced_durably(self, ledger_id: LedgerId) -> bool:
        """Whether the ledger would be fenced after a power cut now."""
        stored = self.disk.ledgers.get(ledger_id)
        return stored is not None and stored.record.fenced

    def lac_of(self, ledger_id: LedgerId) -> EntryId:
        """The LAC that a reader would receive."""
        return self.machine.lac(ledger_id).last_add_confirmed

    def known_ids(self) -> list[LedgerId]:
        """Every ledger that the bookie knows, rising."""
        listing = Listing(self.machine)
        listing.judge(self.storage.ledger_ids())
        return listing.known().ledger_ids

    def limbo_nonce(self, ledger_id: LedgerId) -> str | None:
        """The ledger's limbo mark, if the bookie cannot vouch for it (rule 29)."""
        ledger = self.machine.ledgers.find(ledger_id)
        return None if ledger is None else ledger.limbo_nonce

    def everything_held(self) -> dict[LedgerId, set[EntryId]]:
        """The entries of each ledger, in memory or on the disk.

        A fence whose ledger was deleted before it is in the journal alone: the store never has it.
        """
        held = {ledger_id: set(cache) for ledger_id, cache in self.storage.caches.items()}
        for ledger_id, stored in self.disk.ledgers.items():
            if stored.entries or self.storage.ledger(ledger_id) is not None:
                held.setdefault(ledger_id, set()).update(stored.entries)
        return held

    # Frames

    def accepted(self, header: FrameHeader) -> None:
        """A frame was accepted: the checkers see it."""
        self._took(header.ledger_id, header.last_add_confirmed, is_recovery=header.is_recovery)

    def published(self, row: LacRow) -> None:
        """A row of a table of LACs was taken: it must pass nothing that a normal frame does not."""
        self._took(row.ledger_id, row.last_add_confirmed, is_recovery=False)

    def _took(self, ledger_id: LedgerId, lac: EntryId, *, is_recovery: bool) -> None:
        ledger = self.machine.ledgers.get(ledger_id)
        assert ledger is not None
        self.cluster.checkers.accepted(
            self.name,
            ledger_id,
            recovery=is_recovery,
            lac=lac,
            fenced=ledger.fenced,
            has_read=ledger_id in self.has_read,
        )

    # Metadata

    def superseded(self) -> None:
        """Another process is the bookie (rule 57)."""
        raise NotImplementedError

    def _reconnect_if_expired(self) -> None:
        if self.session.expired:
            self.session = self.cluster.store.connect(self)

    def live_session(self) -> Session:
        """Its session, a new one if the last has expired."""
        self._reconnect_if_expired()
        return self.session

    def settle(
        self,
        question: Question[Written],
        then: Callable[[], None],
        check: Callable[[BookieLedger | None], None] = lambda _asked: None,
    ) -> None:
        """Read metadata until the question, which has begun, is done; `check` follows each read."""
        if question.is_done:
            then()
            return
        question.ask()
        store, session = self.cluster.store, self.live_session()
        read: Callable[..., object] = store.read
        if self.name in self.cluster.twins.split:
            read = partial(store.read_as, session, self.name, self.place)
        store.request(session, partial(self._settle_with, question, then, check), read, question.ledger_id)

    def _settle_with(
        self,
        question: Question[Written],
        then: Callable[[], None],
        check: Callable[[BookieLedger | None], None],
        answer: object,
    ) -> None:
        if answer is SUPERSEDED and self.was_the_bookie:
            self.superseded()
            return
        # The session of the process before it may not have ended yet.
        if answer is LOST or answer is SUPERSEDED:
            question.give_up()
        else:
            asked = question.held
            question.metadata_read(answer.metadata if isinstance(answer, Versioned) else None)
            check(asked)
        self.settle(question, then, check)

    # Calls

    def serve(self, call: Call, ledger_id: LedgerId, key: str, reply: Callable[..., None]) -> None:
        """Carry out a call; `reply` gets its answer, UNAVAILABLE before the bookie serves."""
        if not self.serving:
            reply(refusal(call, Code.UNAVAILABLE))
            return
        match call:
            case fx.SendFence():
                self._fence(ledger_id, key, partial(self._fence_done, ledger_id, call, reply))
            case fx.SendRead():
                answer = partial(self._read, ledger_id, call, reply)
                if self._draws_read_error():
                    answer(Code.IO_ERROR)
                elif call.fence:  # a recovery read (rule 2)
                    self._fence(ledger_id, key, lambda code, _lac: answer(code))
                else:
                    question = KeyQuestion(self.machine, ledger_id, key)
                    question.begin()
                    self.settle(question, lambda: answer(question.verdict.code))
            case fx.SendForce():
                self.force(ledger_id, call, reply)
            case fx.SendLacRead():
                self.polls.ask(ledger_id, call, reply)
            case fx.ReadLimbo():
                nonce = self.limbo_nonce(ledger_id)
                reply(ev.LimboRead(self.name, call.request_id, Code.OK, nonce, self.boot_id))
            case fx.ClearLimbo():
                self._clear_limbo(ledger_id, call, reply)

    # Fence, read, force

    def _fence(self, ledger_id: LedgerId, key: str, done: Callable[[Code, LacAnswer], None]) -> None:
        """Fence; `done` is called when that is durable (rule 4), or refused."""
        decided: list[FenceDecided[Written]] = []
        question = FenceQuestion(self.machine, ledger_id, key, decided.append)

        def settled() -> None:
            if decided:
                self.queue(decided[0].records, partial(self._fence_settled, question, decided[0], done))
            else:
                question.end()
                done(question.verdict.code, NO_LAC)

        question.begin()
        self.settle(question, settled)

    def _fence_settled(
        self,
        question: FenceQuestion[Written],
        fence: FenceDecided[Written],
        done: Callable[[Code, LacAnswer], None],
        code: Code,
    ) -> None:
        if code is Code.OK:
            fence.is_durable()
        question.end()
        if code is Code.OK:
            self.polls.wake(question.ledger_id, fence.lac)
        done(code, fence.lac)

    def _fence_done(
        self, ledger_id: LedgerId, call: fx.SendFence, reply: Callable[..., None], code: Code, lac: LacAnswer
    ) -> None:
        if code is not Code.OK:
            reply(refusal(call, code))
            return
        if not self.was_replaced:  # the checkers ask the disk that counts
            self.cluster.checkers.fence_answered(self.name, ledger_id)
        held = self.storage.caches.get(ledger_id, {})
        self.cluster.twins.testifies(self, ledger_id, held, limbo=lac.limbo or self.journalled is not None)
        # In limbo it is worth nothing, so it may as well be anything (rule 29).
        answered = lac.last_add_confirmed + (self._noise.randrange(4) if lac.limbo else 0)
        self.note(f"is fenced for ledger {ledger_id}; LAC {lac.last_add_confirmed}{', in limbo' * lac.limbo}")
        reply(ev.FenceAnswered(self.name, call.request_id, Code.OK, answered, lac.length_at_lac, lac.limbo))

    def _draws_read_error(self) -> bool:
        error = self.cluster.swarm.read_error
        if not self.cluster.is_faulty or not error or self._rng.random() >= error:
            return False
        self.world.tally.fault("read error")
        return True

    def _read(self, ledger_id: LedgerId, call: fx.SendRead, reply: Callable[..., None], code: Code) -> None:
        """As the server reads: cache and store, and what cannot be read is named (rule 26)."""
        if code is not Code.OK:
            reply(refusal(call, code))
            return
        first = call.first
        scan, found, damaged = self.scan(self._source(), ledger_id, first, call.last, call.bytes_max)
        self._check_read(ledger_id, first, scan.through, found, damaged)
        reply(
            ev.ReadAnswered(
                self.name,
                call.request_id,
                Code.OK,
                tuple(Entry(entry, found[entry]) for entry in sorted(found)),
                tuple(damaged),
                scan.through,
                scan.limbo,
                scan.last_add_confirmed,
                scan.length_at_lac,
            )
        )

    def _source(self) -> RangeSource:
        if self.journalled is None:
            return MemorySource(self)
        return StorageSource(self.journalled.storage, self.machine.ledgers, nullcontext())

    def _check_read(
        self,
        ledger_id: LedgerId,
        first: EntryId,
        through: EntryId,
        found: dict[EntryId, bytes],
        damaged: list[EntryId],
    ) -> None:
        if self.journalled is not None:
            held, named = self.journalled.held(ledger_id), found.keys() | set(damaged)
            silent = [n for n in range(first, through + 1) if held.contains(n) and n not in named]
            if silent:
                self.cluster.checkers.fail(
                    "what is there is given or named",
                    f"{self.name} is silent on {silent} of {ledger_id} (rule 26)",
                )
        accepted = [entry for entry in self._unsynced(ledger_id) if first <= entry <= through]
        self.cluster.checkers.read_meets(self.name, ledger_id, accepted, found)

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

    def force(self, ledger_id: LedgerId, call: fx.SendForce, reply: Callable[..., None]) -> None:
        """Answer once everything that was accepted deferred is synced (rule 22)."""

        def settle(code: Code) -> None:
            reply(ev.ForceAnswered(self.name, call.request_id, code, self.boot_id))

        code = self.machine.force(ledger_id)
        if code is Code.OK:
            self.when_durable(settle)
        else:
            settle(code)

    # Auditor and repair

    def listing(
        self,
        ledger_id: LedgerId,
        reply: Callable[..., None],
        refused: Callable[[], None] = nothing,
    ) -> None:
        """Answer with the entries that are here, the LAC, and whether that is all in limbo, once it is durable."""
        if not self.serving:
            return
        lac = self.machine.lac(ledger_id)
        entries = frozenset(self.storage.caches.get(ledger_id, ())) - self.known_damage(ledger_id)

        def settle(code: Code) -> None:
            if code is Code.OK:
                self.cluster.checkers.synced_by(self.name, ledger_id, entries)
                reply(self.name, entries, lac)
            else:
                refused()

        self.when_durable(settle)

    def _clear_limbo(self, ledger_id: LedgerId, call: fx.ClearLimbo, reply: Callable[..., None]) -> None:
        """End limbo, if the nonce still stands; answered when that is durable."""
        stands = self.limbo_nonce(ledger_id)
        record = self.machine.clear_limbo(ledger_id, call.nonce)
        if record is None:
            reply(refusal(call, Code.OK))
            return
        self.world.tally.state("limbo cleared")
        self.note(f"is out of limbo for ledger {ledger_id}")
        if call.nonce != stands:
            self.cluster.checkers.fail("a stale nonce clears nothing", f"{self.name}, {ledger_id} (rule 29)")
        self.cluster.checkers.limbo_cleared(self.name, ledger_id, self.storage.caches.get(ledger_id, {}))

        def settle(code: Code) -> None:
            reply(ev.LimboCleared(self.name, call.request_id, code, cleared=code is Code.OK))

        self.queue([record], settle)

    # For the collector

    def removable(self, ledger_id: LedgerId) -> IntervalSet:
        """What is here of the ledger and could be taken out; what is still in the write cache waits for later."""
        if self.journalled is not None:
            return self.journalled.stored(ledger_id)
        held = IntervalSet()
        held.add_ids(sorted(self.storage.caches.get(ledger_id, ())))
        return held

    def remove(self, ledger_id: LedgerId, entries: list[EntryId]) -> None:
        """Take replicas out, with the next flush or sync."""
        if self.journalled is None:
            for entry in entries:
                del self.storage.caches[ledger_id][entry]
        removed = EntriesRemoved(ledger_id, tuple(entries))
        self.disk.take(removed)
        self.queue([removed])

    def on_removed(self, ledger_id: LedgerId) -> None:
        """The store has what was left."""
        assert self.journalled is not None
        cache = self.storage.caches.get(ledger_id, {})
        held = self.journalled.held(ledger_id)
        for entry in [entry for entry in cache if not held.contains(entry)]:
            del cache[entry]
