"""A client's streams to bookies: attach, gather while a message is under way, send, take the answers (rule 49)."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.bookie.ledger import Purpose
from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, decode_header, frame_entry_ids
from daybook.core.format.lac_table import encode_lac_table
from daybook.core.ids import BookieId, LedgerId
from daybook.core.lac_rows import LacRows
from daybook.core.placement.policy import BookieInfo
from daybook.core.stream import StreamAnswer, StreamWindow, WindowLimits
from tests.model.sim.client_process import ClientProcess
from tests.model.sim.metadata_model import LOST
from tests.model.sim.network import Stream
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_model import SimBookie
    from tests.model.sim.cluster import Cluster

REQUEST_TIMEOUT_US: Final = 60 * MS
_NOTICE_US: Final = 30 * MS
_STALL_US: Final = 150 * MS
_LAC_PAUSE_US: Final = 25 * MS
_HASTY: Final = 0.2
"""How often a row is also sent before the answer to the attachment: a bookie must not take it."""


class Channel:
    """This client's stream to one bookie: what waits for the attach, what waits for room, what is under way."""

    __slots__ = ("answered_us", "attached", "queue", "row", "stream", "target", "window")

    def __init__(self, stream: Stream, target: "SimBookie", now_us: int, limits: WindowLimits) -> None:
        self.stream = stream
        self.target = target
        self.answered_us = now_us
        """When the bookie answered last, or owed no answer."""
        self.window: StreamWindow[int] = StreamWindow(limits)
        self.attached = False
        self.queue: deque[tuple[int, bytes]] = deque()
        self.row: bytes | None = None
        """The LAC that was published before the attachment."""


