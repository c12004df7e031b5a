"""A simulated bookie: the real machine, stream bookkeeping and frames, over a disk that knows what a crash keeps.

The core's `BookieMachine` decides, as on the server, and in the same order: check and cache under one lock (here: in one
event, rule 43), journal, one sync for all that waits, then answers; nothing is answered before its sync returned (rule 23).
What differs from the server is only that threads, sockets and files are events.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, LacAnswer, Purpose
from daybook.core.bookie.life import Superseded, WritesAllowed
from daybook.core.bookie.questions import Attachment
from daybook.core.errors import Code
from daybook.core.format.frame import split_message
from daybook.core.format.lac_table import decode_lac_table
from daybook.core.ids import LedgerId
from daybook.core.stream import StreamAnswers
from tests.model.sim.bookie_boot import RETRY_US, SimBoot
from tests.model.sim.bookie_calls import BookieCalls
from tests.model.sim.disk import Written
from tests.model.sim.metadata_model import SUPERSEDED
from tests.model.sim.network import Stream


class SimBookie(BookieCalls):
    """One bookie process and its disk."""

    read_only = False
    disks_lost = 0
    """How many; it says which disk a late stamp is of."""
    is_stamped = False
    """The cookie is this process's, if it is not the bookie's first."""
    retired = False
    """An operator takes it out of the cluster: it is read-only, over restarts as well."""
    gone = False
    """… and it is stopped for good."""

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
        SimBoot(self, self.life).begin()
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
                self.report_durable(written)
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
        self.disks_lost += 1
        self.replaced = True
        self.note("loses its disk")
        self.world.tally.fault("disk lost")

    @property
    def _boots_beside_another(self) -> bool:
        return self.place != self.name and not self.is_stamped

    @property
    def needs_stamp(self) -> bool:
        """Whether its cookie is not the one that counts, or is on a disk that was lost."""
        return self.replaced or self._boots_beside_another

    def stamped(self, disks_lost: int) -> None:
        """Its cookie is in ZooKeeper, stamped by a process that started when this many disks had been lost.

        The disk that was lost since had the other half of the cookie and the marks: the empty one in its place is judged for itself (rule 29).
        """
        is_beside_another = self._boots_beside_another
        self.is_stamped = True
        if disks_lost == self.disks_lost:
            self.replaced = False
        if is_beside_another:
            self.cluster.twins.stamped(self)

    def superseded(self) -> None:
        """Another process is the bookie: this one stops without another answer (rule 57)."""
        self.note("stops: it is the bookie no more")
        self.life.step(Superseded("it is the bookie no more"))
        self.world.tally.state("superseded")
        self.crash()

    def started(self) -> None:
        """It has started: from here on it is an ordinary bookie."""
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
        takes_all = not (self.read_only or self.retired)
        self.machine.set_space(takes_all=takes_all, keeps_reserve=True)
        self.life.step(WritesAllowed(takes_all))

    def leave(self) -> None:
        """Stop for good."""
        self.gone = True
        if self.alive:
            self.crash()

    def stay(self) -> None:
        """The operator starts it again: it is still needed."""
        if self.gone:
            self.gone = False
            self.start()

    def throw_away(self) -> None:
        """Its disk is no more."""
        self.disk.wipe()

    def retire(self, *, retired: bool) -> None:
        """Refuse normal writes at the word of an operator, or take them again."""
        self.retired = retired
        self._space_changed()
        self._register()

    # Streams

    def attach(self, stream: Stream, ledger_id: LedgerId, key: str, purpose: Purpose) -> None:
        """A client presents a ledger's password on a stream."""
        if stream.ended:
            return
        if not self.serving:
            self._attached(stream, ledger_id, purpose, Code.UNAVAILABLE)
            return
        attachment = Attachment(
            self.machine, stream.number, ledger_id, key, purpose, has_ended=lambda: stream.ended
        )
        attachment.begin()
        check = partial(self._check_attachment, attachment, stream)
        self.settle(attachment, partial(self._attach_settled, attachment, stream, purpose), check)

    def end_attachment(self, stream: Stream, ledger_id: LedgerId, purpose: Purpose) -> None:
        """A client is done with a ledger."""
        if not stream.ended and self.serving:
            self.machine.ledgers.end_attachment(stream.number, ledger_id, purpose)

    def _check_attachment(
        self, attachment: Attachment[Written], stream: Stream, asked: BookieLedger | None
    ) -> None:
        """The metadata was read for `asked`."""
        ledger_id = attachment.ledger_id
        self.has_read.add(ledger_id)
        is_in = attachment.verdict is AttachVerdict.OK and not stream.ended
        if is_in and self.machine.ledgers.get(ledger_id) is not asked:
            what = f"{self.name}, ledger {ledger_id}, which it has deleted (rule 20)"
            self.cluster.checkers.fail("an old read of metadata lets no one in", what)

    def _attach_settled(self, attachment: Attachment[Written], stream: Stream, purpose: Purpose) -> None:
        if not stream.ended:
            self._attached(stream, attachment.ledger_id, purpose, attachment.verdict.code)

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

    def lac_table(self, stream: Stream, data: bytes) -> None:
        """A table of LACs arrived; nothing is answered."""
        if stream.ended or not self.serving:
            return
        rows, damaged = decode_lac_table(data)
        assert not damaged, "the simulator damages no bytes on the way"
        table = _Table(self)
        self.machine.publish(stream.number, rows, table)
        if table.news:
            self.world.tally.state("LAC that a poll waits for")
            self.queue(table.records, table.settle)
        else:
            self.queue_unhurried(table.records)

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


class _Table:
    """The LACs of a table that are news, on their way through the journal; see TableDecided."""

    def __init__(self, bookie: SimBookie) -> None:
        self._bookie = bookie
        self.records: list[Written] = []
        self.news: list[tuple[LedgerId, LacAnswer]] = []

    def settle(self, code: Code) -> None:
        """The journal has the records, or had no room for them."""
        if code is Code.OK:
            for ledger_id, lac in self.news:
                self._bookie.polls.wake(ledger_id, lac)


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
