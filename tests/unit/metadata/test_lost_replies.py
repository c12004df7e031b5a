"""Unknown outcomes are resolved: rule 42 of docs/protocol.md, with faults at chosen points."""

import asyncio
import json

import pytest

from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.election import Election
from daybook.metadata.lease import acquire, lease_data
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import Fault, FaultKind, MemoryServer
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    OutcomeUnknownError,
    Put,
    SessionExpiredError,
    Versioned,
)
from tests.unit.metadata.harness import formatted, ledger, memory_opener, soon, stores

STRANGER = 999
"""A session of another client."""


def lost_reply(operation: str, **more: object) -> Fault:
    return Fault(FaultKind.DROP_REPLY, operation, **more)  # type: ignore[arg-type]  # passed through


def lost_request(operation: str, **more: object) -> Fault:
    return Fault(FaultKind.REFUSE, operation, **more)  # type: ignore[arg-type]  # passed through


async def test_rule_42_a_create_whose_reply_was_lost_is_recognised_as_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        server.inject(lost_reply("create"))
        assert await store.create("/lock", b"token-1", ephemeral=True) == "/lock"
        server.inject(lost_reply("create"))
        assert await store.create("/kept", b"token-2") == "/kept"


async def test_rule_42_another_clients_node_is_not_taken_for_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):

        def other(data: bytes, *, ephemeral: bool) -> Fault:
            stolen = Create("/lock", data, ephemeral)
            return lost_request("create", then=lambda: server.apply([stolen], STRANGER))

        for data, ephemeral in ((b"theirs", False), (b"theirs", True), (b"mine", True)):
            server.inject(other(data, ephemeral=ephemeral))
            with pytest.raises(NodeExistsError):
                await store.create("/lock", b"mine", ephemeral=True)
            await store.delete("/lock")


async def test_rule_42_a_lock_taken_by_another_task_of_the_same_session_is_not_taken_for_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/locks")
        theirs = Create("/locks/7", b'{"holder": "w", "token": "t"}', ephemeral=True)
        session_id = store.session.session_id
        server.inject(lost_request("create", then=lambda: server.apply([theirs], session_id)))
        assert await acquire(store, "/locks/7", "w") is None


async def test_rule_42_a_sequence_node_is_made_once() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/e")
        server.inject(lost_reply("create"), lost_reply("create"))
        path = await store.create("/e/n-", b"x", ephemeral=True, sequence=True)
        assert [f"/e/{name}" for name in await store.children("/e")] == [path]
        server.inject(lost_reply("create"))
        lease = await soon(Election(store, "/f", "one").campaign())
        assert len(await store.children("/f")) == 1
        assert lease.is_certain


async def test_rule_42_a_put_whose_reply_was_lost_is_recognised_as_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        server.inject(lost_reply("put"))
        assert await store.put("/n", b"1", 0) == 1
        assert await store.get("/n") == Versioned(b"1", 1)


async def test_rule_42_another_clients_put_is_not_taken_for_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        server.inject(lost_request("put", then=lambda: server.apply([Put("/n", b"theirs", 0)], STRANGER)))
        with pytest.raises(BadVersionError):
            await store.put("/n", b"mine", 0)


async def test_rule_42_a_put_that_was_overwritten_meanwhile_is_not_reported_as_standing() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        server.inject(lost_reply("put", then=lambda: server.apply([Put("/n", b"theirs", 1)], STRANGER)))
        with pytest.raises(BadVersionError):
            await store.put("/n", b"mine", 0)


async def test_rule_42_a_multi_is_recognised_by_what_it_created_or_put() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        later = Put("/n", b"later", 1)
        server.inject(lost_reply("multi", then=lambda: server.apply([later], STRANGER)))
        await store.multi([Put("/n", b"1", 0), Create("/made", b"token")])
        server.inject(lost_reply("multi"))
        await store.multi([Put("/n", b"3", 2), Delete("/made", 0)])
        assert await store.get("/n") == Versioned(b"3", 3)
        server.inject(
            lost_request("multi", then=lambda: server.apply([Create("/made", b"theirs")], STRANGER))
        )
        with pytest.raises(NodeExistsError):
            await store.multi([Put("/n", b"4", 3), Create("/made", b"mine")])
        assert await store.get("/n") == Versioned(b"3", 3)


