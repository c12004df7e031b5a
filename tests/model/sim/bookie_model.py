"""A simulated bookie: the real machine, stream bookkeeping and frames, over a disk that knows what a crash keeps.

The core's `BookieMachine` decides, as on the server, and in the same order: check and cache under one lock (here: in one
event, rule 43), journal, one sync for all that waits, then answers; nothing is answered before its sync returned (rule 23).
What differs from the server is only that threads, sockets and files are events.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from daybook_bookie.journal.format import NONCE_BYTES

from daybook.core.bookie.attachment import Attachment
from daybook.core.bookie.ledger import AttachVerdict, LacAnswer, Purpose
from daybook.core.errors import Code
from daybook.core.format.frame import split_message
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswers
from tests.model.sim.bookie_calls import BookieCalls
from tests.model.sim.disk import Written
from tests.model.sim.metadata_model import LOST, SUPERSEDED, Session, Stamp, Steps, Versioned
from tests.model.sim.network import Stream
from tests.model.sim.world import MS

RETRY_US: Final = 20 * MS


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
            record = replace(
                stored.record,
                last_add_confirmed=stored.last_add_confirmed,
                length_at_lac=stored.length_at_lac,
            )
            self.storage.restored(record, self.disk.readable(ledger_id))
            if record.introduced:
                self.has_read.add(ledger_id)
        self.note(f"starts with {len(self.known_ids())} ledgers")
        self._space_changed()
        self.session = self.cluster.store.connect(self)
        if self._boots_beside_another:
            self._claim()
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
                self._report_durable(written)
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
            again = self._claim if self._boots_beside_another else self._ask_what_it_owed
            self.later(RETRY_US, again)
            return
        records = []
        for ledger_id, found in answer.items():
            if self._must_mark(found):
                self._nonces += 1
                nonce = f"{self.boot_id}/{self._nonces}".encode().ljust(NONCE_BYTES, b"\0").hex()
                records.append(self.machine.mark_limbo(ledger_id, nonce))
                self.world.tally.state("limbo")
                self.cluster.checkers.audits.in_limbo(self.name, ledger_id, self.world.now_ms)
                self.note(f"is in limbo for ledger {ledger_id}")
        self.queue(records, self._limbo_is_journalled)

    # A process whose predecessor may live takes the claim, lists, marks and stamps the cookie (rule 57)

    def _claim(self) -> None:
        self.cluster.store.converse(self._claiming())

    def _claiming(self) -> Steps:
        """Take the claim; again, whenever it was lost."""
        store = self.cluster.store
        answer = yield self.live_session(), store.claim, self.session, self.name, self.place
        if answer is Stamp.REFUSED:
            self.cluster.twins.refused(self)
        elif answer is Stamp.DONE:
            self._mark_limbo((yield self.session, lambda: dict(store.ledgers)))
        else:
            self.later(RETRY_US, self._claim)

    def _stamping(self) -> Steps:
        """The marks are durable."""
        answer = yield self.session, self._stamp
        if answer is Stamp.REFUSED:
            self.cluster.twins.refused(self)
        elif self.is_stamped:
            self._serve()
        else:
            self._claim()

    def _stamp(self) -> Stamp:
        """At ZooKeeper."""
        outcome = self.cluster.store.stamp(self.session, self.name, self.place)
        if outcome is Stamp.DONE and not self.is_stamped:
            self.is_stamped = True
            self.cluster.twins.stamped(self)
        return outcome

    def _must_mark(self, found: Versioned) -> bool:
        return self.name in found.metadata.bookies()

    def _limbo_is_journalled(self, code: Code) -> None:
        """Stamp the cookie and serve: from here on it is an ordinary bookie."""
        if code is not Code.OK:
            self.fail()
            return
        self.replaced = False
        if self._boots_beside_another:
            self.cluster.store.converse(self._stamping())
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
        """It continues to serve, and registers anew."""
        if self.serving:
            self.later(RETRY_US, self._register)

    def set_read_only(self, *, read_only: bool) -> None:
        """Run out of space, or have it back (rule 30)."""
        self.read_only = read_only
        self._space_changed()
        if self.serving:
            self._register()

    def _space_changed(self) -> None:
        self.machine.set_space(takes_all=not (self.read_only or self.retired), keeps_reserve=True)

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
        self._space_changed()
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
        attachment = Attachment(self.machine, stream.number, ledger_id, key, purpose)
        attachment.begin()
        self._attach_on(attachment, stream, ledger_id, purpose)

    def _attach_on(
        self, attachment: Attachment, stream: Stream, ledger_id: LedgerId, purpose: Purpose
    ) -> None:
        """Answer, or ask for the ledger's metadata."""
        if attachment.is_done:
            self._attached(stream, ledger_id, purpose, attachment.verdict.code)
            return
        attachment.ask()
        answer = partial(self._attach_with, attachment, stream, ledger_id, purpose)
        store, session = self.cluster.store, self.live_session()
        read: Callable[..., object] = store.read
        if self.name in self.cluster.twins.split:
            read = partial(store.read_as, session, self.name, self.place)
        store.request(session, answer, read, ledger_id)

    def _attach_with(
        self, attachment: Attachment, stream: Stream, ledger_id: LedgerId, purpose: Purpose, answer: object
    ) -> None:
        if answer is SUPERSEDED and self.was_the_bookie:
            self.superseded()
            return
        if (
            answer is LOST or answer is SUPERSEDED
        ):  # the session of the process before it may not have ended yet
            attachment.give_up()
        else:
            self.has_read.add(ledger_id)
            asked = attachment.held
            attachment.metadata_read(
                answer.metadata if isinstance(answer, Versioned) else None, stream_ended=stream.ended
            )
            is_in = attachment.verdict is AttachVerdict.OK and not stream.ended
            if is_in and self.machine.ledgers.get(ledger_id) is not asked:
                what = f"{self.name}, ledger {ledger_id}, which it has deleted (rule 20)"
                self.cluster.checkers.fail("an old read of metadata lets no one in", what)
        if not stream.ended:
            self._attach_on(attachment, stream, ledger_id, purpose)
        elif not attachment.is_done:
            attachment.give_up()

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
        item = _Message(self, stream, answers.receive(len(frames)))
        refused: dict[int, Code] = {}
        for index in range(len(frames)):
            if not self.serving:
                refused[index] = Code.UNAVAILABLE
            elif self._draws_refusal():
                refused[index] = Code.BAD_FRAME
        self.machine.append(stream.number, data, frames, refused, item)
        if item.records:
            self.queue(item.records, item.settle)
        answers.decide(item.number, item.early, Code.OK)
        for index, code in refused.items():
            if code is Code.FENCED:
                self.world.tally.state("fence race")
            answers.decide(item.number, [index], code)
        self._answer(stream)

    def _draws_refusal(self) -> bool:
        """A frame may be damaged on its way to one bookie, which refuses it as every bookie would (rule 21)."""
        refusal = self.cluster.swarm.refusal
        if not self.cluster.is_faulty or not refusal or self._rng.random() >= refusal:
            return False
        self.world.tally.fault("frame refused")
        return True

    def decide(self, stream: Stream, message: int, frames: list[int], code: Code) -> None:
        """Frames of a message are durable, or refused."""
        entry = self.streams.get(stream.number)
        if entry is not None:
            entry[1].decide(message, frames, code)
            self._answer(stream)

    def _answer(self, stream: Stream) -> None:
        answer = self.streams[stream.number][1].take_answer()
        if answer is not None:
            self._send(stream, self.cluster.client_of(stream).answered, stream, answer, self.boot_id)

    def stream_lost(self, stream: Stream) -> None:
        """The stream ended."""
        stream.ended = stream.broken = True
        self.streams.pop(stream.number, None)
        self.machine.ledgers.detach(stream.number)


class _Message:
    """The accepted frames of one message on their way through the journal; see MessageDecided."""

    def __init__(self, bookie: SimBookie, stream: Stream, number: int) -> None:
        self._bookie = bookie
        self._stream = stream
        self.number = number
        self.records: list[Written] = []
        self.frames: list[int] = []
        self.early: list[int] = []
        self.news: list[tuple[LedgerId, LacAnswer]] = []

    def settle(self, code: Code) -> None:
        """The journal has the records, or had no room for them."""
        if code is Code.OK:
            for ledger_id, lac in self.news:
                self._bookie.polls.wake(ledger_id, lac)
        self._bookie.decide(self._stream, self.number, self.frames, code)
