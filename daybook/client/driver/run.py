"""Runs a machine of the core from its start to its end, and gives its results as they come."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self

from daybook.client.driver.driver import MachineDriver
from daybook.client.transport.channels import ChannelPool
from daybook.core.effects import EffectT
from daybook.core.errors import DaybookError
from daybook.core.events import BookiesChanged, Event, Tick
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import Machine
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import Versioned
from daybook.runtime.clock import monotonic_ms

TICK_S: Final = 0.05


class Surroundings(Protocol):
    """What a machine needs around it: the client."""

    @property
    def channels(self) -> ChannelPool:
        """Channels to the bookies."""

    @property
    def ledgers(self) -> LedgerManager:
        """The ledgers' metadata."""

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """The bookies that are registered now; another mapping whenever they changed."""


class Running(Generic[EffectT]):
    """A machine at work inside a `with` block; leaving it gives up whatever is still under way."""

    def __init__(
        self,
        machine: Machine[Any, EffectT],
        ledger_id: LedgerId,
        key: str,
        surroundings: Surroundings,
        *,
        current: Versioned[LedgerMetadata] | None = None,
        pass_time: Callable[[int], None] | None = None,
    ) -> None:
        """`current` is the metadata that the machine was made with, if it will change it. `pass_time`: see MachineDriver."""
        self._machine = machine
        self._surroundings = surroundings
        self._results: deque[EffectT] = deque()
        self._wake = asyncio.Event()
        self._failure: DaybookError | None = None
        self._driver = MachineDriver(
            machine,
            ledger_id,
            key,
            recovery=True,
            channels=surroundings.channels,
            ledgers=surroundings.ledgers,
            handle=self._take,
            current=current,
            pass_time=pass_time,
            crashed=self._crash,
        )

    def _take(self, result: EffectT) -> None:
        self._results.append(result)
        self._wake.set()

    def _crash(self, error: DaybookError) -> None:
        self._failure = error
        self._wake.set()

    def step(self, event: Event) -> None:
        """Pass the machine an event that only its user knows of."""
        self._driver.step(event)

    async def results(self) -> AsyncIterator[EffectT]:
        """What the machine gives, until it is done; it has a `Tick` only while this is awaited and nothing comes."""
        seen = self._surroundings.bookies()
        while True:
            while self._results:
                yield self._results.popleft()
            if self._failure is not None:
                raise self._failure
            if self._machine.is_done:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._wake.wait()
            except TimeoutError:
                self._driver.step(Tick(monotonic_ms()))
                bookies = self._surroundings.bookies()
                if bookies is not seen:
                    seen = bookies
                    self._driver.step(BookiesChanged(bookies))

    def __enter__(self) -> Self:
        """Start the machine."""
        self._driver.carry_out(self._machine.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is still under way."""
        self._driver.stop()


async def run_to_end(
    machine: Machine[Any, EffectT],
    ledger_id: LedgerId,
    key: str,
    surroundings: Surroundings,
    *,
    current: Versioned[LedgerMetadata] | None = None,
) -> EffectT:
    """Run `machine` until it is done, and return its last effect."""
    result: EffectT | None = None
    with Running(machine, ledger_id, key, surroundings, current=current) as running:
        async for effect in running.results():
            result = effect
    assert result is not None, "a machine's last effect says what came of it"
    return result
