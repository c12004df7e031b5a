"""Users that write through `Ledger`: from several tasks, into back-pressure, impatient ones, and those that never close.

The ids of entries are those of the calls in their order: each user says beforehand which entry a payload is to be, and
whatever is stored, read or acknowledged otherwise shows.
"""

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.client.client import Client
from daybook.client.ledger import Ledger
from daybook.core.errors import DaybookError, EntryTooLargeError, LedgerClosedError, MetadataUnavailableError
from daybook.core.ids import ENTRY_BYTES_MAX, NO_ENTRY, EntryId
from daybook.core.writer.policy import WriterPolicy
from tests.model.sim.shipped.reading import OwnReadingUser

if TYPE_CHECKING:
    from random import Random

    from tests.model.sim.shipped.process import ShippedProcess

_TOO_LARGE: Final = bytes(ENTRY_BYTES_MAX + 1)
_MISTAKES: Final = 0.03


def draw_policy(rng: "Random") -> WriterPolicy:
    """What users set."""
    return WriterPolicy(
        ensemble_changes_max=rng.choice((2, 100, 100)),
        quorum_wait_ms=rng.choice((0, 2_000, 10_000)),
        lag_ms_max=rng.choice((2_000, 10_000)),
        quarantine_ms=rng.choice((1_000, 30_000)),
    )


class _Call:
    """An append that was called for; `ids` are the entries that it has to become."""

    __slots__ = ("ids", "payloads")

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads
        self.ids = range(0)


