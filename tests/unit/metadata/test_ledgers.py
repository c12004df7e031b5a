"""Ledger metadata in the store: rule 28 (listing), rule 37 and rule 53 of docs/protocol.md among others."""

import asyncio

import pytest

from daybook.core.errors import (
    AlreadyAttachedError,
    MetadataError,
    MetadataUnavailableError,
    NoSuchLedgerError,
)
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.instance import (
    UnknownClusterError,
    await_instance,
    ensure_cluster,
    format_cluster,
    read_instance,
)
from daybook.metadata.layout import Layout, join_id, split_id
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.metadata.store.read_ahead import READS_IN_FLIGHT_MAX
from daybook.metadata.store.store import (
    BadVersionError,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Put,
    Versioned,
)
from daybook.metadata.tree import IncompleteListingError
from tests.unit.metadata.harness import (
    LAYOUT,
    Opener,
    following,
    formatted,
    ledger,
    memory_opener,
    soon,
    stores,
)


async def put_ledgers(store: MetadataStore, ids: list[int]) -> None:
    for ledger_id in ids:
        await store.create(LAYOUT.ledger(ledger_id), ledger(ledger_id).to_json(), parents=True)


@pytest.mark.parametrize("ledger_id", [0, 7, 9_999, 10_000, 123_456_789_012, 2**63 - 1])
def test_a_ledgers_path_is_its_id_in_directories_of_at_most_ten_thousand(ledger_id: int) -> None:
    path = split_id(ledger_id)
    assert [len(part) for part in path.split("/")] == [3, 4, 4, 4, 4]
    assert join_id(path) == ledger_id


@pytest.mark.parametrize(
    "path", ["", "7", "000/0000/0000/0000/000x", "000/0000/0000/0000", "999/9999/9999/9999/9999"]
)
def test_other_paths_are_not_ledgers(path: str) -> None:
    with pytest.raises(ValueError, match="ledger"):
        join_id(path)


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a" * 64, "ä"])
def test_a_cluster_name_that_cannot_be_a_node_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid cluster name"):
        Layout(name)


