"""The bookies of a cluster: registrations, cookies, authorised replacements and the topology.

A bookie is registered while its ephemeral node exists, in `available` or in `readonly`. Readers of the list get one snapshot
of both with the topology applied to it (the topology, which the operator writes, overrides what a bookie reports about itself).
Cookies and replacements change together and by version, so that an authorisation is used once (rule 29).
"""

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ids import BookieId, check_bookie_id
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.hold import check_not_held
from daybook.metadata.layout import Layout
from daybook.metadata.store.shared import SharedRequest
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    Versioned,
    Watch,
)
from daybook.metadata.tree import list_directory
from daybook.runtime.logs import get_logger

log = get_logger(__name__)

REPLACEMENT_VALID_MS: Final = 24 * 3600 * 1000
"""How long a replacement stays authorised: long enough to change a disk, too short for a mount that fails months later."""


DIRECTORIES: Final = ("journal", "store")
"""A bookie's directories, as cookies name them: one more or one less is another bookie."""


class BookieStillRegisteredError(MetadataError):
    """A replacement was requested while the old bookie may still run (rule 29)."""


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a bookie in the topology; an empty name means "not known"."""

    region: str = ""
    zone: str = ""
    rack: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Cookie:
    """The record that must be equal in a bookie's directories and in the store before the bookie starts (rule 29).

    `incarnation` is drawn anew whenever the cookie is stamped, so that a cookie of a replaced disk never fits again.
    """

    bookie: BookieId
    instance_id: str
    incarnation: str
    directories: tuple[str, ...]
    pool_uid: str = ""

    def to_json(self) -> bytes:
        """The stored form, in ZooKeeper."""
        return json.dumps({"formatVersion": 1, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Cookie":
        """The inverse of `to_json`. Raises MetadataError for any other data."""
        try:
            record = json.loads(data)
            if record.pop("formatVersion") != 1:
                raise ValueError("format")
            return cls(**{**record, "directories": tuple(record["directories"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            msg = f"this is not a cookie of a known format: {data[:200]!r}"
            raise MetadataError(msg) from error


class BookieDirectory:
    """The bookies of one cluster. Raises MetadataUnavailableError from every method while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the bookies of `layout` in `store`."""
        self._store = store
        self._layout = layout
        self._reading = asyncio.Lock()
        self._registrations: dict[BookieId, SharedRequest[BookieInfo | None]] = {}

    # Presence.

    async def registered(self, bookie: BookieId) -> BookieInfo | None:
        """The bookie's registration as it is now, without its place in the topology; None if it has none.

        A caller that received this registration receives no older one afterwards, from any snapshot of this directory.
        Those who ask at one time share a read.
        """
        if bookie not in self._registrations:
            self._registrations[bookie] = SharedRequest(partial(self._read_registration, bookie))
        return await self._registrations[bookie].answer()

    async def _read_registration(self, bookie: BookieId) -> BookieInfo | None:
        async with self._turn():
            # it moves from one to the other, perhaps between the two reads
            for writable in (True, False, True):
                try:
                    node = await self._store.get(self._layout.registration(bookie, writable=writable))
                except NoNodeError:
                    continue
                return info_from_json(bookie, node.value, writable=writable)
        return None

    async def bookies(self) -> Mapping[BookieId, BookieInfo]:
        """The bookies that are registered now, by id in order; those that are not writable are read-only."""
        watch = self._store.watch()
        try:
            async with self._turn():
                return await self._read(watch, timeout_s=None)
        finally:
            watch.close()

    async def watch_bookies(self) -> AsyncIterator[Mapping[BookieId, BookieInfo]]:
        """Yield the registered bookies now, and again whenever one registers, leaves, changes its record or is moved.

        While the store is unavailable this yields nothing: no bookie is reported as gone because the store does not answer.
        """
        watch = self._store.watch()
        try:
            last = await self._snapshot(watch)
            yield last
            while True:
                await watch.changed()
                found = await self._snapshot(watch)
                if found != last:
                    last = found
                    yield found
        finally:
            watch.close()

    async def _snapshot(self, watch: Watch) -> dict[BookieId, BookieInfo]:
        async with self._reading:  # one at a time, or an older snapshot could replace a newer one
            return await self._read(watch, timeout_s=math.inf)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold `_reading`, of which a snapshot for `watch_bookies` lets go only once the store answers."""
        limit_s = self._store.operation_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._reading.acquire()
        except TimeoutError as error:
            msg = f"ZooKeeper did not answer for the list of bookies within {limit_s:g} s: check that the servers run"
            raise MetadataUnavailableError(msg) from error
        try:
            yield
        finally:
            self._reading.release()

    async def _read(self, watch: Watch, *, timeout_s: float | None) -> dict[BookieId, BookieInfo]:
        locations = _locations(await watch.get(self._layout.topology, timeout_s=timeout_s))
        found: dict[BookieId, BookieInfo] = {}
        for directory, writable in ((self._layout.read_only, False), (self._layout.available, True)):
            listed = await watch.children(directory, timeout_s=timeout_s)
            if listed is None:
                await list_directory(self._store, directory)  # raises with the name of the missing directory
            for bookie in listed.value if listed else ():
                node = await watch.get(f"{directory}/{bookie}", timeout_s=timeout_s)
                if node is not None:
                    info = info_from_json(bookie, node.value, writable=writable)
                    location = locations.get(bookie)
                    found[bookie] = info if location is None else replace(info, **asdict(location))
        return dict(sorted(found.items()))

    # Topology.

    async def topology(self) -> Mapping[BookieId, Location]:
        """The places of the bookies that the operator has written."""
        try:
            return _locations(await self._store.get(self._layout.topology))
        except NoNodeError:
            return {}

    async def watch_location(self, bookie: BookieId) -> AsyncIterator[Location | None]:
        """Yield the place of one bookie, now and after each change of the topology; None while the topology lacks it."""
        async for node in self._store.watch_node(self._layout.topology):
            yield _locations(node).get(bookie)

    async def set_locations(self, changes: Mapping[BookieId, Location | None]) -> None:
        """Write the places of these bookies; None removes one. Other bookies keep theirs."""
        while True:
            try:
                current: Versioned[bytes] | None = await self._store.get(self._layout.topology)
            except NoNodeError:
                current = None
            merged = {
                **_locations(current),
                **{check_bookie_id(bookie): changes[bookie] for bookie in changes},
            }
            record = {bookie: asdict(place) for bookie, place in sorted(merged.items()) if place is not None}
            data = json.dumps(record).encode()
            try:
                if current is None:
                    await self._store.create(self._layout.topology, data, parents=True)
                else:
                    await self._store.put(self._layout.topology, data, current.version)
            except (NodeExistsError, BadVersionError):
                continue
            return

    # Cookies and replacements.

    async def cookie(self, bookie: BookieId) -> Versioned[Cookie] | None:
        """The bookie's cookie, or None."""
        try:
            node = await self._store.get(self._layout.cookie(bookie))
        except NoNodeError:
            return None
        return Versioned(Cookie.from_json(node.value), node.version)

    async def cookies(self) -> tuple[BookieId, ...]:
        """The ids of all bookies that ever started and were not decommissioned."""
        return await list_directory(self._store, self._layout.cookies)

    async def delete_cookie(self, bookie: BookieId, version: int) -> None:
        """Delete the cookie of a decommissioned bookie, and its unused replacement. Raises BadVersionError, NoNodeError.

        Raises CollectionHeldError after a restore (rule 68): the bookie may have what the metadata does not name it for.
        """
        await check_not_held(self._store, self._layout)
        leave = await self.replacement(bookie)
        unused = [] if leave is None else [Delete(self._layout.replacement(bookie), leave.version)]
        await self._store.multi([Delete(self._layout.cookie(bookie), version), *unused])

    async def authorise_replacement(self, bookie: BookieId, *, by: str, now_ms: int) -> None:
        """Authorise `bookie` to start once on empty directories (rule 29), within `REPLACEMENT_VALID_MS`; a second call renews it.

        Raises BookieStillRegisteredError while the bookie is registered. The caller must know that the old process is dead,
        not merely cut off. `now_ms` is for people: the clock of ZooKeeper decides about the age.
        """
        check_bookie_id(bookie)
        await self.refuse_if_registered(bookie)
        data = json.dumps({"by": by, "atMs": now_ms, "token": uuid.uuid4().hex}).encode()
        path = self._layout.replacement(bookie)
        while True:
            before = await self.replacement(bookie)
            renewed = [] if before is None else [Delete(path, before.version)]
            try:
                await self._store.multi([*renewed, Create(path, data)])
            except NodeExistsError:
                continue  # another client authorised it just now
            except NoNodeError:
                if before is None:
                    raise
                continue  # it was used just now
            return

    async def refuse_if_registered(self, bookie: BookieId) -> None:
        """Raise BookieStillRegisteredError while the bookie is registered, read after a `sync`."""
        await self._store.sync(self._layout.root)
        for writable in (True, False):
            path = self._layout.registration(bookie, writable=writable)
            if await self._store.exists(path) is not None:
                msg = f"bookie {bookie} is registered at {path}: stop it first, and wait until it is gone from the list"
                raise BookieStillRegisteredError(msg)

    async def replacement(self, bookie: BookieId) -> Versioned[bytes] | None:
        """The authorisation to replace `bookie`, if there is one."""
        try:
            return await self._store.get(self._layout.replacement(bookie))
        except NoNodeError:
            return None

    async def valid_replacement(self, bookie: BookieId, *, at_ms: int | None) -> Versioned[bytes] | None:
        """As `replacement`, but this deletes a replacement that was not used in time. `at_ms` is now, by the servers' clock.

        With `at_ms` None the time is not known yet, and every authorisation counts.
        """
        leave = await self.replacement(bookie)
        path = self._layout.replacement(bookie)
        if leave is None or at_ms is None:
            return leave
        age_ms = at_ms - await self._store.created_at_ms(path)
        if age_ms <= REPLACEMENT_VALID_MS:
            return leave
        log.warning("an authorised replacement was not used in time", bookie=bookie, age_ms=age_ms)
        await self._store.delete(path, leave.version)
        return None

    def stamping(
        self, cookie: Cookie, *, over: Versioned[Cookie] | None, leave: Versioned[bytes] | None
    ) -> list[Operation]:
        """The operations, for one transaction, that write `cookie` in place of `over` and use up the authorisation.

        The caller has durably marked every ledger that names the bookie as in limbo (rule 29), and holds the claim (rule 57).
        """
        path = self._layout.cookie(check_bookie_id(cookie.bookie))
        stamp: Operation = (
            Create(path, cookie.to_json()) if over is None else Put(path, cookie.to_json(), over.version)
        )
        return (
            [stamp]
            if leave is None
            else [stamp, Delete(self._layout.replacement(cookie.bookie), leave.version)]
        )


def info_to_json(info: BookieInfo) -> bytes:
    """The record of a registration; the node's directory says whether the bookie is writable."""
    record = asdict(info)
    del record["bookie"], record["writable"]
    return json.dumps(record, sort_keys=True).encode()


def info_from_json(bookie: BookieId, data: bytes, *, writable: bool) -> BookieInfo:
    """The inverse; it ignores fields of a later release. Raises MetadataError."""
    try:
        record: dict[str, Any] = json.loads(data)
        known = {name: value for name, value in record.items() if name in BookieInfo.__dataclass_fields__}
        return BookieInfo(**{**known, "bookie": bookie, "writable": writable})
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"the registration of bookie {bookie} is not a valid record: {data[:200]!r}"
        raise MetadataError(msg) from error


def _locations(node: Versioned[bytes] | None) -> dict[BookieId, Location]:
    if node is None or not node.value:
        return {}
    try:
        return {bookie: Location(**place) for bookie, place in json.loads(node.value).items()}
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"the topology is not a JSON object from bookie id to region, zone, rack and node: {node.value[:200]!r}"
        raise MetadataError(msg) from error
