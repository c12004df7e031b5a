"""What the users of one client process do: they write, and read whatever ledgers there are."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from daybook.client.client import Client
from daybook.core.errors import MetadataUnavailableError
from tests.model.sim.shipped.loop import SCALE
from tests.model.sim.shipped.reading import ReadingUser
from tests.model.sim.shipped.swarm import ShippedSwarm
from tests.model.sim.shipped.writing import WritingUser, draw_policy

if TYPE_CHECKING:
    from tests.model.sim.shipped.process import ShippedProcess

_PAUSE_S: Final = 0.5


class Users:
    """The users of `process`."""

    def __init__(self, process: "ShippedProcess", swarm: ShippedSwarm) -> None:
        self._process = process
        self._swarm = swarm
        self._rng = process.world.rng(f"{process.name}/users")
        self._names = 0
        self.writing = swarm.writers
        """How many have not ended yet."""

    async def work(self) -> None:
        """One client, from its connection to its close."""
        while True:
            try:
                async with self._process.client(draw_policy(self._rng)) as client:
                    await self._use(client)
            except MetadataUnavailableError as error:
                self._process.note(f"cannot connect: {error}")
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    async def _use(self, client: Client) -> None:
        swarm = self._swarm
        async with asyncio.TaskGroup() as tasks:

            def begin(work: Coroutine[Any, Any, None]) -> None:
                tasks.create_task(self._process.watched(work))

            for _ in range(swarm.writers):
                begin(self._write(client))
            for count, work in (
                (swarm.followers, ReadingUser.follow),
                (swarm.tails, ReadingUser.tail),
                (swarm.recoverers, ReadingUser.recover),
                (swarm.deleters, ReadingUser.delete),
            ):
                for _ in range(count):
                    begin(self._look(client, work))

    async def _write(self, client: Client) -> None:
        user = WritingUser(self._process, self._name("writer"), self._swarm.appends)
        try:
            await user.work(client)
        finally:
            self.writing -= 1

    async def _look(
        self, client: Client, work: Callable[[ReadingUser, Client], Coroutine[Any, Any, None]]
    ) -> None:
        """Some time or other, at a ledger that is there then."""
        window_s = self._process.cluster.swarm.fault_window_us * SCALE / 1_000_000
        await asyncio.sleep(window_s * self._rng.random() ** 3)
        ledgers = sorted(self._process.store.ledgers)
        if ledgers:
            user = ReadingUser(self._process, self._name("reader"), self._rng.choice(ledgers))
            await work(user, client)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{self._process.name}/{kind}-{self._names}"
