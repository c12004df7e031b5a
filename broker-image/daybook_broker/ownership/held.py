"""The leases of this broker: taken, handed over, and lost.

Everything here happens within the session in which the broker is registered. When the session ends, all leases are lost at once; when
it only may have ended, nothing is lost yet, and nothing counts as owned either (rule 46): `owns` is False until it is certain again.
"""

import asyncio
from collections.abc import Iterator

from daybook.core.errors import DaybookError
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.lookup import Holding
from daybook.metadata.brokers import BrokerInfo
from daybook.metadata.bundles import BundleDirectory, BundleLease
from daybook.metadata.store.store import SessionExpiredError, StoreClosedError
from daybook.runtime.logs import get_logger
from daybook.runtime.shielded import shielded
from daybook_broker.ownership.api import BundleEvents
from daybook_broker.ownership.session import OwnSession

log = get_logger(__name__)


class HeldBundles:
    """The bundles that this broker owns."""

    def __init__(
        self,
        directory: BundleDirectory,
        session: OwnSession,
        broker: str,
        events: BundleEvents,
        *,
        leave_s: float,
    ) -> None:
        """None is owned yet."""
        self._directory = directory
        self._session = session
        self._broker = broker
        self._events = events
        self._leave_s = leave_s
        self._leases: dict[Bundle, BundleLease] = {}
        self._guards: dict[Bundle, asyncio.Task[None]] = {}
        self._leaving: dict[Bundle, asyncio.Task[bool]] = {}
        self._taking: dict[Bundle, asyncio.Task[None]] = {}
        self.count_changed = asyncio.Event()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._leases)

    def __iter__(self) -> Iterator[Bundle]:
        """All of them, in order."""
        return iter(sorted(self._leases))

    def holding(self, bundle: Bundle) -> Holding:
        """What this broker does with a bundle; what it has counts only while the session is certain."""
        if bundle not in self._leases:
            return Holding.NOTHING
        return Holding.LEAVING if bundle in self._leaving else Holding.OWNED

    def owns(self, bundle: Bundle) -> bool:
        """Whether this broker certainly owns the bundle, and keeps it."""
        return self.holding(bundle) is Holding.OWNED and self._session.is_certain

    async def take(self, bundle: Bundle, *, over: int | None = None) -> None:
        """Take the lease if it can be had; all who want it share one attempt."""
        task = self._taking.get(bundle)
        if task is None:
            task = self._taking[bundle] = asyncio.create_task(self._take(bundle, over))
            task.add_done_callback(lambda _: self._taking.pop(bundle, None))
        await shielded(task)

    async def _take(self, bundle: Bundle, over: int | None) -> None:
        session_id = self._session.session_id
        if not session_id or bundle in self._leases:
            return
        try:
            lease = await self._directory.take(bundle, self._broker, session_id, over=over)
        except SessionExpiredError:
            return
        if lease is None or session_id != self._session.session_id:
            return
        self._leases[bundle] = lease
        self._guards[bundle] = asyncio.create_task(self._guard(bundle, lease))
        self.count_changed.set()
        log.info("bundle taken", bundle=str(bundle))
        self._events.gained(bundle)

    async def _guard(self, bundle: Bundle, lease: BundleLease) -> None:
        """Lose the bundle if somebody removes its node."""
        try:
            await lease.gone()
        except StoreClosedError:
            return
        if bundle not in self._leaving:
            log.warning("the lease of a bundle is gone", bundle=str(bundle))
            self._drop(bundle, None)

    def lose_all(self) -> None:
        """The session ended: nothing is owned any more."""
        for bundle in list(self._leases):
            self._drop(bundle, None)

    def _drop(self, bundle: Bundle, to: BrokerInfo | None) -> None:
        if self._leases.pop(bundle, None) is not None:
            guard = self._guards.pop(bundle)
            if guard is not asyncio.current_task():
                guard.cancel()
            self.count_changed.set()
            self._events.lost(bundle, to)

    async def leave(self, bundle: Bundle, to: BrokerInfo | None) -> bool:
        """Finish what is under way, and give the bundle up, for `to` if that is given. False: it was not owned, or was lost meanwhile."""
        task = self._leaving.get(bundle)
        if task is None:
            if bundle not in self._leases:
                return False
            task = self._leaving[bundle] = asyncio.create_task(self._leave(bundle, to))
            task.add_done_callback(lambda _: self._leaving.pop(bundle, None))
        return await shielded(task)

    async def _leave(self, bundle: Bundle, to: BrokerInfo | None) -> bool:
        lease = self._leases.get(bundle)
        if lease is None:
            return False
        try:
            async with asyncio.timeout(self._leave_s):
                await self._events.leaving(bundle)
        except (TimeoutError, DaybookError) as error:
            log.warning(
                "a bundle is handed over before its topics have finished", bundle=str(bundle), why=repr(error)
            )
        if self._leases.get(bundle) is not lease:
            return False
        self._guards[bundle].cancel()
        released = await lease.release("" if to is None else to.broker)
        if released:
            log.info("bundle released", bundle=str(bundle), to="" if to is None else to.broker)
        self._drop(bundle, to if released else None)
        return released

    async def close(self) -> None:
        """Stop; what is owned ends with the session."""
        tasks = [*self._guards.values(), *self._leaving.values(), *self._taking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
