"""Carries out what a ledger machine asks for and feeds the answers back: I/O, and no decisions.

One driver serves every machine of the core (writer, recovery, reader, repair), because they share one vocabulary of
events and effects. It is re-entrant by construction: an answer that is known at once (a bookie without address, say) is
fed back from the event loop's next turn, never from inside `step`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Generic, get_args

from daybook.client.driver.sink import AttachKey
from daybook.client.driver.timers import Timers
from daybook.client.transport.calls import BookieCalls
from daybook.client.transport.channels import ChannelPool
from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    EffectT,
    PublishLac,
    ReadLimbo,
    ReadMetadata,
    SendFence,
    SendForce,
    SendFrame,
    SendFrames,
    SendLacRead,
    SendRead,
    WriterResult,
)
from daybook.core.errors import Code, DaybookError, MetadataUnavailableError, NoSuchLedgerError
from daybook.core.events import (
    BookieFailed,
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    ForceAnswered,
    FrameAcked,
    FrameFailed,
    LacAnswered,
    LacLost,
    LimboCleared,
    LimboRead,
    MetadataRead,
    MetadataUnreadable,
    ReadAnswered,
)
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.machine import Machine
from daybook.core.writer.writer import LedgerWriter
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import BadVersionError, Versioned
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb

log = get_logger(__name__)

_RESULTS: Final = frozenset(get_args(WriterResult))


class MachineDriver(Generic[EffectT]):
    """Runs one machine of one ledger on the event loop; a FrameSink.

    `handle` gets the effects that are results (Complete, Recovered, Deliver, …); everything else is carried out here.
    """

    def __init__(
        self,
        machine: Machine[Any, EffectT],
        ledger_id: LedgerId,
        key: str,
        *,
        recovery: bool,
        is_deferred: bool = False,
        channels: ChannelPool,
        ledgers: LedgerManager,
        handle: Callable[[EffectT], None],
        current: Versioned[LedgerMetadata] | None = None,
        writer: LedgerWriter | None = None,
        timers: Timers | None = None,
        pass_time: Callable[[int], None] | None = None,
        after_step: Callable[[], None] = lambda: None,
        crashed: Callable[[DaybookError], None],
    ) -> None:
        """`current` is the metadata that the machine was made with; `is_deferred`: see FrameSink.

        `writer` is the machine, if it is a ledger's writer: it takes acknowledgements without an event, and gets the time of
        `timers` with each event, because it has a `Tick` only when it wants one.
        `pass_time` of another machine is given the time with each event, for one that has a `Tick` only when nothing else comes.
        `after_step` runs after each event, when its effects are carried out. `crashed` is given an error that the
        machine raised: a violated invariant, after which nothing it says counts.
        """
        self.ledger_id = ledger_id
        self.key = key
        self.purpose: pb.Purpose = pb.PURPOSE_RECOVERY if recovery else pb.PURPOSE_WRITE
        self.attach_key: AttachKey = ledger_id, self.purpose
        self.is_deferred = is_deferred
        self._machine = machine
        self._writer = writer
        self._timers = timers or Timers(0)
        self._channels = channels
        self._streams = channels.streams
        channels.use(self)
        self._ledgers = ledgers
        self._handle = handle
        self._current = current
        self._confirmed: set[BookieId] = set()
        """Those that were asked for a fence as who they were after the ledger was marked (rule 57)."""
        self._unregistered: set[BookieId] = set()
        """Those that were named, and of which no process was registered when that was read afterwards."""
        self._pass_time = pass_time
        self._after_step = after_step
        self._crashed = crashed
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopped = False

    def step(self, event: Event) -> None:
        """Feed `event` to the machine and carry out what it asks for."""
        if self._writer is not None:
            self._writer.pass_time(self._timers.now_ms)
        elif self._pass_time is not None:
            self._pass_time(monotonic_ms())
        self.take(self._machine.step, event)

    def take(self, part: Callable[..., Sequence[EffectT] | None], *arguments: Any) -> None:
        """Call `part` of the machine with `arguments` and carry out what it asks for. None: nothing has changed.

        Called from streams that serve other ledgers too, so an error of this one's machine ends here.
        """
        if self._stopped:
            return
        try:
            self._took(part(*arguments))
        except Exception as error:  # noqa: BLE001 - whatever it is, the machine is not to be trusted any more
            self._crash(error)

    def _took(self, effects: Sequence[Any] | None) -> None:
        """Carry out what `take` describes."""
        if effects is None:
            return
        if effects:
            self.carry_out(effects)
        self._after_step()

    def carry_out(self, effects: Iterable[EffectT]) -> None:
        """Carry out `effects` in order."""
        for effect in effects:
            if type(effect) in _RESULTS:  # a `match` would try one case after the other, for each entry
                self._handle(effect)
            else:
                self._carry_out(effect)

    def _carry_out(self, effect: EffectT) -> None:
        match effect:
            case SendFrames():
                self._send_frames(effect)
            case PublishLac(bookies, row):
                self._publish_lac(bookies, row)
            case SendFrame(bookie, send_id, frame):
                self._send_frame(bookie, send_id, frame)
            case SendRead():
                self._spawn(self._read(effect))
            case SendLacRead():
                self._spawn(self._read_lac(effect))
            case SendFence(bookie, request_id):
                self._spawn(self._fence(bookie, request_id))
            case SendForce(bookie, request_id):
                self._spawn(self._force(bookie, request_id))
            case CasMetadata():
                self._spawn(self._cas(effect))
            case ReadMetadata(request_id):
                self._spawn(self._read_metadata(request_id))
            case ReadLimbo():
                self._spawn(self._read_limbo(effect))
            case ClearLimbo():
                self._spawn(self._clear_limbo(effect))
            case _:
                self._handle(effect)

    def stop(self) -> None:
        """Stop feeding the machine: what is under way is given up, late answers are dropped."""
        if not self._stopped:
            self._channels.forget(self)
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self._cut_off()
        elif error := task.exception():
            self._crash(error)

    def _cut_off(self) -> None:
        """gRPC cancels the calls of a channel that is closed: without their answers the machine would wait for ever."""
        if not self._stopped:
            self.stop()
            self._crashed(
                DaybookError(
                    f"the client was closed while it worked on ledger {self.ledger_id}: open another one"
                )
            )

    def _crash(self, error: BaseException) -> None:
        log.error("ledger machine failed", ledger_id=self.ledger_id, exc_info=error)
        self.stop()
        self._crashed(
            DaybookError(
                f"ledger {self.ledger_id} met an internal error ({type(error).__name__}: {error}); nothing more is done "
                "through this handle: recover the ledger, and report the log"
            )
        )

    # FrameSink: the channels report here.

    def frame_acked(self, bookie: BookieId, send_id: int, boot_id: str) -> None:
        if self._writer is None:
            self.step(FrameAcked(bookie, send_id, boot_id))
            return
        if self._stopped:
            return
        try:  # as `take`, without its packing and unpacking of arguments
            self._took(self._writer.acked(bookie, send_id, boot_id, self._timers.now_ms))
        except Exception as error:  # noqa: BLE001 - see take
            self._crash(error)

    def frame_failed(self, bookie: BookieId, send_id: int, code: Code) -> None:
        self.step(FrameFailed(bookie, send_id, code))

    def lac_lost(self, bookie: BookieId) -> None:
        self.step(LacLost(bookie))

    def bookie_failed(self, bookie: BookieId) -> None:
        self.step(BookieFailed(bookie))

    def _send_frames(self, batch: SendFrames) -> None:
        if self._unregistered:
            for send in batch.each():
                self._send_frame(send.bookie, send.send_id, send.frame)
            return
        frames, first_send_id = batch.frames, batch.first_send_id
        assert len(frames) == len(batch.bookies)
        for position, bookie in enumerate(batch.bookies):
            stream = self._streams.get(bookie)  # mostly there: the pool, which opens one, is not compiled
            if stream is None:
                self._channels.send_frame(bookie, self, first_send_id + position, frames[position])
            else:
                stream.send(self, first_send_id + position, frames[position])

    def _send_frame(self, bookie: BookieId, send_id: int, frame: bytes) -> None:
        if bookie not in self._unregistered:
            self._channels.send_frame(bookie, self, send_id, frame)
            return
        asyncio.get_running_loop().call_soon(self.frame_failed, bookie, send_id, Code.CONNECTION_LOST)
        self._spawn(self._confirm_named([bookie]))

    def _publish_lac(self, bookies: Iterable[BookieId], row: bytes) -> None:
        for bookie in bookies:
            if bookie in self._unregistered:
                self._spawn(self._publish_when_registered(bookie))
            else:
                self._channels.publish_lac(bookie, self, row)

    async def _publish_when_registered(self, bookie: BookieId) -> None:
        await self._confirm_named([bookie])
        if bookie not in self._unregistered:
            self.lac_lost(bookie)

    # Who a bookie is (rule 57)

    async def _confirm_named(self, bookies: Iterable[BookieId]) -> None:
        """Metadata names `bookies` anew: nothing is sent to a process that was one of them before that."""
        for bookie in bookies:
            if await self._channels.confirm(bookie):
                self._unregistered.discard(bookie)
            else:
                self._unregistered.add(bookie)

    async def _witness(self, bookie: BookieId) -> BookieCalls | None:
        """The calls of the process that can testify for `bookie`: who it was after the ledger was marked, or later.

        An older one would report absent, in good faith, what its replacement has acknowledged.
        """
        if bookie not in self._confirmed:
            if not await self._channels.confirm(bookie):
                return None
            self._confirmed.add(bookie)
        return self._channels.calls(bookie)

    # Requests, each answered by exactly one event.

    async def _read(self, request: SendRead) -> None:
        bookie = request.bookie
        calls = await self._witness(bookie) if request.fence else self._channels.calls(bookie)
        self.step(
            ReadAnswered(bookie, request.request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.read(self, request)
        )

    async def _read_lac(self, request: SendLacRead) -> None:
        calls = self._channels.calls(request.bookie)
        self.step(
            LacAnswered(request.bookie, request.request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.read_lac(self, request)
        )

    async def _fence(self, bookie: BookieId, request_id: int) -> None:
        calls = await self._witness(bookie)
        self.step(
            FenceAnswered(bookie, request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.fence(self, request_id)
        )

    async def _force(self, bookie: BookieId, request_id: int) -> None:
        calls = self._channels.calls(bookie)
        self.step(
            ForceAnswered(bookie, request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.force(self, request_id)
        )

    async def _read_limbo(self, request: ReadLimbo) -> None:
        calls = self._channels.calls(request.bookie)
        self.step(
            LimboRead(request.bookie, request.request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.read_limbo(self, request)
        )

    async def _clear_limbo(self, request: ClearLimbo) -> None:
        calls = self._channels.calls(request.bookie)
        self.step(
            LimboCleared(request.bookie, request.request_id, Code.CONNECTION_LOST)
            if calls is None
            else await calls.clear_limbo(self, request)
        )

    async def _cas(self, request: CasMetadata) -> None:
        current = self._current
        assert current is not None
        assert current.version == request.expected_version, (
            "a machine only changes what it read or wrote last"
        )
        try:
            changed = await self._ledgers.cas(current, request.metadata)
            await self._adopt(changed)
        except (BadVersionError, NoSuchLedgerError):
            self.step(CasAnswered(request.request_id, CasOutcome.CONFLICT))
        except MetadataUnavailableError:
            self.step(CasAnswered(request.request_id, CasOutcome.UNKNOWN))
        else:
            self.step(CasAnswered(request.request_id, CasOutcome.DONE, changed.version))

    async def _read_metadata(self, request_id: int) -> None:
        try:
            found = await self._ledgers.read(self.ledger_id, sync=True)
        except NoSuchLedgerError:
            self.step(MetadataRead(request_id, None))
        except MetadataUnavailableError:
            self.step(MetadataUnreadable(request_id))
        else:
            await self._adopt(found)
            self.step(MetadataRead(request_id, found.value, found.version))

    async def _adopt(self, found: Versioned[LedgerMetadata]) -> None:
        """The metadata is as `found`, perhaps by an own change whose outcome was unknown."""
        before, self._current = self._current, found
        if before is not None and found.value.state is LedgerState.OPEN:
            known = set(before.value.last_fragment.bookies)
            await self._confirm_named(sorted(set(found.value.last_fragment.bookies) - known))
