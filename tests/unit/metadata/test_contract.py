"""The contract of every store, over a real ZooKeeper and in memory."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.election import Election
from daybook.metadata.lease import Lease, acquire
from daybook.metadata.store.resolving import READS_IN_REQUEST_MAX
from daybook.metadata.store.store import (
    NODE_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NodeTooLargeError,
    NoNodeError,
    NotEmptyError,
    Put,
    SessionExpiredError,
    StoreClosedError,
    Versioned,
)
from daybook.metadata.store.zookeeper import PUTS_IN_REQUEST_MAX
from daybook.runtime.clock import monotonic_s
from tests.unit.metadata.harness import (
    Opener,
    following,
    soon,
    stores,
    until_children,
)


async def test_a_node_is_created_read_changed_and_deleted_by_version(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        assert await one.create("/a", b"first") == "/a"
        assert await two.get("/a") == Versioned(b"first", 0)
        assert await one.put("/a", b"second", 0) == 1
        with pytest.raises(BadVersionError, match="/a was changed"):
            await two.put("/a", b"third", 0)
        assert await one.put("/a", b"whatever it was", None) == 2
        with pytest.raises(BadVersionError):
            await two.delete("/a", 1)
        await two.sync()
        assert await two.get("/a") == Versioned(b"whatever it was", 2)
        await two.delete("/a", 2)
        assert await two.exists("/a") is None


async def test_missing_and_existing_nodes_are_errors_that_name_the_node(
    opener: Opener,
) -> None:
    async with stores(opener, 1) as (store,):
        for call in (store.get("/no"), store.children("/no"), store.put("/no", b"", 0), store.delete("/no")):
            with pytest.raises(NoNodeError, match="/no does not exist"):
                await call
        with pytest.raises(NoNodeError, match="/no/child"):
            await store.create("/no/child")
        await store.create("/yes")
        with pytest.raises(NodeExistsError, match="/yes exists already"):
            await store.create("/yes")
        await store.create("/yes/child")
        with pytest.raises(NotEmptyError):
            await store.delete("/yes")
        with pytest.raises(NodeTooLargeError):
            await store.put("/yes", bytes(NODE_BYTES_MAX + 1), 0)


async def test_many_nodes_are_read_at_once_and_each_has_its_own_error(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        paths = [f"/many/{n}" for n in range(2 * READS_IN_REQUEST_MAX + 1)]
        await asyncio.gather(*(one.create(path, path.encode(), parents=True) for path in paths))
        await one.put(paths[1], b"", 0)
        await one.delete(paths[-1])
        await two.sync()
        found = await two.get_each(paths)
        assert found[0] == Versioned(b"/many/0", 0)
        assert found[1] == Versioned(b"", 1)
        assert found[2:-1] == [Versioned(path.encode(), 0) for path in paths[2:-1]]
        assert isinstance(found[-1], NoNodeError)
        assert found[-1].path == paths[-1]
        assert await two.get_each([]) == []


async def test_what_is_asked_for_and_changed_at_one_time_has_each_its_own_outcome(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        paths = [f"/many/{n}" for n in range(PUTS_IN_REQUEST_MAX + 2)]
        await asyncio.gather(*(one.create(path, parents=True) for path in paths))
        await two.put(paths[1], b"of another", 0)
        changed = await asyncio.gather(
            *(one.put(path, path.encode(), 0) for path in paths),
            one.put("/missing", b"", 0),
            one.put(paths[0], b"later", None),
            return_exceptions=True,
        )
        assert isinstance(changed[1], BadVersionError)
        assert isinstance(changed[-2], NoNodeError)
        assert changed[-1] == 2
        assert [changed[0], *changed[2:-2]] == [1] * (len(paths) - 1)
        await two.sync()
        *found, missing = await asyncio.gather(
            *(two.get(path) for path in paths), two.get("/missing"), return_exceptions=True
        )
        assert isinstance(missing, NoNodeError)
        assert found[:2] == [Versioned(b"later", 2), Versioned(b"of another", 1)]
        assert found[2:] == [Versioned(path.encode(), 1) for path in paths[2:]]


async def test_parents_are_made_and_children_are_listed_in_order(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await asyncio.gather(*(store.create(f"/x/y/{name}", parents=True) for name in ("b", "c", "a")))
        assert await store.children("/x/y") == ("a", "b", "c")
        assert await store.children("/x/y/a") == ()


async def test_sequence_nodes_are_numbered_in_the_order_of_their_creation(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await one.create("/q")
        made = [await store.create("/q/n-", sequence=True, ephemeral=True) for store in (one, two, one)]
        assert [path[-10:] for path in made] == ["0000000000", "0000000001", "0000000002"]
        assert all(path.startswith("/q/n-") for path in made)
        assert set(await one.children("/q")) == {path.removeprefix("/q/") for path in made}


async def test_ephemeral_nodes_end_with_their_session(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await one.create("/mine", b"", ephemeral=True)
        assert await two.exists("/mine") == 0
        seen: list[Versioned[bytes] | None] = []
        gone = asyncio.create_task(following(two.watch_node("/mine"), seen, lambda: seen[-1] is None))
        await one.close()
        await soon(gone)


async def test_a_delete_or_create_bound_to_another_session_does_nothing(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await two.create("/theirs", b"", ephemeral=True)
        assert one.session.session_id != two.session.session_id
        with pytest.raises(SessionExpiredError):
            await one.delete("/theirs", session_id=one.session.session_id + 999)
        with pytest.raises(SessionExpiredError):
            await one.create("/new", ephemeral=True, session_id=one.session.session_id + 999)
        assert await two.exists("/theirs") == 0
        assert await two.exists("/new") is None
        await two.delete("/theirs", session_id=two.session.session_id)


async def test_a_multi_happens_wholly_or_not_at_all(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await store.create("/counter", b"0")
        await store.create("/old")
        with pytest.raises(BadVersionError, match="/counter"):
            await store.multi([Create("/new"), Delete("/old", 0), Put("/counter", b"1", 7)])
        with pytest.raises(NodeExistsError, match="/old"):
            await store.multi([Put("/counter", b"1", 0), Create("/old")])
        with pytest.raises(BadVersionError, match="/old"):
            await store.multi([Put("/counter", b"1", 0), Check("/old", 3)])
        assert await store.get("/counter") == Versioned(b"0", 0)
        assert await store.exists("/new") is None
        await store.multi(
            [Put("/counter", b"1", 0), Check("/old", 0), Delete("/old", None), Create("/new", b"n")]
        )
        assert await store.get("/counter") == Versioned(b"1", 1)
        assert await store.get("/new") == Versioned(b"n", 0)
        assert await store.exists("/old") is None


async def test_a_watched_node_delivers_its_latest_state(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        seen: list[Versioned[bytes] | None] = []

        def saw(value: Versioned[bytes] | None) -> bool:
            return bool(seen) and seen[-1] == value

        watching = two.watch_node("/w")
        await soon(following(watching, seen, lambda: saw(None)))
        watching = two.watch_node("/w")
        changed = asyncio.create_task(following(watching, seen, lambda: saw(Versioned(b"new", 1))))
        await one.create("/w", b"old")
        await one.put("/w", b"new", 0)
        await soon(changed)
        gone = asyncio.create_task(following(two.watch_node("/w"), seen, lambda: saw(None)))
        await one.delete("/w")
        await soon(gone)


async def test_watched_children_report_one_that_was_deleted_and_created_again(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await one.create("/d")
        await one.create("/d/a")
        values = two.watch_children("/d")
        assert await soon(anext(values)) == ("a",)
        await one.delete("/d/a")
        await one.create("/d/a")
        listed = await soon(anext(values))
        while listed != ("a",):  # the state in between may have been seen
            listed = await soon(anext(values))
        await values.aclose()  # type: ignore[attr-defined]  # all of ours are generators


async def test_a_connected_session_is_certain_for_most_of_its_timeout(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        asked_s = monotonic_s()
        await store.sync()
        assert store.session.alive_until - asked_s > 3.0
        assert store.session.alive_until - monotonic_s() <= 5.0
        assert store.session.connected


async def test_a_lock_is_held_by_one_and_free_after_its_release(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        lease = await acquire(one, "/locks/7", "one")
        assert lease is not None
        assert lease.is_certain
        assert await acquire(two, "/locks/7", "two") is None
        assert await acquire(one, "/locks/7", "one again") is None
        await lease.release()
        assert not lease.is_certain
        second = await acquire(two, "/locks/7", "two")
        assert second is not None
        await lease.release()  # late, and of a lock that another has now
        await second.release()


async def test_a_deleted_lock_is_reported_lost(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        lease = await acquire(one, "/lock", "one")
        assert lease is not None
        await two.delete("/lock")
        await soon(lease.lost())
        assert not lease.is_certain


async def leader_of(store: MetadataStore) -> str | None:
    """Who leads in the election below /e."""
    watch = store.watch()
    try:
        leader: str | None = await soon(Election(store, "/e", "").leader(watch))
        return leader
    finally:
        watch.close()


async def test_one_candidate_leads_and_the_next_follows_it(opener: Opener) -> None:
    async with stores(opener, 3) as (one, two, three):
        assert await leader_of(three) is None
        first = await soon(Election(one, "/e", "one").campaign())
        second = asyncio.create_task(Election(two, "/e", "two").campaign())
        await until_children(three, "/e", 2)
        third = asyncio.create_task(Election(three, "/e", "three").campaign())
        await until_children(three, "/e", 3)
        assert await leader_of(three) == "one"
        assert not second.done()
        await first.release()
        lease = await soon(second)
        assert lease.is_certain
        assert not third.done()
        await two.close()
        assert (await soon(third)).is_certain


async def test_a_withdrawn_candidate_leaves_no_node(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await soon(Election(one, "/e", "one").campaign())
        waiting = asyncio.create_task(Election(two, "/e", "two").campaign())
        await until_children(one, "/e", 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(await one.children("/e")) == 1


@pytest.mark.parametrize(
    "begin", [lambda s: Election(s, "/e", "me").campaign(), lambda s: acquire(s, "/e/l", "me")]
)
async def test_a_cancelled_request_leaves_no_node(
    opener: Opener, begin: Callable[[MetadataStore], Coroutine[Any, Any, Lease | None]]
) -> None:
    async with stores(opener, 1) as (store,):
        await store.create("/e", b"")
        asking = asyncio.create_task(begin(store))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not await store.children("/e")


async def test_a_lease_is_over_as_soon_as_its_store_is_closed(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        lease = await acquire(store, "/lock", "me")
        assert lease is not None
        losing = asyncio.create_task(lease.lost())
        await asyncio.sleep(0)
        assert lease.is_certain
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        assert not lease.is_certain, "from the first moment of closing on"
        await soon(losing)
        await closing


async def test_a_closed_store_refuses_and_ends_what_waits(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        values = store.watch_node("/n")
        await anext(values)
        waiting = asyncio.ensure_future(anext(values))
        await store.close()
        with pytest.raises(StoreClosedError):
            await soon(waiting)
        with pytest.raises(MetadataUnavailableError, match="closed"):
            await store.get("/n")


async def test_a_multi_bound_to_another_session_does_nothing(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        now_id = store.session.session_id
        await store.multi([Create("/a")], session_id=now_id)
        with pytest.raises(SessionExpiredError):
            await store.multi([Delete("/a", 0)], session_id=now_id + 1)
        assert await store.exists("/a") == 0


async def test_the_creation_time_of_a_node_is_by_the_servers_clock(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        with pytest.raises(NoNodeError):
            await one.created_at_ms("/a")
        await one.create("/a")
        made = await one.created_at_ms("/a")
        await one.put("/a", b"changed", 0)
        await two.create("/b")
        assert await two.created_at_ms("/a") == made <= await two.created_at_ms("/b")


async def test_a_watched_tree_reports_what_changed_below_it_until_it_is_taken(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await one.create("/a/b", b"", parents=True)
        watch = await one.watch_tree("/a")
        await two.create("/a/b/c", b"new")
        await two.put("/a/b", b"changed", 0)
        await two.create("/ab", b"beside it")
        await one.sync()
        assert {"/a/b", "/a/b/c"} <= set(watch.take())
        assert watch.take() == []
        await two.delete("/a/b/c")
        await one.sync()
        taken = watch.take()
        assert "/a/b/c" in taken
        assert "/ab" not in taken
        one.forget_tree(watch)
        await two.put("/a/b", b"again", 1)
        await one.sync()
        assert watch.take() == []
