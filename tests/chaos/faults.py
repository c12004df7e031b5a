"""What can happen to bookies and writers: each fault is drawn from a seed, lasts for a while, and is undone."""

import asyncio
import errno
import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos import network
from tests.chaos.bookies import Bookies
from tests.chaos.powercut.disk import Faults
from tests.integration.kit import PASSING, off
from tests.integration.workload import Workload

SECONDS: Final = (0.2, 4.0)
"""How long a fault lasts: shorter and longer than a bookie's session."""


class FaultMaker:
    """Draws faults and carries them out, one at a time or two."""

    def __init__(
        self, bookies: Bookies, works: list[Workload], rng: random.Random, *, can_partition: bool
    ) -> None:
        """Of all faults, those that are possible here."""
        self._bookies = bookies
        self._works = works
        self._rng = rng
        self.kinds: dict[str, Callable[[list[str], float], Awaitable[None]]] = {
            "kill": self._kill,
            "pause": self._pause,
            "graceful restart": self._restart,
            "kill all": self._kill_all,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "disk error": self._disk_error,
            "writer crash": self._writer_crash,
            "fence": self._fence,
        }
        if can_partition:
            self.kinds["partition"] = self._partition

    async def one(self) -> list[str]:
        """Carry out a drawn fault, or two at once on different bookies, and undo them; their kinds."""
        rng = self._rng
        victims = rng.sample(self._bookies.names, rng.choice((1, 1, 2)))
        chosen = [rng.choice(sorted(self.kinds)) for _ in range(rng.choice((1, 1, 2)))]
        if len(chosen) == 2:
            victims = rng.sample(self._bookies.names, 2)
            groups = [[victims[0]], [victims[1]]]
        else:
            groups = [victims]
        works = [
            self.kinds[kind](group, rng.uniform(*SECONDS)) for kind, group in zip(chosen, groups, strict=True)
        ]
        await asyncio.gather(*works)
        await off(self._bookies.start)  # whoever stopped by itself, as after a disk error
        return chosen

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

    async def _partition(self, names: list[str], seconds: float) -> None:
        directions = self._rng.choice(network.DIRECTIONS)
        addresses = [network.address_of(self._bookies.names.index(name)) for name in names]
        for address in addresses:
            network.cut_off(address, directions)
        await _last(seconds)
        for address in addresses:
            network.connect_again(address, directions)

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
