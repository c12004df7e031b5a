"""What bookies report to hold: entry intervals and limbo marks, asked over the wire.

Silence is no answer: a bookie that fails to list is left out, never taken for one that holds nothing (rule 6, rule 26).
A bookie that fails once is not asked again by the same `BookieListings`, so that one hung bookie costs a cycle of the
auditor one time-out and not one for every ledger.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import grpc.aio

from daybook.client.transport.calls import CALL_TIMEOUT_S, BookieCalls
from daybook.client.transport.channels import ChannelPool
from daybook.core.errors import Code
from daybook.core.format.intervals import Interval, IntervalSet
from daybook.core.ids import ENSEMBLE_SIZE_MAX, MAX_ID, BookieId, EntryId, LedgerId
from daybook.core.quorum import Stripe
from daybook.core.repair.requests import Listed
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb

T = TypeVar("T")

_LOG: Final = get_logger(__name__)
PAGE: Final = 10_000
"""Intervals or ledgers in one answer."""


class BookieListings:
    """Asks bookies, at most `calls_max` questions to one at a time."""

    def __init__(self, channels: ChannelPool, *, calls_max: int) -> None:
        """Nobody is silent yet."""
        self._channels = channels
        self._slots: defaultdict[BookieId, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(calls_max)
        )
        self.silent: dict[BookieId, str] = {}
        """Who did not answer, and why."""

    async def of_ledger(self, ledger_id: LedgerId, bookies: Iterable[BookieId]) -> Listed:
        """What `bookies` have of the ledger."""
        listed = Listed(silent=self.silent)

        async def ask(bookie: BookieId) -> None:
            answer = await self._ask(bookie, lambda calls: _intervals(calls, ledger_id))
            if answer is None:
                return
            entries, limbo, last_add_confirmed = answer
            listed.add(bookie, entries, last_add_confirmed, limbo=limbo)

        await asyncio.gather(*(ask(bookie) for bookie in sorted(bookies)))
        return listed

    async def limbo(self, bookies: Iterable[BookieId]) -> Mapping[LedgerId, frozenset[BookieId]]:
        """The ledgers in limbo, and on which of `bookies`."""
        found: defaultdict[LedgerId, set[BookieId]] = defaultdict(set)

        async def ask(bookie: BookieId) -> None:
            for ledger_id in await self._ask(bookie, _limbo) or ():
                found[ledger_id].add(bookie)

        await asyncio.gather(*(ask(bookie) for bookie in sorted(bookies)))
        return {ledger_id: frozenset(marked) for ledger_id, marked in found.items()}

    async def _ask(self, bookie: BookieId, question: Callable[[BookieCalls], Awaitable[T]]) -> T | None:
        calls = self._channels.calls(bookie)
        if calls is None or bookie in self.silent:
            return None
        async with self._slots[bookie]:
            if bookie in self.silent:
                return None
            try:
                return await question(calls)
            except (grpc.aio.AioRpcError, _RefusedError) as error:
                self.silent[bookie] = why = _reason(error)
                _LOG.warning("bookie does not tell what it has", bookie=bookie, why=why)
                return None


class _RefusedError(Exception):
    """The bookie answered that it cannot list."""


async def _intervals(calls: BookieCalls, ledger_id: LedgerId) -> tuple[IntervalSet, bool, EntryId]:
    """All pages: what is there and readable, whether the ledger is in limbo, and the LAC."""
    entries, damaged, start = IntervalSet(), IntervalSet(), 0
    while True:
        request = pb.EntryIntervalsRequest(ledger_id=ledger_id, from_entry=start, limit=PAGE)
        answer = await calls.stub.entry_intervals(request, timeout=CALL_TIMEOUT_S)
        if answer.code != Code.OK:
            raise _RefusedError(Code(answer.code).name)
        for interval in answer.intervals:
            entries.add(*_checked(interval))
        for entry in answer.damaged:
            damaged.add(
                *_checked(
                    pb.EntryInterval(first_entry=entry, last_entry=entry, stripe_period=1, stripe_mask=1)
                )
            )
        if not answer.more or not answer.intervals:
            return _without(entries, damaged), answer.limbo, answer.last_add_confirmed
        start = answer.intervals[-1].last_entry + 1


def _checked(interval: pb.EntryInterval) -> Interval:
    """An interval as the core takes it; raises _RefusedError for one that no bookie can have."""
    stripe = Stripe(interval.stripe_period, interval.stripe_mask)
    in_bounds = 0 <= interval.first_entry <= interval.last_entry <= MAX_ID
    if not (in_bounds and 1 <= stripe.period <= ENSEMBLE_SIZE_MAX and 0 < stripe.mask < 1 << stripe.period):
        msg = f"it lists entries {interval.first_entry}…{interval.last_entry} of {stripe}, which cannot be"
        raise _RefusedError(msg)
    return Interval(interval.first_entry, interval.last_entry, stripe)


def _without(entries: IntervalSet, damaged: IntervalSet) -> IntervalSet:
    """What is readable: a damaged entry is as good as a missing one, and repair gets it from another replica."""
    if not damaged:
        return entries
    readable = IntervalSet()
    for interval in entries:
        for part in damaged.missing(*interval):
            readable.add(*part)
    return readable


async def _limbo(calls: BookieCalls) -> list[LedgerId]:
    """All pages of the ledgers in limbo."""
    found: list[LedgerId] = []
    while True:
        request = pb.ListLimboRequest(after_ledger=found[-1] if found else -1, limit=PAGE)
        answer: Any = await calls.stub.list_limbo(request, timeout=CALL_TIMEOUT_S)
        found.extend(mark.ledger_id for mark in answer.ledgers)
        if not answer.more or not answer.ledgers:
            return found


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
