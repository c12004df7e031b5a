"""Presence, topology, cookies and replacements of bookies."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import (
    BookieDirectory,
    BookieStillRegisteredError,
    Cookie,
    Location,
    info_from_json,
    info_to_json,
)
from daybook.metadata.claim import RegisteredElsewhereError
from daybook.metadata.store.memory import MemoryServer
from daybook.metadata.store.store import BadVersionError, NodeExistsError, NoNodeError
from daybook.metadata.tree import IncompleteListingError
from tests.unit.metadata.harness import (
    LAYOUT,
    Opener,
    following,
    formatted,
    memory_opener,
    register,
    soon,
    stores,
)

INFO = BookieInfo(
    "ns.pool-0",
    address="127.0.0.1:3181",
    region="r",
    zone="z",
    rack="rack-1",
    node="n",
    free_bytes=5,
    capacity_bytes=10,
    boot_id="boot-1",
)
COOKIE = Cookie("ns.pool-0", "instance", "incarnation-1", ("/journal", "/ledgers"), "uid")

Snapshot = Mapping[BookieId, BookieInfo]


def ends_with(seen: list[Snapshot], expected: Snapshot) -> bool:
    return seen[-1] == expected


def info(number: int, **changes: object) -> BookieInfo:
    values: dict[str, object] = {"bookie": f"b{number}", "boot_id": f"boot-{number}", **changes}
    return BookieInfo(**values)  # type: ignore[arg-type]  # passed through


def test_a_registration_record_is_read_back() -> None:
    assert info_from_json(INFO.bookie, info_to_json(INFO), writable=True) == INFO
    later = info_to_json(INFO)[:-1] + b', "somethingNew": 1}'
    assert info_from_json(INFO.bookie, later, writable=True) == INFO
    with pytest.raises(MetadataError, match="not a valid record"):
        info_from_json("b", b"[1]", writable=True)


def test_a_cookie_is_read_back_and_anything_else_is_refused() -> None:
    assert Cookie.from_json(COOKIE.to_json()) == COOKIE
    for data in (b"", b"{}", b"[]", COOKIE.to_json().replace(b'"formatVersion": 1', b'"formatVersion": 2')):
        with pytest.raises(MetadataError, match="not a cookie"):
            Cookie.from_json(data)


async def test_a_registered_bookie_has_the_topologys_place(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        directory = BookieDirectory(two, LAYOUT)
        assert await directory.bookies() == {}
        registration = await register(one, INFO)
        await two.sync()
        assert await directory.bookies() == {INFO.bookie: INFO}
        await directory.set_locations({INFO.bookie: Location("R", "Z", "rack-9", "N"), "other": Location()})
        placed = (await directory.bookies())[INFO.bookie]
        assert (placed.region, placed.zone, placed.rack, placed.node) == ("R", "Z", "rack-9", "N")
        assert placed.address == INFO.address
        await directory.set_locations({INFO.bookie: None})
        assert await directory.topology() == {"other": Location()}
        await registration.close()
        await two.sync()
        assert await directory.bookies() == {}


async def test_watchers_see_bookies_register_change_and_leave(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        seen: list[Snapshot] = []
        directory = BookieDirectory(two, LAYOUT)

        async def until(expected: Snapshot) -> None:
            await soon(following(directory.watch_bookies(), seen, lambda: seen[-1] == expected))

        watching = asyncio.create_task(until({"b1": info(1), "b2": info(2)}))
        first = await register(one, info(1))
        await register(two, info(2))
        await watching
        watching = asyncio.create_task(until({"b1": info(1, writable=False, free_bytes=3), "b2": info(2)}))
        await first.update(info(1, free_bytes=3))
        await first.update(info(1, writable=False, free_bytes=3))
        await watching
        assert await one.children(LAYOUT.available) == ("b2",)
        watching = asyncio.create_task(until({"b2": info(2)}))
        await one.close()
        await watching


async def test_a_change_of_mode_never_leaves_a_bookie_in_no_list() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        registration = await register(one, info(1))
        counts: list[int] = []
        watch = two.watch()

        async def count() -> None:
            while True:
                found = [await watch.children(path) for path in (LAYOUT.available, LAYOUT.read_only)]
                counts.append(sum(len(listed.value) for listed in found if listed))
                await watch.changed()

        counting = asyncio.create_task(count())
        for turn in range(10):
            await registration.update(info(1, writable=turn % 2 == 1))
            await asyncio.sleep(0)
        counting.cancel()
        assert len(counts) > 1
        assert 0 not in counts


async def test_rule_42_a_bookie_registers_again_after_its_session_expired() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await register(one, info(1))
        for _ in range(3):
            before = one.session.session_id
            server.expire(before)
            seen: list[Snapshot] = []
            bookies = BookieDirectory(two, LAYOUT).watch_bookies()
            await soon(following(bookies, seen, partial(ends_with, seen, {"b1": info(1)})), 2.0)
            assert one.session.session_id != before
        await two.delete(LAYOUT.registration("b1", writable=True))  # by an operator's hand
        await soon(
            following(BookieDirectory(two, LAYOUT).watch_bookies(), seen, lambda: seen[-1] == {"b1": info(1)})
        )


async def test_a_restarted_bookie_waits_for_its_predecessors_session_to_end() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await register(one, info(1, boot_id="old", writable=False))
        restarted = asyncio.create_task(register(two, info(1, boot_id="new")))
        await asyncio.sleep(0.02)
        assert not restarted.done()
        await one.close()
        await soon(restarted)
        assert (await BookieDirectory(two, LAYOUT).bookies())["b1"].boot_id == "new"
        assert server.in_flight == 0


async def test_a_second_process_under_the_same_id_is_refused() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await register(one, info(1, boot_id="one"))
        with pytest.raises(RegisteredElsewhereError, match="does it run twice"):
            await register(two, info(1, boot_id="two"), wait_s=0.05)
        assert (await BookieDirectory(two, LAYOUT).bookies())["b1"].boot_id == "one"


async def test_an_unformatted_cluster_has_no_list_of_bookies_rather_than_an_empty_one() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        with pytest.raises(IncompleteListingError):
            await BookieDirectory(store, LAYOUT).bookies()


async def test_bookies_are_not_reported_gone_while_the_store_is_unavailable() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await register(one, info(1))
        values = BookieDirectory(two, LAYOUT).watch_bookies()
        assert await anext(values) == {"b1": info(1)}
        following_value = asyncio.ensure_future(anext(values))
        server.suspend()
        await asyncio.sleep(0.02)
        assert not following_value.done()
        server.resume()
        await one.close()
        assert await soon(following_value) == {}


@asynccontextmanager
async def without_answers() -> AsyncIterator[tuple[MemoryServer, BookieDirectory]]:
    """The directory of a cluster with one bookie, whose store has just stopped to answer."""
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        await register(one, info(1))
        directory = BookieDirectory(two, LAYOUT)
        server.suspend()
        yield server, directory


async def test_who_asks_for_bookies_is_refused_while_the_store_is_unavailable() -> None:
    async with without_answers() as (server, directory):
        with pytest.raises(MetadataUnavailableError):
            await soon(directory.bookies())
        server.resume()
        assert await directory.bookies() == {"b1": info(1)}


async def test_who_asks_for_bookies_is_refused_while_a_watch_waits_for_the_store() -> None:
    async with without_answers() as (server, directory):
        values = directory.watch_bookies()
        waiting = asyncio.ensure_future(anext(values))
        await asyncio.sleep(0)
        for asked in (directory.bookies, partial(directory.registered, "b1")):
            with pytest.raises(MetadataUnavailableError, match=r"list of bookies within 0\.05 s"):
                await soon(asked())
        server.resume()
        assert await soon(waiting) == {"b1": info(1)}
        assert await directory.registered("b1") == info(1)


async def test_cookies_are_stamped_once_and_deleted_by_version(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        directory = BookieDirectory(store, LAYOUT)
        assert await directory.cookie(COOKIE.bookie) is None
        await store.multi(directory.stamping(COOKIE, over=None, leave=None))
        with pytest.raises(NodeExistsError):
            await store.multi(directory.stamping(COOKIE, over=None, leave=None))
        found = await directory.cookie(COOKIE.bookie)
        assert found is not None
        assert found == (COOKIE, 0)
        assert await directory.cookies() == (COOKIE.bookie,)
        with pytest.raises(BadVersionError):
            await directory.delete_cookie(COOKIE.bookie, 1)
        await directory.delete_cookie(COOKIE.bookie, found.version)
        assert await directory.cookies() == ()


async def test_rule_29_a_replacement_needs_the_old_registration_gone_and_is_used_once(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        directory = BookieDirectory(two, LAYOUT)
        await two.multi(directory.stamping(COOKIE, over=None, leave=None))
        old = await register(one, INFO)
        with pytest.raises(BookieStillRegisteredError, match="stop it first"):
            await directory.authorise_replacement(INFO.bookie, by="me", now_ms=1)
        await old.update(BookieInfo(INFO.bookie, writable=False))
        with pytest.raises(BookieStillRegisteredError, match="readonly"):
            await directory.authorise_replacement(INFO.bookie, by="me", now_ms=1)
        await old.close()
        assert await directory.replacement(INFO.bookie) is None
        await directory.authorise_replacement(INFO.bookie, by="me", now_ms=1)
        await directory.authorise_replacement(INFO.bookie, by="me again", now_ms=2)
        authorised = await directory.replacement(INFO.bookie)
        assert authorised is not None
        stamped = Cookie(COOKIE.bookie, "instance", "incarnation-2", ("/journal", "/ledgers"), "uid")
        before = await directory.cookie(COOKIE.bookie)
        await two.multi(directory.stamping(stamped, over=before, leave=authorised))
        now = await directory.cookie(COOKIE.bookie)
        assert now == (stamped, 1)
        with pytest.raises(NoNodeError):
            await two.multi(directory.stamping(stamped, over=now, leave=authorised))
        assert await directory.cookie(COOKIE.bookie) == (stamped, 1)
