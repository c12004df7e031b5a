"""Runs a machine of the core from start to result, when there is one result to wait for (recovery, repair)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from daybook.client.channels import ChannelPool
from daybook.client.driver import Machine, MachineDriver
from daybook.core.events import BookiesChanged, Effect, Tick
from daybook.core.ids import BookieId, LedgerId
from daybook.core.metadata import LedgerMetadata
from daybook.core.placement import BookieInfo
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store import Versioned
from daybook.runtime.clock import monotonic_ms

TICK_S: Final = 0.05


class Startable(Machine, Protocol):
    """A machine with a beginning and an end."""

    def start(self) -> list[Effect]:
        """The first effects."""


class Surroundings(Protocol):
    """What a machine needs around it: the client."""

    channels: ChannelPool
    ledgers: LedgerManager

    def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """The bookies that are registered now."""


async def run_to_end(
    machine: Startable,
    ledger_id: LedgerId,
    key: str,
    surroundings: Surroundings,
    is_end: Callable[[Effect], bool],
    *,
    current: Versioned[LedgerMetadata] | None = None,
    on_effect: Callable[[Effect], None] = lambda _: None,
) -> Effect:
    """Run `machine` until an effect `is_end`, and return that; other results go to `on_effect`.

    The machine is told of time and of bookies that come and go while it runs.
    """
    ended: asyncio.Future[Effect] = asyncio.get_running_loop().create_future()

    def handle(effect: Effect) -> None:
        if not is_end(effect):
            on_effect(effect)
        elif not ended.done():
            ended.set_result(effect)

    driver = MachineDriver(
        machine,
        ledger_id,
        key,
        recovery=True,
        channels=surroundings.channels,
        ledgers=surroundings.ledgers,
        handle=handle,
        current=current,
    )
    driver.carry_out(machine.start())
    try:
        seen = surroundings.bookies()
        while not ended.done():
            await asyncio.wait([ended], timeout=TICK_S)
            now = surroundings.bookies()
            if now is not seen:
                seen = now
                driver.step(BookiesChanged(now))
            driver.step(Tick(monotonic_ms()))
        return ended.result()
    finally:
        driver.stop()