async def test_rule_42_a_delete_whose_reply_was_lost_is_done() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await store.create("/n")
        server.inject(lost_reply("delete"))
        await store.delete("/n", 0)
        assert await store.exists("/n") is None


@pytest.mark.parametrize("same_session", [False, True])
async def test_rule_42_a_release_whose_reply_was_lost_leaves_the_next_holders_lock(
    same_session: bool,
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        lease = await acquire(one, "/lock", "one")
        assert lease is not None
        other = one if same_session else two
        theirs = Create("/lock", lease_data("one"), ephemeral=True)
        server.inject(lost_reply("delete", then=lambda: server.apply([theirs], other.session.session_id)))
        await lease.release()
        assert await two.get("/lock") == Versioned(theirs.data, 0)


async def test_rule_42_a_release_whose_request_was_lost_is_made_again() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        lease = await acquire(store, "/lock", "one")
        assert lease is not None
        server.inject(lost_request("delete"), lost_request("sync"))
        await lease.release()
        assert await store.exists("/lock") is None


async def test_rule_42_an_owner_whose_session_ended_never_deletes_his_successors_node() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        lease = await acquire(one, "/lock", "one")
        assert lease is not None

        def succeed() -> None:
            server.expire(one.session.session_id)
            server.apply([Create("/lock", b"two's", ephemeral=True)], two.session.session_id)

        server.inject(lost_request("delete", then=succeed))
        await lease.release()
        assert await two.get("/lock") == Versioned(b"two's", 0)


async def test_rule_42_an_expired_session_fails_ephemeral_creates_and_no_others() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        before = store.session

        def expire() -> None:
            server.expire(store.session.session_id)

        server.inject(lost_reply("create", then=expire))
        with pytest.raises(SessionExpiredError, match="ephemeral"):
            await store.create("/mine", b"token", ephemeral=True)
        assert await store.exists("/mine") is None
        server.inject(lost_reply("create", then=expire))
        await store.create("/kept", b"token")
        assert store.session.session_id != before.session_id


async def test_rule_42_creators_that_lose_replies_never_share_a_ledger_id() -> None:
    server, opener = memory_opener()
    async with stores(opener, 3) as (one, two, three):
        layout = await formatted(one)
        managers = [LedgerManager(store, layout) for store in (one, two, three)]
        for _ in range(15):
            server.inject(lost_reply("multi"), lost_request("multi"))
        made = await asyncio.gather(*(managers[n % 3].create_ledger(ledger) for n in range(30)))
        ids = [found.value.ledger_id for found in made]
        assert sorted(ids) == list(range(30))
        assert json.loads((await one.get(layout.idgen)).value)["next"] == 30


async def test_a_write_that_was_sent_and_not_answered_is_unknown_and_one_that_was_not_sent_is_not() -> None:
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        server.inject(Fault(FaultKind.HOLD, "put"), Fault(FaultKind.HOLD, "get"))
        with pytest.raises(OutcomeUnknownError, match="whether it was applied is not known"):
            await store.put("/n", b"1", 0)
        with pytest.raises(MetadataUnavailableError) as read:
            await store.get("/n")
        assert not isinstance(read.value, OutcomeUnknownError)
        server.suspend()
        with pytest.raises(MetadataUnavailableError, match="did not answer for /n") as unsent:
            await store.put("/n", b"1", 0)
        assert not isinstance(unsent.value, OutcomeUnknownError)


async def test_a_patient_write_waits_until_its_outcome_is_known() -> None:
    server, opener = memory_opener(operation_timeout_s=0.01)
    async with stores(opener, 1) as (store,):
        await store.create("/n", b"0")
        server.inject(lost_reply("put", then=server.suspend))
        writing = asyncio.create_task(store.put("/n", b"1", 0, timeout_s=float("inf")))
        await asyncio.sleep(0.05)
        assert not writing.done()
        server.resume()
        assert await soon(writing) == 1


async def test_a_servers_faults_are_counted_down() -> None:
    server = MemoryServer()
    server.inject(Fault(FaultKind.REFUSE, "put", "/a", times=2))
    assert server.fault_for("put", "/b") is None
    assert server.fault_for("put", "/a") is not None
    assert server.fault_for("put", "/a/b") is not None
    assert server.fault_for("put", "/a") is None