class StreamClient(ClientProcess):
    """The streams of one client; a driver says what happens with what they bring."""

    purpose = Purpose.RECOVERY
    is_deferred = False
    """Whether bookies answer its frames before they sync."""

    def __init__(self, cluster: "Cluster", name: str, ledger_id: LedgerId, key: str) -> None:
        super().__init__(cluster.world, name)
        self.cluster = cluster
        self.ledger_id = ledger_id
        self.key = key
        self.channels: dict[BookieId, Channel] = {}
        self._channel_of: dict[int, Channel] = {}
        """Closed ones, too: what they still answer must not count (rule 49)."""
        self._frames: dict[int, tuple[int, BookieId]] = {}
        """Frames without an answer: deadline and bookie."""
        self.sent: dict[int, bytes] = {}
        """What each frame was, for the checkers."""
        self._rows: dict[BookieId, LacRows[LedgerId]] = {}
        """What was published to each bookie, whatever the stream."""
        self._haste = self.world.rng(f"{name}/rows")
        self.view = dict(cluster.store.bookies())
        """Where the bookies are, and which process each is, as far as this client knows."""
        self._unregistered: set[BookieId] = set()
        """Those that were named anew when none of their processes was registered (rule 57)."""

    # Which process a bookie is (rule 57)

    def process_of(self, bookie: BookieId) -> "SimBookie":
        """Whom this client takes for the bookie."""
        return self.cluster.twins.meant(bookie, self.view)

    def registered_changed(self, registered: Mapping[BookieId, BookieInfo]) -> None:
        """See ClientProcess. A stream to a process that is the bookie no more ends."""
        self.view |= registered
        for bookie in sorted(self.cluster.twins.split & self.channels.keys()):
            if not self._is_the_bookie(self.channels[bookie].target):
                self.stream_lost(self.channels[bookie].stream)
        self.bookies_changed(registered)

    def _is_the_bookie(self, process: "SimBookie") -> bool:
        return self.cluster.twins.is_meant(process, self.view)

    def _confirm(self, bookie: BookieId, then: Callable[[bool], None]) -> None:
        """Read the bookie's registration; `then` receives whether there is one, and the client relies on that from then on."""
        store = self.cluster.store

        def read(answer: object) -> None:
            current = None if answer is LOST else store.registration(bookie)
            if current is not None:
                self.view[bookie] = current
            then(current is not None)

        store.request(self.session_now(), read, store.registration, bookie)

    def _hello_is_judged(self, channel: Channel, _is_registered: bool) -> None:
        if self.channels.get(channel.target.name) is not channel:
            return
        if self._is_the_bookie(channel.target):
            self._may_send(channel)
        else:
            self.stream_lost(channel.stream)

    def _may_send(self, channel: Channel) -> None:
        channel.attached = True
        if channel.row is not None:
            self._rows[channel.target.name].publish(self.ledger_id, channel.row)
            channel.row = None
        self._pump(channel)

    def _named_anew(self, bookies: Sequence[BookieId], then: Callable[[], None]) -> None:
        """Nothing is sent to any of `bookies` before its registration was read; then continue."""
        if not bookies:
            then()
            return

        def read(is_registered: bool) -> None:
            (self._unregistered.discard if is_registered else self._unregistered.add)(bookies[0])
            self._named_anew(bookies[1:], then)

        self._confirm(bookies[0], read)

    # Streams

    def feed(self, event: ev.Event) -> None:
        """Give the machine an event."""
        raise NotImplementedError

    def bookie_lost(self, bookie: BookieId) -> None:
        """The stream to `bookie` broke: what was asked of it has no answer."""
        raise NotImplementedError

    def _channel(self, bookie: BookieId) -> Channel:
        channel = self.channels.get(bookie)
        if channel is None:
            target = self.process_of(bookie)
            channel = self.channels[bookie] = Channel(
                self.cluster.network.open(self, target),
                target,
                self.world.now_us,
                WindowLimits(full_bytes=1) if self.cluster.swarm.overlapping else WindowLimits(),
            )
            self._channel_of[channel.stream.number] = channel
            self._send(channel, target.attach, channel.stream, self.ledger_id, self.key, self.purpose)
        return channel

    def _send(self, channel: Channel, receive: Callable[..., None], *args: object) -> None:
        stream = channel.stream
        if not stream.send(stream.bookie, receive, *args):
            self.cluster.stream_broke(stream)

    def _send_frame(self, effect: fx.SendFrame) -> None:
        if effect.bookie in self._unregistered:
            self.later(0, self._frame_decided, effect.bookie, effect.send_id, Code.CONNECTION_LOST, "")
            self._named_anew([effect.bookie], lambda: None)
            return
        self._frames[effect.send_id] = (self.world.now_us + REQUEST_TIMEOUT_US, effect.bookie)
        self.sent[effect.send_id] = effect.frame
        channel = self._channel(effect.bookie)
        channel.queue.append((effect.send_id, effect.frame))
        self._pump(channel)

    # LACs without entries

    def _publish_lac(self, effect: fx.PublishLac) -> None:
        for bookie in effect.bookies:
            if bookie in self._unregistered:
                self._named_anew([bookie], partial(self._publish_again, bookie))
                continue
            self._rows.setdefault(bookie, LacRows())
            channel = self._channel(bookie)
            if channel.attached:
                self._rows[bookie].publish(self.ledger_id, effect.row)
                self._pump(channel)
                continue
            channel.row = effect.row
            if self._haste.random() < _HASTY:
                self.world.tally.state("LAC before the attachment")
                self._send(channel, channel.target.lac_table, channel.stream, encode_lac_table([effect.row]))

    def _send_row(self, channel: Channel, queued_bytes: int) -> None:
        rows, window = self._rows.get(channel.target.name), channel.window
        if rows is None or not rows.is_waiting:
            return
        if not window.messages_in_flight or window.may_send(queued_bytes):
            table = encode_lac_table([row for _, row in rows.take(window.next_message)])
            self._send(channel, channel.target.lac_table, channel.stream, table)

    def _rows_lost(self, channel: Channel, code: Code = Code.UNAVAILABLE) -> None:
        """The stream ended, or the attachment was refused with `code`."""
        bookie = channel.target.name
        rows = self._rows.get(bookie)
        if rows is None:
            return
        rows.stream_ended()
        if channel.row is not None:
            rows.attach_failed(self.ledger_id, code)
        if rows.has_lost:
            self.later(_LAC_PAUSE_US, self._publish_again, bookie)

    def _publish_again(self, bookie: BookieId) -> None:
        rows = self._rows.get(bookie)
        if bookie not in self._unregistered and rows is not None and rows.take_lost():
            self.world.tally.state("LAC published again")
            self.feed(ev.LacLost(bookie))

    def _pump(self, channel: Channel) -> None:
        """Send what waits as one message, if there is room (one small message under way at a time)."""
        queue = channel.queue
        size = sum(len(frame) for _, frame in queue)
        if channel.attached:
            self._send_row(channel, size)
        if not channel.attached or not channel.window.may_send(size):
            return
        channel.window.send([send_id for send_id, _ in queue], size)
        data = b"".join(frame for _, frame in queue)
        queue.clear()
        self._send(channel, channel.target.message, channel.stream, data)

    def attached(self, stream: Stream, _ledger_id: LedgerId, _purpose: Purpose, code: Code) -> None:
        """The bookie judged the password; if it refused, so it did with every frame that waited."""
        channel = self.channels.get(stream.bookie.name)
        if channel is None or channel.stream is not stream:
            return
        channel.answered_us = self.world.now_us
        if code is Code.OK:
            if self._is_the_bookie(channel.target):
                self._may_send(channel)
            else:
                self._confirm(channel.target.name, partial(self._hello_is_judged, channel))
            return
        self.channels.pop(stream.bookie.name)
        self._end_stream(channel)
        self._rows_lost(channel, code)
        for send_id, _ in channel.queue:
            self._frame_decided(stream.bookie.name, send_id, code, "")

    def answered(self, stream: Stream, answer: StreamAnswer, boot_id: str) -> None:
        """Cumulative answers on a stream; those of a closed one are dropped (rule 49)."""
        channel = self._channel_of[stream.number]
        channel.answered_us = self.world.now_us
        oldest = channel.window.oldest_message
        decided = channel.window.settle(answer)
        rows = self._rows.get(stream.bookie.name)
        if rows is not None and not self.is_deferred and any(code is Code.OK for _, code in decided):
            rows.synced(oldest)
        for send_id, code in decided:
            self._frame_decided(stream.bookie.name, send_id, code, boot_id)
        if not channel.window.is_closed:
            self._pump(channel)
            self.room()

    def room(self) -> None:
        """A channel has room again."""

    def _frame_decided(self, bookie: BookieId, send_id: int, code: Code, boot_id: str) -> None:
        self._frames.pop(send_id, None)
        if code is Code.OK:
            self._was_synced(bookie, self.sent[send_id])
            self.feed(ev.FrameAcked(bookie, send_id, boot_id))
        else:
            self.feed(ev.FrameFailed(bookie, send_id, code))

    def _was_synced(self, bookie: BookieId, frame: bytes) -> None:
        """A bookie answers when it has synced, but for what is to be forced later."""
        header = decode_header(frame)
        if not header.flags & FLAG_DEFERRED_SYNC:
            entries = frame_entry_ids(frame, header)
            self.cluster.checkers.synced_by(bookie, header.ledger_id, entries)
            if not header.is_recovery:
                self.cluster.checkers.oracles[header.ledger_id].count(bookie, entries)

    def stream_lost(self, stream: Stream) -> None:
        """The stream broke: everything under way to that bookie is unknown."""
        channel = self.channels.get(stream.bookie.name)
        if channel is None or channel.stream is not stream:
            return
        bookie = stream.bookie.name
        channel = self.channels.pop(bookie)
        self._end_stream(channel)
        self._rows_lost(channel)
        unknown = [send_id for send_id, (_, name) in self._frames.items() if name == bookie]
        for send_id in unknown:
            del self._frames[send_id]
        # The client that ships notifies nobody who only published. A driver may do so: here where a bookie has two
        # processes, because the changes of ensembles that follow are what shows which of them is written to.
        if unknown or bookie not in self._rows or bookie in self.cluster.twins.split:
            self.bookie_lost(bookie)

    def _watch_stalls(self) -> None:
        """Give up the streams on which an answer is owed and nothing came for long."""
        now = self.world.now_us
        for channel in list(self.channels.values()):
            if channel.attached and not channel.window.messages_in_flight:
                channel.answered_us = now
            elif now - channel.answered_us > _STALL_US:
                self.stream_lost(channel.stream)

    def _end_streams(self) -> None:
        for channel in self.channels.values():
            self._end_stream(channel)
        self.channels.clear()
        self._rows.clear()

    def _end_stream(self, channel: Channel) -> None:
        channel.window.close()
        channel.stream.broken = True
        bookie = channel.target
        self.world.at(self.world.now_us + _NOTICE_US, bookie, bookie.stream_lost, channel.stream)
