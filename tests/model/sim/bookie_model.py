"""A simulated bookie: the real ledger machine, stream bookkeeping and frames, over a disk that tells what a crash keeps.

It does what the server does and in the same order: check and cache under one lock (here: in one event, rule 43), journal,
one sync for all that waits, then answers; nothing is answered before its sync returned (rule 23). What differs from the
server is only that threads, sockets and files are events.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Final

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.errors import Code
from daybook.core.format.frame import FrameHeader, decode_entries, split_message
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswers
from tests.model.sim.bookie_calls import BookieCalls
from tests.model.sim.disk import Entries, FrameWritten, RecordWritten
from tests.model.sim.metadata_model import LOST, SUPERSEDED, Session, Versioned
from tests.model.sim.network import Stream
from tests.model.sim.twin_boot import RETRY_US, TwinBoot

_SENTINEL: Final = -1


class SimBookie(BookieCalls):
    """One bookie process and its disk."""

    read_only = False
    was_the_bookie = False
    """This start of it has been registered."""
    is_stamped = False
    """The cookie is this process's, if it is not the bookie's first."""
    retired = False
    """An operator takes it out of the cluster: it is read-only, over restarts as well."""
    gone = False
    """… and it is stopped for good."""
    _nonces = 0

    # Life

    def start(self) -> None:
        """Start, or start again: replay the disk, mark limbo if it is a new one, register."""
        if self.gone or self.was_replaced:
            self.note("does not start: it is the bookie no more")
            return
        self.alive = True
        self.was_the_bookie = False
        self._reset()
        for ledger_id, stored in self.disk.ledgers.items():
            self.caches[ledger_id] = self.disk.readable(ledger_id)
            record = replace(
                stored.record,
                last_add_confirmed=stored.last_add_confirmed,
                length_at_lac=stored.length_at_lac,
            )
            self.ledgers[ledger_id] = BookieLedger.restored(record)
            if record.introduced:
                self.looked.add(ledger_id)
        self.note(f"starts with {len(self.ledgers)} ledgers")
        self.session = self.cluster.store.connect(self)
        if self._boots_beside_another:
            self._twin_boot.begin()
        elif self.replaced:
            self._ask_what_it_owed()
        else:
            self._serve()
        self.collector.start()
        self._flush_soon()
        if self.journalled is not None and self.read_only:
            self._is_full()

    def crash(self) -> None:
        """Power is lost; the session expires by itself some time later."""
        kept, lost = self.disk.crash(self._rng, self.cluster.swarm.keep_unsynced)
        tally = self.world.tally
        if self.journalled is not None and self.journalled.is_torn:
            tally.state("torn group")
        if kept:
            tally.fault("unsynced records kept")
            for written in kept:
                self._tell_durable(written)
        if lost:
            tally.fault("unsynced records lost")
        self.note(f"crashes; of what was not synced {len(kept)} records survive, {lost} do not")
        self.cluster.expire_later(self.session)
        self.stop()
        self._reset()

    def fail(self) -> None:
        """Crash, if anything may go wrong now."""
        self.cluster.crash_bookie(self)

    def wipe(self) -> None:
        """The disk is lost while the process is down, and the operator authorises the replacement (rule 29)."""
        assert not self.alive
        self.disk.wipe()
        self.replaced = True
        self.note("loses its disk")
        self.world.tally.fault("disk lost")

    @property
    def _boots_beside_another(self) -> bool:
        return self.place != self.name and not self.is_stamped

    @cached_property
    def _twin_boot(self) -> TwinBoot:
        return TwinBoot(self, self._mark_limbo, self._serve)

    def superseded(self) -> None:
        """Another process is the bookie: this one stops without another answer (rule 57)."""
        self.note("stops: it is the bookie no more")
        self.world.tally.state("superseded")
        self.crash()

    def _ask_what_it_owed(self) -> None:
        """List, after a sync, every ledger that names this bookie; not before the old registration is gone."""
        store = self.cluster.store
        if store.registered.get(self.name) is not None:
            self.later(RETRY_US, self._ask_what_it_owed)
            return
        store.request(self.session, self._mark_limbo, lambda: dict(store.ledgers))

    def _mark_limbo(self, answer: object) -> None:
        if not isinstance(answer, dict):
            self._reconnect_if_expired()
            again = self._twin_boot.begin if self._boots_beside_another else self._ask_what_it_owed
            self.later(RETRY_US, again)
            return
        for ledger_id, found in answer.items():
            if self._must_mark(found):
                self._nonces += 1
                ledger = self._ledger(ledger_id)
                ledger.enter_limbo(f"{self.boot_id}/{self._nonces}")
                self._journal_record(ledger)
                self.world.tally.state("limbo")
                self.cluster.checkers.audits.in_limbo(self.name, ledger_id, self.world.now_ms)
                self.note(f"is in limbo for ledger {ledger_id}")
        mark = RecordWritten(self._ledger(_SENTINEL).record())
        self.disk.write(mark, self._limbo_is_durable, self.fail)
        self._sync_soon()

    def _must_mark(self, found: Versioned) -> bool:
        return self.name in found.metadata.bookies()

    def _limbo_is_durable(self) -> None:
        """Stamp the cookie and serve: from here on it is an ordinary bookie."""
        del self.ledgers[_SENTINEL], self.caches[_SENTINEL], self.disk.ledgers[_SENTINEL]
        self.replaced = False
        if self._boots_beside_another:
            self._twin_boot.marked()
        else:
            self._serve()

    def _serve(self) -> None:
        self.serving = True
        self._register()

    def _register(self) -> None:
        self._reconnect_if_expired()
        info = replace(self.info, writable=not (self.read_only or self.retired), boot_id=self.boot_id)
        self.cluster.store.request(
            self.session, self._registered, self.cluster.store.register, self.session, info
        )

    def _registered(self, answer: object) -> None:
        if answer is SUPERSEDED:
            self.superseded()
        elif answer is True:
            self.was_the_bookie = True
        else:
            self.later(RETRY_US, self._register)

    def session_expired(self) -> None:
        """It goes on serving, and registers anew."""
        if self.serving:
            self.later(RETRY_US, self._register)

    def set_read_only(self, *, read_only: bool) -> None:
        """Run out of space, or have it back (rule 30)."""
        self.read_only = read_only
        if self.serving:
            self._register()

    def leave(self) -> None:
        """Stop for good."""
        self.gone = True
        if self.alive:
            self.crash()

    def throw_away(self) -> None:
        """Its disk is no more."""
        self.disk.wipe()

    def retire(self, *, retired: bool) -> None:
        """Refuse normal writes at the word of an operator, or take them again."""
        self.retired = retired
        self._register()

    def _reconnect_if_expired(self) -> None:
        if self.session.expired:
            self.session = self.cluster.store.connect(self)

    def live_session(self) -> Session:
        """Its session, a new one if the last has expired."""
        self._reconnect_if_expired()
        return self.session

    # Streams

    def attach(self, stream: Stream, ledger_id: LedgerId, key: str, purpose: Purpose) -> None:
        """A client presents a ledger's password on a stream."""
        if stream.ended:
            return
        if not self.serving:
            self._attached(stream, ledger_id, purpose, Code.UNAVAILABLE)
            return
        ledger = self._ledger(ledger_id)
        verdict = ledger.attach(stream.number, key, purpose)
        if verdict is AttachVerdict.NEEDS_METADATA:
            answer = partial(self._attach_with, ledger, stream, key, purpose)
            store, session = self.cluster.store, self.live_session()
            read: Callable[..., object] = store.read
            if self.name in self.cluster.twins.split:
                read = partial(store.read_as, session, self.name, self.place)
            store.request(session, answer, read, ledger_id)
        else:
            self._attached(stream, ledger_id, purpose, verdict.code)

    def _attach_with(
        self, ledger: BookieLedger, stream: Stream, key: str, purpose: Purpose, answer: object
    ) -> None:
        if answer is LOST:
            self._attached(stream, ledger.ledger_id, purpose, Code.UNAVAILABLE)
            return
        if answer is SUPERSEDED:
            if self.was_the_bookie:
                self.superseded()
            else:  # the session of the process before it has not ended yet
                self._attached(stream, ledger.ledger_id, purpose, Code.UNAVAILABLE)
            return
        metadata = answer.metadata if isinstance(answer, Versioned) else None
        self.looked.add(ledger.ledger_id)
        if stream.ended:
            return
        verdict = ledger.attach_with_metadata(stream.number, key, purpose, metadata)
        if verdict is AttachVerdict.OK and self.ledgers.get(ledger.ledger_id) is not ledger:
            what = f"{self.name}, ledger {ledger.ledger_id}, which it has collected (rule 20)"
            self.cluster.checkers.fail("an old read of metadata lets no one in", what)
        self._attached(stream, ledger.ledger_id, purpose, verdict.code)

    def _attached(self, stream: Stream, ledger_id: LedgerId, purpose: Purpose, code: Code) -> None:
        self._send(stream, self.cluster.client_of(stream).attached, stream, ledger_id, purpose, code)

    def _send(self, stream: Stream, receive: Callable[..., None], *args: object) -> None:
        if not stream.send(stream.client, receive, *args):
            self.cluster.stream_broke(stream)

    def message(self, stream: Stream, data: bytes) -> None:
        """A message of frames arrived."""
        if stream.ended:
            return
        _, answers = self.streams.setdefault(stream.number, (stream, StreamAnswers()))
        frames = split_message(data)
        number = answers.receive(len(frames))
        for index, (header, offset) in enumerate(frames):
            code = self._take(stream, (number, index), data, header, offset)
            if code is not Code.OK:
                answers.fail(number, index, code)
        self._sync_soon()
        self._answer(stream)

    def _take(
        self, stream: Stream, place: tuple[int, int], data: bytes, header: FrameHeader, offset: int
    ) -> Code:
        """Check and cache in one step (rule 43), then journal."""
        if not self.serving:
            return Code.UNAVAILABLE
        if self._refuses_for_space(header):
            return Code.READ_ONLY
        if self._draws_refusal():
            return Code.BAD_FRAME
        ledger = self._ledger(header.ledger_id)
        code = ledger.accept(stream.number, header)
        if code is not Code.OK:
            if code is Code.FENCED:
                self.world.tally.state("fence race")
            return code
        lac = header.last_add_confirmed
        self.cluster.checkers.accepted(
            self.name,
            ledger.ledger_id,
            recovery=header.is_recovery,
            lac=lac,
            fenced=ledger.fenced,
            looked=ledger.ledger_id in self.looked,
        )
        found, damaged = decode_entries(data, header, offset)
        assert not damaged, "the simulator damages no bytes on the way"
        entries: Entries = {entry.entry_id: entry.data for entry in found}
        self._cache_frame(ledger.ledger_id, entries)
        self.adds[ledger.ledger_id] += 1
        self.polls.wake(ledger)
        if ledger.record_changed:
            self._journal_record(ledger)
        early = ledger.may_ack_before_sync(header)
        deferred = ledger.deferred_accepted
        frame = data[offset : offset + header.size_bytes] if self.journalled is not None else b""
        self.disk.write(
            FrameWritten(ledger.ledger_id, entries, lac, header.length_at_lac, frame),
            partial(self._frame_is_durable, stream, place[0], ledger, deferred, early),
            partial(self._frame_is_refused, stream, place, early),
        )
        if early:
            self.streams[stream.number][1].succeed(place[0])
        return Code.OK

    def _refuses_for_space(self, header: FrameHeader) -> bool:
        """A reserve is kept for recovery (rule 30)."""
        return (self.read_only or self.retired) and not header.is_recovery

    def _cache_frame(self, ledger_id: LedgerId, entries: Entries) -> None:
        self.caches[ledger_id].update(entries)

    def _draws_refusal(self) -> bool:
        """A frame may be damaged on its way to one bookie, which refuses it as every bookie would (rule 21)."""
        refusal = self.cluster.swarm.refusal
        if not self.cluster.is_faulty or not refusal or self._rng.random() >= refusal:
            return False
        self.world.tally.fault("frame refused")
        return True

    def _frame_is_durable(
        self, stream: Stream, number: int, ledger: BookieLedger, deferred: int, early: bool
    ) -> None:
        ledger.deferred_synced(deferred)
        self._answer_forcers()
        entry = self.streams.get(stream.number)
        if entry is not None and not early:
            entry[1].succeed(number)
            self._answer(stream)

    def _frame_is_refused(self, stream: Stream, place: tuple[int, int], early: bool) -> None:
        entry = self.streams.get(stream.number)
        if entry is not None and not early:
            entry[1].fail(*place, Code.READ_ONLY)
            self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        answer = self.streams[stream.number][1].take_answer()
        if answer is not None:
            self._send(stream, self.cluster.client_of(stream).answered, stream, answer, self.boot_id)

    def stream_lost(self, stream: Stream) -> None:
        """The stream ended."""
        stream.ended = stream.broken = True
        self.streams.pop(stream.number, None)
        for ledger in self.ledgers.values():
            ledger.detach(stream.number)
