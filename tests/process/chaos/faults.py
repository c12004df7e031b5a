"""What can happen to bookies, ZooKeeper, the network and writers: drawn from a seed, for a while, and undone.

Kinds are dealt like cards: each comes once before any comes again, so that none is left out by chance.
"""

import asyncio
import errno
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from tests.process.chaos import network
from tests.process.chaos.bookies import Bookies
from tests.process.chaos.powercut.disk import Faults
from tests.process.integration.kit import PASSING, off
from tests.process.integration.workload import Workload

SECONDS: Final = (0.2, 4.0)
"""How long a fault lasts: shorter and longer than a bookie's session."""
Fault: TypeAlias = Callable[[list[str], float], Awaitable[None]]


class Deck:
    """Deals kinds in drawn order, all of them before one comes again."""

    def __init__(self, kinds: Sequence[str], rng: random.Random) -> None:
        """A full deck."""
        self._kinds = sorted(kinds)
        self._rng = rng
        self._left: list[str] = []

    def deal(self) -> str:
        """The next one."""
        if not self._left:
            self._left = self._rng.sample(self._kinds, len(self._kinds))
        return self._left.pop()


class FaultMaker:
    """Draws faults and carries them out, one at a time or two."""

    def __init__(
        self, bookies: Bookies, works: list[Workload], rng: random.Random, *, can_partition: bool
    ) -> None:
        """Of all faults, those that are possible here; of `works`, the n-th has the clients 2n and 2n + 1."""
        self._bookies = bookies
        self._works = works
        self._rng = rng
        self._zookeeper = asyncio.Lock()
        self.kinds: dict[str, Fault] = {
            "kill": self._kill,
            "pause": self._pause,
            "graceful restart": self._restart,
            "kill all": self._kill_all,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "disk error": self._disk_error,
            "writer crash": self._writer_crash,
            "fence": self._fence,
            "ZooKeeper pause": self._zookeeper_pause,
            "ZooKeeper kill": self._zookeeper_kill,
        }
        if can_partition:
            self.kinds["partition: bookies from clients"] = self._bookies_from_clients
            self.kinds["partition: bookies from ZooKeeper"] = self._bookies_from_zookeeper
            self.kinds["partition: clients from ZooKeeper"] = self._clients_from_zookeeper
        self._deck = Deck(list(self.kinds), rng)

    async def one(self) -> list[str]:
        """Carry out a drawn fault, or two at once on different bookies, and undo them; their kinds."""
        rng = self._rng
        chosen = [self._deck.deal() for _ in range(rng.choice((1, 1, 2)))]
        if len(chosen) == 2:
            victims = rng.sample(self._bookies.names, 2)
            groups = [[victims[0]], [victims[1]]]
        else:
            groups = [rng.sample(self._bookies.names, rng.choice((1, 1, 2)))]
        works = [
            self.kinds[kind](group, rng.uniform(*SECONDS)) for kind, group in zip(chosen, groups, strict=True)
        ]
        await asyncio.gather(*works)
        await off(self._bookies.start)  # whoever stopped by itself, as after a disk error
        return chosen

    # Processes

    async def _kill(self, names: list[str], seconds: float) -> None:
        await off(self._bookies.kill, names)
        await _last(seconds)

    async def _kill_all(self, names: list[str], seconds: float) -> None:
        await off(self._bookies.kill)
        await _last(seconds / 4)

    async def _pause(self, names: list[str], seconds: float) -> None:
        self._bookies.signal(signal.SIGSTOP, names)
        await _last(seconds)
        self._bookies.signal(signal.SIGCONT, names)

    async def _restart(self, names: list[str], seconds: float) -> None:
        await off(self._bookies.cluster.stop_bookies, *names)

    async def _zookeeper_pause(self, names: list[str], seconds: float) -> None:
        async with self._zookeeper:
            self._bookies.cluster.zookeeper.pause()
            await _last(seconds)
            self._bookies.cluster.zookeeper.resume()

    async def _zookeeper_kill(self, names: list[str], seconds: float) -> None:
        async with self._zookeeper:
            await off(self._bookies.cluster.zookeeper.kill)
            await _last(seconds / 2)
            await off(self._bookies.cluster.zookeeper.start)

    # The network

    async def _bookies_from_clients(self, names: list[str], seconds: float) -> None:
        await self._cut([network.bookie_address(self._number(name)) for name in names], seconds)

    async def _bookies_from_zookeeper(self, names: list[str], seconds: float) -> None:
        await self._cut([network.zookeeper_for_bookie(self._number(name)) for name in names], seconds)

    async def _clients_from_zookeeper(self, names: list[str], seconds: float) -> None:
        """Of one workload the writer, the readers or all of them."""
        work = self._rng.randrange(len(self._works))
        clients = self._rng.choice(((0,), (1,), (0, 1)))
        await self._cut([network.zookeeper_for_client(2 * work + client) for client in clients], seconds)

    async def _cut(self, addresses: list[str], seconds: float) -> None:
        directions = self._rng.choice(network.DIRECTIONS)
        for address in addresses:
            await off(network.cut_off, address, directions)
        await _last(seconds)
        for address in addresses:
            await off(network.connect_again, address, directions)

    def _number(self, name: str) -> int:
        return self._bookies.names.index(name)

    # Disks

    async def _slow_disk(self, names: list[str], seconds: float) -> None:
        await self._disk(names, seconds, Faults(sync_delay_us=self._rng.choice((5_000, 50_000, 500_000))))

    async def _full_disk(self, names: list[str], seconds: float) -> None:
        """Journals fail at preallocation, stores at any write; both file systems say that nothing is free."""
        await asyncio.gather(
            self._disk(names, seconds, Faults(allocate_errno=errno.ENOSPC), parts=("journal",)),
            self._disk(names, seconds, Faults(write_errno=errno.ENOSPC), parts=("store",)),
        )

    async def _disk_error(self, names: list[str], seconds: float) -> None:
        faults = self._rng.choice((Faults(sync_errno=errno.EIO), Faults(write_errno=errno.EIO)))
        await self._disk(names, seconds, faults, parts=(self._rng.choice(("journal", "store")),))

    async def _disk(
        self, names: list[str], seconds: float, faults: Faults, parts: tuple[str, ...] = ("journal", "store")
    ) -> None:
        disks = [self._bookies.disks[name, part] for name in names for part in parts]
        for disk in disks:
            disk.set_faults(faults)
        await _last(seconds)
        for disk in disks:
            disk.set_faults(Faults())

    # Writers

    async def _writer_crash(self, names: list[str], seconds: float) -> None:
        """A handle ends without closing its ledger; somebody will recover it."""
        await self._rng.choice(self._works).ledger.abandon()

    async def _fence(self, names: list[str], seconds: float) -> None:
        """Somebody recovers the ledger while it is written."""
        work = self._rng.choice(self._works)
        try:
            await work.reader.open_ledger(work.ledger.id)
        except PASSING:
            return  # too few bookies for it now: the fence may stand all the same


async def _last(seconds: float) -> None:
    """A fault lasts for a time; nothing says when it was long enough."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        return
