"""Takes a bookie out of the cluster without losing a replica: no new ledgers, drain, then forget it.

The steps are facts in the cluster, not in this process: read-only, tasks that say the bookie leaves, ledgers that name
it. So it can be interrupted at any point and run again, and workers anywhere share the work. Nothing is called drained
but by a listing of all ledgers after a `sync`, and the cookie goes only when the process is gone as well, so that a
drained bookie cannot come back under its name and be trusted (rule 29).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc.aio

from daybook.autorecovery.cluster import Cluster
from daybook.client.transport.calls import CALL_TIMEOUT_S
from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.repair.task import leaving_reason
from daybook.metadata.tasks import RepairTasks
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb

_LOG: Final = get_logger(__name__)
REASON: Final = "decommission"
LIST_MS: Final = 60_000
"""How often all ledgers are listed, and those that still name the bookie marked again."""
CHECK_MS: Final = 2_000
"""How often the tasks are checked: workers may have given up."""
_CHECKED_MAX: Final = 100


class NotDrainedError(DaybookError):
    """The bookie is still needed; the message says by what."""


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How many ledgers named the bookie at first, and how many still do."""

    ledgers: int
    left: int


class Decommission:
    """Takes `bookie` out of `cluster`; see the module's opening."""

    def __init__(
        self,
        cluster: Cluster,
        bookie: BookieId,
        on_progress: Callable[[DrainProgress], None] = lambda _: None,
    ) -> None:
        """Nothing happens yet."""
        self._cluster = cluster
        self._bookie = bookie
        self._on_progress = on_progress
        self._tasks = RepairTasks(cluster.store, cluster.layout)

    async def drain(self, stop: asyncio.Event) -> bool:
        """Return True once no ledger and no task names the bookie; False if `stop` was set before.

        Workers do the copying. What was set aside is tried once more at first: who begins again says that the reason is gone.
        Raises MetadataUnavailableError, NotDrainedError if the bookie cannot be made read-only, or if workers have given up.
        """
        at_first, is_first = 0, True
        while not stop.is_set():
            await self.make_read_only()
            left = await self.naming()
            at_first = max(at_first, len(left))
            self._on_progress(DrainProgress(at_first, len(left)))
            if not left and not await self._takes_new_ledgers():
                await self._drop_tasks()
                return True
            await self._mark(left, frees=is_first)
            is_first = False
            await self._wait_until_left(left, at_first, stop)
        return False

    async def _mark(self, left: list[LedgerId], *, frees: bool) -> None:
        """Have workers take the bookie out of these ledgers; `frees`: also out of those that were set aside (rule 35)."""
        for ledger_id in left:
            marked = await self._tasks.mark(
                ledger_id,
                reasons=[leaving_reason(self._bookie)],
                bookies=[self._bookie],
                now_ms=unix_ms(),
            )
            if frees and marked.value.not_before_ms:
                await self._tasks.set_free(marked)

    async def cancel(self) -> None:
        """Let the bookie stay: no task says any more that it leaves, and it takes writes again.

        What was copied elsewhere stays there. Raises NotDrainedError if the bookie cannot be reached: one that was stopped
        meanwhile would be read-only still when it comes back.
        """
        await self.unmark()
        directory = self._cluster.directory
        if self._bookie in await directory.bookies() or await directory.cookie(self._bookie) is not None:
            await self.set_read_only(read_only=False)

    async def unmark(self) -> None:
        """Let no task say any more that the bookie leaves; what else a task says stays."""
        leaving = leaving_reason(self._bookie)
        async for ledger_id in self._tasks.ids():
            task = await self._tasks.read(ledger_id)
            while task is not None and leaving in task.value.reasons:
                others = [reason for reason in task.value.reasons if reason != leaving]
                if await self._tasks.done(ledger_id, task.version) and others:
                    bookies = task.value.bookies
                    await self._tasks.mark(ledger_id, reasons=others, bookies=bookies, now_ms=unix_ms())
                task = await self._tasks.read(ledger_id)

    async def make_read_only(self) -> None:
        """Keep new ledgers from the bookie, if it is registered, and return once everybody can know."""
        await self.set_read_only(read_only=True)

    async def set_read_only(self, *, read_only: bool) -> None:
        """Have the bookie refuse new ledgers, or take them again; see `make_read_only`.

        Raises NotDrainedError if the bookie refuses or cannot be reached, and where it is to take ledgers again also if it is not
        registered: a bookie keeps that it is read-only.
        """
        info = (await self._cluster.directory.bookies()).get(self._bookie)
        if info is None and not read_only:
            msg = (
                f"bookie {self._bookie} is not registered, so it cannot be told to be writable, and would come back read-only: "
                "start it, then run this again"
            )
            raise NotDrainedError(msg)
        if info is None or info.writable is not read_only:
            return
        self._cluster.channels.bookies_changed({self._bookie: info})
        calls = self._cluster.channels.calls(self._bookie)
        assert calls is not None
        try:
            request = pb.SetReadOnlyRequest(read_only=read_only, reason=REASON)
            answer = await calls.stub.set_read_only(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.PERMISSION_DENIED:
                msg = f"bookie {self._bookie} refuses: {error.details()}"
                raise NotDrainedError(msg) from error
            msg = (
                f"bookie {self._bookie} is registered but cannot be told to be "
                f"{'read-only' if read_only else 'writable'} ({error.code().name}): "
                "start it, or stop it for good, and run this again"
            )
            raise NotDrainedError(msg) from error
        if answer.writable is read_only:
            return  # it stays read-only for want of space
        async for bookies in self._cluster.directory.watch_bookies():
            now = bookies.get(self._bookie)
            if now is None or now.writable is not read_only or now.boot_id != info.boot_id:
                return  # another process was not told, and may have another disk

    async def _takes_new_ledgers(self) -> bool:
        """Whether a bookie that was away when the ledgers were listed has come back, so that they may name it since."""
        info = (await self._cluster.directory.bookies()).get(self._bookie)
        return info is not None and info.writable

    async def naming(self) -> list[LedgerId]:
        """The ledgers that name the bookie, from a listing after a `sync`."""
        await self._cluster.store.sync(self._cluster.layout.ledgers)
        return [
            found.value.ledger_id
            async for found in self._cluster.ledgers.read_all()
            if self._bookie in found.value.bookies()
        ]

    async def forget(self) -> None:
        """Delete the cookie of a bookie that is drained and stopped; once more is no error.

        Raises NotDrainedError while it is registered or a ledger names it.
        """
        await self._cluster.store.sync(self._cluster.layout.root)
        if self._bookie in await self._cluster.directory.bookies():
            msg = f"bookie {self._bookie} still runs: stop it for good, then run this again to delete its cookie"
            raise NotDrainedError(msg)
        if left := await self.naming():
            msg = f"{len(left)} ledgers name bookie {self._bookie}, ledger {left[0]} for one: start it, and drain it first"
            raise NotDrainedError(msg)
        cookie = await self._cluster.directory.cookie(self._bookie)
        if cookie is not None:
            await self._cluster.directory.delete_cookie(self._bookie, cookie.version)
            _LOG.info("cookie deleted", bookie=self._bookie)

    async def wait_until_stopped(self, stop: asyncio.Event) -> bool:
        """Return True once the bookie is not registered; False if `stop` was set before."""
        gone = asyncio.Event()
        watching = asyncio.ensure_future(self._watch_until_gone(gone))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            return gone.is_set()
        finally:
            watching.cancel()
            stopped.cancel()
            await asyncio.gather(watching, stopped, return_exceptions=True)

    async def _watch_until_gone(self, gone: asyncio.Event) -> None:
        async for bookies in self._cluster.directory.watch_bookies():
            if self._bookie not in bookies:
                gone.set()
                return

    async def _drop_tasks(self) -> None:
        """Delete the tasks that say nothing but that the bookie leaves: no ledger names it any more."""
        async for ledger_id in self._tasks.ids():
            task = await self._tasks.read(ledger_id)
            if task is not None and task.value.reasons == (leaving_reason(self._bookie),):
                await self._tasks.done(ledger_id, task.version)

    async def _wait_until_left(self, left: list[LedgerId], at_first: int, stop: asyncio.Event) -> None:
        """Wait until no ledger of `left` names the bookie, at most `LIST_MS`.

        Raises NotDrainedError when workers have given up on all that are left.
        """
        following = asyncio.ensure_future(self._follow(left, at_first))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            for _ in range(LIST_MS // CHECK_MS):
                await asyncio.wait(
                    {following, stopped}, timeout=CHECK_MS / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                if following.done() or stopped.done():
                    break
                await self._refuse_the_impossible(left)
            if following.done():
                following.result()
        finally:
            following.cancel()
            stopped.cancel()
            await asyncio.gather(following, stopped, return_exceptions=True)

    async def _refuse_the_impossible(self, left: list[LedgerId]) -> None:
        """Raise NotDrainedError if every ledger that is left was tried in vain."""
        reasons = []
        for ledger_id in left:
            task = await self._tasks.read(ledger_id)
            if task is None:
                continue  # done, or about to be marked again
            if not task.value.not_before_ms:
                return  # due: what kept it from repair before may be over
            reasons.append(f"ledger {ledger_id}: {task.value.why_not}")
            if len(reasons) == _CHECKED_MAX:
                break
        if reasons:
            msg = (
                f"bookie {self._bookie} cannot be drained now, {len(reasons)} ledgers or more are stuck; it stays "
                f"read-only, run this again when the reason is gone: {reasons[0]}"
            )
            raise NotDrainedError(msg)

    async def _follow(self, left: list[LedgerId], at_first: int) -> None:
        """Wait for one ledger after the other; those that were quicker are passed at once."""
        for number, ledger_id in enumerate(left, 1):
            async for found in self._cluster.ledgers.watch(ledger_id):
                if found is None or self._bookie not in found.value.bookies():
                    break
            self._on_progress(DrainProgress(at_first, len(left) - number))
