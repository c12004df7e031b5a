"""The leases of bundles, and orders between brokers about them.

A lease is an ephemeral node with the name of its owner and a token that no other lease has (rule 42). Its owner changes it only
within the session that created it, so an owner that lost its session harms no successor. An owner that gives a bundle up *releases*
the lease: its node stays, and says for whom. The next owner replaces it in one transaction, so nobody comes between who is not meant,
and if the next owner never comes, anybody else may.

    bundles/<tenant>/<namespace>/<range>   the lease
    orders/<broker>/<bundle>               what the leader, or the bundle's former owner, asks a broker to do
"""

import json
import math
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from daybook.core.errors import MetadataUnavailableError
from daybook.core.format.stored_record import read_record
from daybook.core.topics.ownership.bundles import Bundle, bundles_of
from daybook.core.topics.ownership.load import BrokerId
from daybook.core.topics.ownership.lookup import BundleOwner
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionExpiredError,
    Versioned,
    Watch,
)

FORMAT_VERSION: Final = 1


class OrderKind(Enum):
    """What a broker is to do with a bundle."""

    UNLOAD = "unload"
    """Give it up, for the broker that the order names."""
    TAKE = "take"
    """Take the lease, which its owner has released."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to a broker; `to` is the next owner of a bundle to unload, if there is one."""

    kind: OrderKind
    bundle: Bundle
    to: BrokerId = ""


class BundleLease:
    """The lease of a bundle that this process has, within its session."""

    def __init__(self, store: MetadataStore, path: str, session_id: int, data: bytes) -> None:
        """Wrap the node at `path`, which the caller created within `session_id` with `data`."""
        self._store = store
        self._path = path
        self._session_id = session_id
        self._data = data
        self._is_released = False

    async def gone(self) -> None:
        """Return when the node is not this lease's any more: deleted by somebody, or with its session."""
        watch = self._store.watch()
        try:
            while (found := await watch.get(self._path)) is not None and found.value == self._data:
                await watch.changed()
        finally:
            watch.close()

    async def release(self, to: BrokerId = "") -> bool:
        """Give the bundle up, for the broker `to` if there is one. False: the lease was lost, or released, before.

        Waits while the store is unavailable, until the session ends. A node of the lease's own makes the change happen once:
        after a lost reply the next owner's node could be there already, at the same version (rule 42).
        """
        if self._is_released:
            return False
        self._is_released = True
        record = json.loads(self._data)
        once = f"{self._path.rpartition('/')[0]}/released-{record['token']}"
        released = json.dumps({**record, "released": True, "to": to}).encode()
        change: list[Operation] = [Create(once, self._data, ephemeral=True), Put(self._path, released, 0)]
        try:
            await self._store.multi(change, session_id=self._session_id, timeout_s=math.inf)
        except (NoNodeError, BadVersionError, SessionExpiredError):
            return False
        with suppress(NoNodeError, MetadataUnavailableError):  # it goes with the session
            await self._store.delete(once, session_id=self._session_id)
        return True


class BundleDirectory:
    """The bundles of one cluster and their owners. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the bundles of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def owner(self, bundle: Bundle, watch: Watch) -> Versioned[BundleOwner] | None:
        """What the node of a bundle says, read through `watch`; None: nobody has the lease."""
        node = await watch.get(self._layout.bundle(bundle))
        return None if node is None else Versioned(_owner_of(bundle, node.value), node.version)

    async def owners(self, tenant: str, namespace: str) -> Mapping[Bundle, BundleOwner]:
        """The bundles of a namespace that have an owner."""
        try:
            listed = await self._store.children(self._layout.bundles(tenant, namespace))
        except NoNodeError:
            return {}
        found: dict[Bundle, BundleOwner] = {}
        for bundle in bundles_of(tenant, namespace):
            if bundle.range in listed:
                with suppress(NoNodeError):
                    node = await self._store.get(self._layout.bundle(bundle))
                    found[bundle] = _owner_of(bundle, node.value)
        return found

    async def take(
        self, bundle: Bundle, broker: BrokerId, session_id: int, *, over: int | None = None
    ) -> BundleLease | None:
        """Take the lease within a session: one that nobody has, or the released one at version `over`. None: another was first.

        Waits while the store is unavailable. Raises SessionExpiredError.
        """
        path = self._layout.bundle(bundle)
        record = {
            "formatVersion": FORMAT_VERSION,
            "holder": broker,
            "token": uuid.uuid4().hex,
            "released": False,
        }
        data = json.dumps({**record, "to": ""}).encode()
        try:
            if over is None:
                await self._store.create(
                    path, data, ephemeral=True, parents=True, session_id=session_id, timeout_s=math.inf
                )
            else:
                replaced: list[Operation] = [Delete(path, over), Create(path, data, ephemeral=True)]
                await self._store.multi(replaced, session_id=session_id, timeout_s=math.inf)
        except (NodeExistsError, NoNodeError, BadVersionError):
            return None
        return BundleLease(self._store, path, session_id, data)

    # Orders

    async def send(self, broker: BrokerId, order: Order, session_id: int) -> None:
        """Ask a broker to do something; an order that waits for the same bundle stays. The order ends with the sender's session."""
        record = {"formatVersion": FORMAT_VERSION, "do": order.kind.value, "to": order.to}
        data = json.dumps({**record, "token": uuid.uuid4().hex}).encode()
        path = self._layout.order(broker, order.bundle)
        with suppress(NodeExistsError):
            await self._store.create(path, data, ephemeral=True, parents=True, session_id=session_id)

    async def orders(self, broker: BrokerId) -> AsyncIterator[tuple[Order, ...]]:
        """Yield the orders to a broker, and again whenever one comes or goes. While the store is unavailable this yields nothing."""
        async for listed in self._store.watch_children(self._layout.orders(broker)):
            found = []
            watch = self._store.watch()  # what it reads waits, too
            try:
                for name in listed or ():
                    bundle = Bundle.parse(decode_name(name))
                    node = await watch.get(self._layout.order(broker, bundle))
                    if node is not None:
                        found.append(_order_of(bundle, node.value))
            finally:
                watch.close()
            yield tuple(found)

    async def done(self, broker: BrokerId, order: Order) -> None:
        """Remove an order. While the store is unavailable it stays, and is found again."""
        with suppress(NoNodeError, MetadataUnavailableError):
            await self._store.delete(self._layout.order(broker, order.bundle))


def _owner_of(bundle: Bundle, data: bytes) -> BundleOwner:
    def make(record: dict[str, Any]) -> BundleOwner:
        return BundleOwner(str(record["holder"]), bool(record["released"]), str(record["to"]))

    return read_record(data, f"lease of bundle {bundle}", FORMAT_VERSION, make)


def _order_of(bundle: Bundle, data: bytes) -> Order:
    def make(record: dict[str, Any]) -> Order:
        return Order(OrderKind(record["do"]), bundle, str(record["to"]))

    return read_record(data, f"order about bundle {bundle}", FORMAT_VERSION, make)
