"""The claim of a bookie's id: its holder, what it prevents, and how its loss is noticed (rule 57)."""

import asyncio
from dataclasses import replace

import pytest

from daybook.core.errors import MetadataUnavailableError
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import REPLACEMENT_VALID_MS, BookieDirectory, info_to_json
from daybook.metadata.claim import RegisteredElsewhereError, SupersededError
from daybook.metadata.store.memory import MemoryServer
from daybook.metadata.store.store import Create, MetadataStore, NoNodeError, SessionExpiredError
from tests.unit.metadata.harness import (
    LAYOUT,
    Opener,
    claim_of,
    formatted,
    memory_opener,
    register,
    soon,
    stores,
)

OLD = BookieInfo("b0", boot_id="old")
NEW = BookieInfo("b0", boot_id="new")


async def replaced(store: MetadataStore, incarnation: str) -> None:
    """Stamp another cookie of b0."""
    directory = BookieDirectory(store, LAYOUT)
    node = await directory.cookie("b0")
    assert node is not None
    cookie = replace(node.value, incarnation=incarnation)
    await store.multi(directory.stamping(cookie, over=node, leave=None))


async def test_rule_57_a_claim_keeps_every_other_process_from_registering(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        claim = await claim_of(two, NEW)
        await claim.take()
        registering = asyncio.create_task(register(one, OLD))
        with pytest.raises(RegisteredElsewhereError, match="does it run twice"):
            await register(one, OLD, wait_s=0.05)
        await claim.release([])
        await soon(registering)
        with pytest.raises(RegisteredElsewhereError):
            await claim.take(wait_s=0.05)


async def test_rule_57_nobody_claims_an_id_that_is_registered(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        registration = await register(one, OLD)
        claim = await claim_of(two, NEW)
        taking = asyncio.create_task(claim.take())
        await asyncio.sleep(0.02)
        assert not taking.done()
        await registration.close()
        await soon(taking)
        assert claim.was_held


async def test_rule_57_nobody_claims_an_id_that_a_release_without_claims_registered() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        path = LAYOUT.registration("b0", writable=False)
        await one.create(path, info_to_json(OLD), ephemeral=True)
        taking = asyncio.create_task((await claim_of(two, NEW)).take())
        registering = asyncio.create_task(register(two, NEW))
        await asyncio.sleep(0.02)
        assert not taking.done()
        assert not registering.done()
        await one.delete(path)
        await soon(taking)
        await soon(registering)


async def test_rule_57_a_process_whose_cookie_was_replaced_registers_no_more() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        told: asyncio.Queue[SupersededError] = asyncio.Queue()
        await register(one, OLD, on_superseded=told.put_nowait)
        await replaced(two, "incarnation-2")
        assert told.empty()
        server.expire(one.session.session_id)
        error = await soon(told.get())
        assert "was replaced" in str(error)
        assert await BookieDirectory(two, LAYOUT).bookies() == {}
        with pytest.raises(SupersededError):
            await register(one, OLD)


async def test_rule_57_a_process_whose_cookie_was_deleted_registers_no_more() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (one,):
        await formatted(one)
        told: asyncio.Queue[SupersededError] = asyncio.Queue()
        await register(one, OLD, on_superseded=told.put_nowait)
        await BookieDirectory(one, LAYOUT).delete_cookie("b0", 0)
        server.expire(one.session.session_id)
        assert "taken out of the cluster" in str(await soon(told.get()))


async def test_rule_57_a_process_that_lost_its_claim_to_another_registers_no_more() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        told: asyncio.Queue[SupersededError] = asyncio.Queue()
        await register(one, OLD, on_superseded=told.put_nowait)
        taking = asyncio.create_task((await claim_of(two, NEW)).take())
        server.suspend()
        server.end_session(one.session.session_id)
        server.resume()
        await soon(taking)
        server.expire(one.session.session_id)
        assert "another process" in str(await soon(told.get()))


def succeed(server: MemoryServer, old: MetadataStore, new: MetadataStore) -> None:
    """The session of `old` ends, and the process of `new` registers before `old` has a session again."""
    server.expire(old.session.session_id)
    claim = Create(LAYOUT.claim("b0"), b'{"formatVersion": 1, "bootId": "new"}', ephemeral=True)
    node = Create(LAYOUT.registration("b0", writable=True), info_to_json(NEW), ephemeral=True)
    server.apply([claim, node], new.session.session_id)


async def test_rule_57_an_idle_process_notices_its_successors_registration() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        told: asyncio.Queue[SupersededError] = asyncio.Queue()
        await register(one, OLD, on_superseded=told.put_nowait)
        succeed(server, one, two)
        assert "another process has become bookie b0" in str(await soon(told.get()))
        assert await BookieDirectory(two, LAYOUT).bookies() == {"b0": NEW}


@pytest.mark.parametrize("change", [replace(OLD, free_bytes=7), replace(OLD, writable=False)])
async def test_rule_57_a_change_that_waited_for_zookeeper_leaves_a_successors_registration_alone(
    change: BookieInfo,
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        told: asyncio.Queue[SupersededError] = asyncio.Queue()
        registration = await register(one, OLD, on_superseded=told.put_nowait)
        server.suspend()
        updating = asyncio.create_task(registration.update(change))
        await asyncio.sleep(0)
        succeed(server, one, two)
        server.resume()
        await soon(updating)
        assert await BookieDirectory(two, LAYOUT).bookies() == {"b0": NEW}
        assert "another process has become bookie b0" in str(await soon(told.get()))


async def test_rule_57_what_is_committed_needs_the_claim_without_a_break() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        claim = await claim_of(store, NEW)
        await claim.take()
        await claim.commit([Create("/first")])
        server.expire(store.session.session_id)
        with pytest.raises(SessionExpiredError):
            await claim.commit([Create("/second")])
        await claim.take()
        await store.delete(LAYOUT.claim("b0"))
        with pytest.raises(NoNodeError):
            await claim.commit([Create("/second")])
        assert await store.exists("/second") is None


async def test_rule_57_a_read_of_the_claim_distinguishes_the_bookie_from_its_predecessor(
    opener: Opener,
) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        old, new = await claim_of(one, OLD), await claim_of(two, NEW)
        await old.check()
        await new.take()
        await new.check()
        with pytest.raises(MetadataUnavailableError, match="waits"):
            await old.check()
        await new.release([])
        await old.take()
        await old.release([])
        await new.take()
        with pytest.raises(SupersededError):
            await old.check()
        await new.release([])
        await replaced(two, "incarnation-2")
        with pytest.raises(SupersededError, match="incarnation-2"):
            await old.check()


async def test_rule_57_an_authorised_replacement_ends_when_the_bookie_registers(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        directory = BookieDirectory(two, LAYOUT)
        await directory.authorise_replacement("b0", by="me", now_ms=1)
        registration = await register(one, OLD)
        await two.sync()
        assert await directory.replacement("b0") is None
        await registration.close()


async def test_rule_57_an_authorised_replacement_ends_by_the_clock_of_the_servers() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        directory = BookieDirectory(store, LAYOUT)
        await directory.authorise_replacement("b0", by="me", now_ms=10**15)

        async def is_valid() -> bool:
            claim = await claim_of(store, NEW)
            assert await directory.valid_replacement("b0", at_ms=await claim.taken_at_ms()) is not None
            await claim.take()
            found = await directory.valid_replacement("b0", at_ms=await claim.taken_at_ms())
            await claim.release([])
            return found is not None

        server.clock_ms += REPLACEMENT_VALID_MS
        assert await is_valid()
        await directory.authorise_replacement("b0", by="me again", now_ms=1)
        server.clock_ms += REPLACEMENT_VALID_MS
        assert await is_valid(), "it was renewed"
        server.clock_ms += 1
        assert not await is_valid()
        assert await directory.replacement("b0") is None


async def test_a_cluster_of_an_earlier_release_gets_its_directory_of_claims() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        await store.delete(LAYOUT.claims)
        await register(store, OLD)
        assert list(await BookieDirectory(store, LAYOUT).bookies()) == ["b0"]