async def test_a_cluster_is_formatted_once_and_an_unknown_one_is_refused(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        with pytest.raises(UnknownClusterError, match=r"no cluster 'test'.*check the cluster's name"):
            await read_instance(one, LAYOUT)
        found = await asyncio.gather(
            *(ensure_cluster(store, LAYOUT, created_at_ms=5) for store in (one, two))
        )
        assert found[0] == found[1] == await read_instance(two, LAYOUT)
        with pytest.raises(NodeExistsError, match="formatted already"):
            await format_cluster(one, LAYOUT, created_at_ms=6)


async def test_a_cluster_that_somebody_is_about_to_make_is_waited_for(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        with pytest.raises(UnknownClusterError):
            await await_instance(one, LAYOUT, 0.05)
        waiting = asyncio.create_task(await_instance(one, LAYOUT, 20.0))
        made = await ensure_cluster(two, LAYOUT, created_at_ms=5)
        assert await waiting == made
        assert await await_instance(two, LAYOUT, 0.0) == made


async def test_ledgers_get_ids_in_turn_also_from_several_processes(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        managers = [LedgerManager(one, layout), LedgerManager(two, layout)]
        made = await asyncio.gather(*(managers[n % 2].create_ledger(ledger) for n in range(10)))
        assert sorted(found.value.ledger_id for found in made) == list(range(10))
        for found in made:
            assert await managers[0].read(found.value.ledger_id, sync=True) == found
        assert [ledger_id async for ledger_id in managers[1].ids()] == list(range(10))


async def test_a_repeated_request_gets_one_ledger(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        managers = [LedgerManager(store, layout) for store in (one, two)]
        made = await asyncio.gather(
            *(managers[n % 2].create_ledger(ledger, request_uid="uid-1") for n in range(6))
        )
        assert {found.value.ledger_id for found in made} == {0}
        assert [ledger_id async for ledger_id in managers[0].ids()] == [0]
        assert await managers[1].ledger_of_request("uid-2") is None
        for _ in range(2):
            await managers[1].forget_request("uid-1")
        assert await managers[1].ledger_of_request("uid-1") is None


async def test_of_many_ledgers_each_is_read_or_has_its_own_error(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        manager = LedgerManager(store, layout)
        made = await asyncio.gather(*(manager.create_ledger(ledger) for _ in range(3)))
        await store.put(layout.ledger(1), b"damaged", None)
        first, damaged, last, missing = await manager.read_each([0, 1, 2, 3], sync=True)
        assert [first, last] == [each for each in made if each.value.ledger_id != 1]
        assert isinstance(damaged, MetadataError)
        assert isinstance(missing, NoSuchLedgerError)
        assert await manager.read_each([0]) == [first]


async def test_an_existing_ledger_is_adopted_once_and_at_the_read_version(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        layout = await formatted(store)
        manager = LedgerManager(store, layout)
        first = await manager.create_ledger(ledger)
        recovering = await manager.cas(first, first.value.in_recovery())
        with pytest.raises(BadVersionError):
            await manager.adopt("uid-1", first)
        assert await manager.ledger_of_request("uid-1") is None
        await manager.adopt("uid-1", recovering)
        assert await manager.ledger_of_request("uid-1") == 0
        with pytest.raises(NodeExistsError):
            await manager.adopt("uid-1", recovering)
        assert await manager.create_ledger(ledger, request_uid="uid-1") == recovering, "as if created for it"
        await manager.delete(0, recovering.version)
        with pytest.raises(NoNodeError):
            await manager.adopt("uid-2", recovering)


async def test_a_change_is_made_at_its_version_only_and_must_be_legal(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        writer, recoverer = LedgerManager(one, layout), LedgerManager(two, layout)
        created = await writer.create_ledger(ledger)
        seen: list[Versioned[LedgerMetadata] | None] = []
        watching = asyncio.create_task(
            following(recoverer.watch(0), seen, lambda: bool(seen[-1] and seen[-1].value.is_closed))
        )
        recovering = await recoverer.cas(created, created.value.in_recovery())
        assert recovering.version == 1
        with pytest.raises(BadVersionError):
            await writer.cas(created, created.value.with_ensemble(4, 400, ("b1", "b2", "b4")))
        closed = await recoverer.cas(recovering, recovering.value.closed(3, 300))
        with pytest.raises(MetadataError, match="a close is final"):
            await writer.cas(closed, closed.value.closed(4, 400))
        assert await writer.read(0, sync=True) == closed
        await soon(watching)
        with pytest.raises(BadVersionError):
            await writer.delete(0, 1)
        await writer.delete(0, closed.version)
        for call in (writer.read(0), writer.delete(0, 2), writer.cas(closed, closed.value)):
            with pytest.raises(NoSuchLedgerError, match="ledger 0 does not exist"):
                await call


async def test_rule_53_an_open_ledger_is_attached_for_writing_once(opener: Opener) -> None:
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        managers = [LedgerManager(one, layout), LedgerManager(two, layout)]
        await managers[0].create_ledger(ledger)
        results = await asyncio.gather(
            *(managers[n % 2].attach(0, f"writer-{n}") for n in range(4)), return_exceptions=True
        )
        attached = [found for found in results if isinstance(found, Versioned)]
        refused = [found for found in results if isinstance(found, AlreadyAttachedError)]
        assert len(attached) == 1
        assert len(refused) == 3
        token = attached[0].value.writer_token
        assert token is not None
        assert (await managers[1].attach(0, token)).value.writer_token == token, (
            "the same attach, asked for again"
        )
        with pytest.raises(AlreadyAttachedError, match="recover it and create a new ledger"):
            await managers[0].attach(0, "late")


async def test_rule_53_a_closed_or_recovering_ledger_takes_no_writer() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        current = await manager.create_ledger(ledger)
        current = await manager.cas(current, current.value.in_recovery())
        with pytest.raises(AlreadyAttachedError, match="IN_RECOVERY"):
            await manager.attach(0, "w")
        await manager.cas(current, current.value.closed(-1, 0))
        with pytest.raises(AlreadyAttachedError, match="CLOSED"):
            await manager.attach(0, "w")


async def test_rule_53_an_attach_whose_reply_was_lost_and_that_was_built_upon_is_still_own() -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        manager, repairer = LedgerManager(one, layout), LedgerManager(two, layout)
        created = await manager.create_ledger(ledger)
        attached = created.value.attached("mine")
        repaired = attached.with_replica(0, "b3", "b4")

        def repair() -> None:
            server.apply([Put(layout.ledger(0), repaired.to_json(), 1)], 0)

        server.inject(Fault(FaultKind.DROP_REPLY, "put", then=repair))
        assert (await manager.attach(0, "mine")).value == repaired
        assert (await repairer.read(0)).value.writer_token == "mine"


async def test_ledgers_are_listed_in_order_page_by_page(opener: Opener) -> None:
    ids = [0, 1, 9_999, 10_000, 70_000_000, 2**63 - 1]
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        assert [page async for page in manager.pages()] == []
        await put_ledgers(store, ids)
        assert [page async for page in manager.pages()] == [
            (0, 1, 9_999),
            (10_000,),
            (70_000_000,),
            (2**63 - 1,),
        ]
        assert [found.value.ledger_id async for found in manager.read_all()] == ids


async def test_rule_28_a_listing_that_cannot_be_completed_is_an_error_never_a_shorter_list() -> None:
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await put_ledgers(store, [0, 10_000, 20_000])
        broken = LAYOUT.ledger(10_000).rpartition("/")[0]
        server.inject(Fault(FaultKind.REFUSE, "children", broken, times=float("inf")))
        listing = manager.ids()
        assert await anext(listing) == 0
        with pytest.raises(MetadataUnavailableError):
            await anext(listing)
        with pytest.raises(MetadataUnavailableError):
            _ = [found async for found in manager.read_all()]


async def test_rule_28_a_directory_that_vanished_or_a_foreign_node_is_an_error() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, LAYOUT)
        with pytest.raises(IncompleteListingError, match="check that the cluster is formatted"):
            _ = [page async for page in manager.pages()]
        await formatted(store)
        await put_ledgers(store, [0])
        await store.create(f"{LAYOUT.ledgers}/000/0000/0000/0000/note")
        with pytest.raises(IncompleteListingError, match="note is not a ledger's node"):
            _ = [page async for page in manager.pages()]
        assert server.in_flight == 0


async def test_rule_28_an_unreadable_ledger_ends_the_listing_and_a_deleted_one_does_not() -> None:
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await put_ledgers(store, [0, 1, 2])
        listing = manager.read_all()
        gone = Delete(LAYOUT.ledger(1), None)
        server.inject(Fault(FaultKind.REFUSE, "get", LAYOUT.ledger(1), then=lambda: server.apply([gone], 0)))
        assert [found.value.ledger_id async for found in listing] == [0, 2]
        server.inject(Fault(FaultKind.REFUSE, "get", LAYOUT.ledger(2), times=float("inf")))
        with pytest.raises(MetadataUnavailableError):
            _ = [found async for found in manager.read_all()]


async def test_rule_37_metadata_of_many_ledgers_is_read_a_bounded_number_at_a_time() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await put_ledgers(store, list(range(500)))
        server.in_flight_max = 0
        assert [found.value.ledger_id async for found in manager.read_all()] == list(range(500))
        assert 1 < server.in_flight_max <= 64
        assert READS_IN_FLIGHT_MAX <= 64


async def test_ledgers_are_read_as_they_are_consumed_and_no_further() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await put_ledgers(store, list(range(200)))
        listing = manager.read_all()
        assert (await anext(listing)).value.ledger_id == 0
        for gone in range(READS_IN_FLIGHT_MAX, 200):
            await store.delete(LAYOUT.ledger(gone))
        assert [found.value.ledger_id async for found in listing] == list(range(1, READS_IN_FLIGHT_MAX))
        assert server.in_flight == 0


async def test_a_ledgers_metadata_that_is_not_its_own_is_refused() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await store.create(LAYOUT.ledger(3), ledger(4).to_json(), parents=True)
        with pytest.raises(MetadataError, match="names ledger 4"):
            await manager.read(3)