class WritingUser:
    """Writes one ledger from several tasks."""

    def __init__(self, process: "ShippedProcess", name: str, appends: int) -> None:
        self._process = process
        self._name = name
        self._checkers = process.cluster.checkers
        self._rng = process.world.rng(name)
        self._left = appends
        self._pauses = self._rng.choice((0.3, 1.0))
        """How often it pauses before an append; else the next one comes in the turn in which the one before is answered."""
        self._next: EntryId = 0
        self._lac: EntryId = NO_ENTRY
        self._acked: EntryId = NO_ENTRY
        self._leaves = False
        """It gives the handle up without a close: what is under way is then unknown."""
        self._unanswered: deque[_Call] = deque()

    async def work(self, client: Client) -> None:
        """From the creation of a ledger to the end of its handle."""
        quorum = self._process.cluster.swarm.quorum
        try:
            self._ledger = ledger = await client.create_ledger(
                ensemble_size=quorum.ensemble_size,
                write_quorum=quorum.write_quorum,
                ack_quorum=quorum.ack_quorum,
            )
        except DaybookError as error:
            self._process.note(f"creates no ledger: {error}")
            self._process.is_unsure |= isinstance(error, MetadataUnavailableError)
            return
        oracle = self._checkers.oracles[ledger.id]
        if oracle.given:
            self._fail("a ledger is given to one writer", f"ledger {ledger.id} to two (rule 42, rule 53)")
        oracle.given = True
        self._process.given.add(ledger.id)
        self._process.note(f"writes ledger {ledger.id}")
        ledger.pending_bytes_max = self._rng.choice((10, 40, ledger.pending_bytes_max))
        appending = self._append_ahead if self._rng.random() < 0.4 else self._append
        if self._process.world.rng(f"soon/{ledger.id}").random() < 0.3:
            appending = self._append_soon
        at_once = self._rng.choice((1, 2, 4))
        self._is_alone = at_once == 1
        reading = self._read_own(client, ledger)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(self._process.watched(appending()))
        await self._end(ledger)
        if not ledger.metadata.is_closed:
            reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    def _read_own(self, client: Client, ledger: Ledger) -> asyncio.Task[None]:
        """Perhaps follow the ledger through its own handle, as a broker does that serves what it writes."""
        reads = self._process.world.rng(f"{self._name}/own").random() < 0.4
        user = OwnReadingUser(self._process, f"{self._name}/own-reader", ledger)
        return asyncio.create_task(self._process.watched(user.tail(client) if reads else asyncio.sleep(0)))

    async def _end(self, ledger: Ledger) -> None:
        way = self._rng.random()
        self._leaves = way >= 0.6
        if way < 0.6:
            try:
                metadata = await ledger.close()
            except DaybookError as error:
                self._process.note(f"cannot close ledger {ledger.id}: {error}")
                return
            self._checkers.ended(ledger.id, metadata)
            self._process.note(f"has closed ledger {ledger.id}")
        elif way < 0.8:
            await ledger.abandon()

    # Appending

    async def _append(self) -> None:
        """Wait for each append before the next one; the other tasks do the same meanwhile."""
        rng, ledger = self._rng, self._ledger
        while await self._may_go_on():
            if rng.random() < _MISTAKES:
                await self._append_what_cannot_be()
            call = _Call(self._payloads(rng.choice((1, 1, 2, 5))))
            self._expect(call)
            try:
                if len(call.payloads) == 1 and rng.random() < 0.7:
                    first = await ledger.append(call.payloads[0])
                    self._acknowledged(call, first, first)
                else:
                    self._acknowledged(call, *await ledger.append_many(call.payloads))
            except DaybookError as error:
                self._failed(call, error)
                return

    async def _append_ahead(self) -> None:
        """Never wait for an acknowledgement before the next append; who is alone gives up where there is no room in time."""
        rng, ledger = self._rng, self._ledger
        while await self._may_go_on():
            call = _Call(self._payloads(rng.choice((1, 2, 5))))
            self._expect(call)
            patience_s = rng.choice((0.05, 0.5, 10)) if self._is_alone else None
            try:
                async with asyncio.timeout(patience_s):
                    answer = await ledger.submit(call.payloads)
            except TimeoutError:
                self._give_up(call)
            except DaybookError as error:
                self._failed(call, error)
                return
            else:
                answer.add_done_callback(partial(self._answered, call))

    async def _append_soon(self) -> None:
        """Wait for room alone: the id is known at once, and for good."""
        ledger = self._ledger
        while await self._may_go_on():
            while not ledger.has_room and ledger.error is None:
                room = asyncio.Event()
                ledger.call_when_room(room.set)
                await room.wait()
            call = _Call(self._payloads(1))
            self._expect(call)
            try:
                entry_id = ledger.append_soon(call.payloads[0], partial(self._done, call))
            except DaybookError as error:
                self._failed(call, error)
                return
            if entry_id != call.ids[0]:
                self._fail(
                    "appends keep the order of their calls", f"{call.ids[0]} was given the id {entry_id}"
                )

    def _done(self, call: _Call, entry_id: EntryId, error: DaybookError | None) -> None:
        if error is None:
            self._acknowledged(call, entry_id, entry_id)
        else:
            self._failed(call, error)

    def _give_up(self, call: _Call) -> None:
        """It was let in at the last moment, which its user cannot know, or its ids are free again."""
        self._unanswered.remove(call)
        if self._ledger._writer.last_add_pushed < call.ids[0]:
            self._checkers.withdrawn(self._ledger.id, call.ids)
            self._next = call.ids.start

    def _answered(self, call: _Call, done: "asyncio.Future[tuple[EntryId, EntryId]]") -> None:
        try:
            self._acknowledged(call, *done.result())
        except DaybookError as error:
            self._failed(call, error)

    async def _may_go_on(self) -> bool:
        if self._rng.random() < self._pauses:
            await asyncio.sleep(self._rng.choice((0.02, 0.1, 0.4)) * self._rng.random())
        self._left -= 1
        return self._left >= 0 and not self._process.winding_up.is_set()

    async def _append_what_cannot_be(self) -> None:
        try:
            await self._ledger.append(_TOO_LARGE)
        except EntryTooLargeError:
            return
        except DaybookError:
            return  # the handle has ended
        self._fail("what cannot be appended is refused at once", "an entry over the limit was not (rule 21)")

    def _payloads(self, count: int) -> list[bytes]:
        return [self._rng.randbytes(self._rng.randrange(12)) for _ in range(count)]

    # What it learns

    def _expect(self, call: _Call) -> None:
        """The ledger has the call, or will have it before any later one: these are its entries."""
        if self._ledger.pending_bytes >= self._ledger.pending_bytes_max:
            self._process.world.tally.state("waited for room")
        call.ids = range(self._next, self._next + len(call.payloads))
        self._next = call.ids.stop
        self._unanswered.append(call)
        for entry_id, payload in zip(call.ids, call.payloads, strict=True):
            self._checkers.appended(self._ledger.id, entry_id, payload)

    def _acknowledged(self, call: _Call, first: EntryId, last: EntryId) -> None:
        ledger = self._ledger
        if not self._process.alive:
            return  # nobody receives it any more
        if (first, last) != (call.ids[0], call.ids[-1]):
            what = f"{call.ids[0]} … {call.ids[-1]} of ledger {ledger.id} became {first} … {last}"
            self._fail("appends keep the order of their calls", what)
        if self._unanswered.popleft() is not call:
            self._fail("NoOutOfOrderEntries", f"{first} of ledger {ledger.id} is acknowledged too early")
        self._checkers.completed(
            ledger.metadata, self._acked + 1, last
        )  # what was given up is confirmed with it
        self._acked = last
        lac = ledger.last_add_confirmed
        self._checkers.writer_lac(ledger.id, self._lac, lac)
        self._lac = lac

    def _failed(self, call: _Call, error: DaybookError) -> None:
        """Nothing is acknowledged after it; of some errors it is known that nothing was written (rule 13)."""
        if not self._process.alive:
            return
        self._process.note(f"{call.ids} of ledger {self._ledger.id}: {type(error).__name__}: {error}")
        self._unanswered.remove(call)
        if isinstance(error, LedgerClosedError) and not self._leaves:
            self._checkers.not_written(self._ledger.id, call.ids)
        self._left = 0

    def _fail(self, invariant: str, why: str) -> None:
        self._checkers.fail(invariant, f"{self._process.name}: {why}")
