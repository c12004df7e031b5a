"""The brokers of a cluster: registrations with addresses and load, and which broker leads.

A broker is registered while its ephemeral node exists. The leases of its bundles (daybook/metadata/bundles.py) belong to the same
session, so they end together with it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId, BrokerLoad
from daybook.metadata.election import Election
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Put,
    SessionExpiredError,
    Watch,
)
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

FORMAT_VERSION: Final = 1
REGISTER_TIMEOUT_S: Final = 30.0
"""Longer than a session lasts: a predecessor that is still registered after this time is running."""


class BrokerRegisteredElsewhereError(MetadataError):
    """Another process is registered under the broker's id and stays registered."""


class Urls(NamedTuple):
    """Where clients reach a broker, without TLS and with it; an empty one means "not there"."""

    plain: str = ""
    tls: str = ""


_NOWHERE: Final = Urls()


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """The record of a registered broker. `boot_id` is drawn anew by each process."""

    broker: BrokerId
    boot_id: str = ""
    urls: Urls = _NOWHERE
    """`pulsar://host:port` and `pulsar+ssl://host:port`."""
    admin_urls: Urls = _NOWHERE
    """`http://host:port` and `https://host:port`."""
    listeners: Mapping[str, Urls] = field(default_factory=dict)
    """The addresses for clients that ask for a listener by its name."""
    load: BrokerLoad = field(default_factory=BrokerLoad)
    version: str = ""
    started_at_ms: int = 0

    def urls_of(self, listener: str) -> Urls | None:
        """The addresses of a listener; without a name the broker's own ones. None: there is no such listener."""
        return self.listeners.get(listener) if listener else self.urls


class BrokersView(NamedTuple):
    """The registered brokers by id, in order, and the leader, if it is known."""

    brokers: Mapping[BrokerId, BrokerInfo]
    leader: BrokerId | None


class BrokerDirectory:
    """The brokers of one cluster. While the store does not answer, what writes raises MetadataUnavailableError, and what reads waits."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the brokers of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def register(
        self, info: BrokerInfo, session_id: int, *, wait_s: float = REGISTER_TIMEOUT_S
    ) -> None:
        """Create the broker's node within a session, once the node of its predecessor is gone.

        Raises SessionExpiredError, and BrokerRegisteredElsewhereError if another process is still registered after `wait_s`.
        """
        path = self._layout.broker(info.broker)
        watch = self._store.watch()
        try:
            async with asyncio.timeout(wait_s):
                while not await self._try_to_register(watch, path, info, session_id):
                    await watch.changed()
        except TimeoutError as error:
            msg = (
                f"broker {info.broker} is still registered by another process after {wait_s:g} s: "
                "does it run twice? Stop the other process, or give this one its own id"
            )
            raise BrokerRegisteredElsewhereError(msg) from error
        finally:
            watch.close()

    async def _try_to_register(self, watch: Watch, path: str, info: BrokerInfo, session_id: int) -> bool:
        try:
            await self._store.create(
                path, _to_json(info, session_id), ephemeral=True, parents=True, session_id=session_id
            )
        except NodeExistsError:
            found = await watch.get(path)
            if found is None:
                return await self._try_to_register(watch, path, info, session_id)
            record = json.loads(found.value)
            if (record["bootId"], record["sessionId"]) == (info.boot_id, session_id):
                return True  # by an attempt that ended without an answer
            log.info("waiting for the broker's former process or session to end", path=path)
            return False
        return True

    async def report(self, info: BrokerInfo, session_id: int) -> None:
        """Replace the record of a broker that is registered. Raises NoNodeError, SessionExpiredError."""
        await self._store.multi(
            [Put(self._layout.broker(info.broker), _to_json(info, session_id), None)], session_id=session_id
        )

    async def deregister(self, broker: BrokerId, session_id: int) -> None:
        """Remove the broker's node; the end of the session would do so, too."""
        with suppress(NoNodeError, SessionExpiredError):
            await self._store.multi([Delete(self._layout.broker(broker), None)], session_id=session_id)

    async def view(self) -> BrokersView:
        """The brokers that are registered now, and the leader. Waits while the store is unavailable."""
        watch = self._store.watch()
        try:
            return await self._read(watch)
        finally:
            watch.close()

    async def watch(self) -> AsyncIterator[BrokersView]:
        """Yield the view now, and again whenever a broker registers, leaves or reports, or another one leads.

        While the store is unavailable this yields nothing: no broker is reported as gone because the store does not answer.
        """
        last: BrokersView | None = None
        while True:
            watch = self._store.watch()
            try:
                found = await self._read(watch)
                if found != last:
                    last = found
                    yield found
                await watch.changed()
            finally:
                watch.close()

    def election(self, broker: BrokerId) -> Election:
        """The election of the leader, with this broker as a candidate."""
        return Election(self._store, self._layout.broker_leader, broker)

    async def _read(self, watch: Watch) -> BrokersView:
        listed = await watch.children(self._layout.brokers)
        found: dict[BrokerId, BrokerInfo] = {}
        for broker in listed.value if listed else ():
            node = await watch.get(self._layout.broker(broker))
            if node is not None:
                found[broker] = _from_json(broker, node.value)
        return BrokersView(found, await self.election("").leader(watch))


def _to_json(info: BrokerInfo, session_id: int) -> bytes:
    load = info.load
    record = {
        "formatVersion": FORMAT_VERSION,
        "bootId": info.boot_id,
        "sessionId": session_id,
        "urls": info.urls,
        "adminUrls": info.admin_urls,
        "listeners": info.listeners,
        "version": info.version,
        "startedAtMs": info.started_at_ms,
        "load": {
            "busy": load.busy,
            "bundles": load.bundles,
            "cost": load.cost,
            "heaviest": [[str(bundle), cost] for bundle, cost in load.heaviest],
        },
    }
    return json.dumps(record, separators=(",", ":")).encode()


def _from_json(broker: BrokerId, data: bytes) -> BrokerInfo:
    """The inverse; it ignores fields of a later release. Raises MetadataError."""

    def make(record: dict[str, Any]) -> BrokerInfo:
        load = record["load"]
        return BrokerInfo(
            broker,
            str(record["bootId"]),
            Urls(*record["urls"]),
            Urls(*record["adminUrls"]),
            {str(name): Urls(*urls) for name, urls in record["listeners"].items()},
            BrokerLoad(
                float(load["busy"]),
                int(load["bundles"]),
                float(load["cost"]),
                tuple((Bundle.parse(bundle), float(cost)) for bundle, cost in load["heaviest"]),
            ),
            str(record["version"]),
            int(record["startedAtMs"]),
        )

    return read_record(data, f"registration of broker {broker}", FORMAT_VERSION, make)
