"""The creation of many ledgers: blocks of ids that are used as they are taken (rule 62 of docs/protocol.md)."""

import asyncio
from collections.abc import Iterable

import pytest

from daybook.core.errors import MetadataError, MetadataUnavailableError
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.creation import GROUP_LEDGERS_MAX, LedgerCreation, read_counter
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.memory import Fault, FaultKind, MemoryServer
from daybook.metadata.store.store import (
    Delete,
    MetadataStore,
    NoNodeError,
    Operation,
    OutcomeUnknownError,
    Put,
    Versioned,
    parent_of,
)
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, ledger, memory_opener, soon, stores


async def create(manager: LedgerManager, number: int) -> list[Versioned[LedgerMetadata]]:
    return await asyncio.gather(*(manager.create_ledger(ledger) for _ in range(number)))


def ids_of(made: Iterable[Versioned[LedgerMetadata]]) -> list[int]:
    return [found.value.ledger_id for found in made]


async def ids_in(store: MetadataStore) -> list[int]:
    return [ledger_id async for ledger_id in LedgerManager(store, LAYOUT).ids()]


async def delete_all_ledgers(store: MetadataStore) -> None:
    """Delete the ledgers of one directory, and what is above it, as an import does first."""
    first, *others = [LAYOUT.ledger(ledger_id) for ledger_id in await ids_in(store)]
    for path in others:
        await store.delete(path)
    while first != LAYOUT.ledgers:
        await store.delete(first)
        first = parent_of(first)


async def until_held(server: MemoryServer, fault: Fault) -> None:
    """Return once the server holds an attempt for `fault`."""
    while fault.times or not server.in_flight:  # noqa: ASYNC110 - the server in memory reports no such event
        await asyncio.sleep(0)


async def test_ledgers_that_are_created_at_once_share_transactions(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        number = 2 * GROUP_LEDGERS_MAX + 1
        assert ids_of(await create(manager, number)) == list(range(number))
        assert await read_counter(store, LAYOUT) == Versioned(number, 3)
        assert ids_of(await create(manager, 2)) == [number, number + 1]
        assert await read_counter(store, LAYOUT) == Versioned(number + 2, 4)


async def test_large_metadata_makes_groups_that_a_server_accepts(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        large = {"k": bytes(60_000)}
        made = await asyncio.gather(
            *(manager.create_ledger(lambda n: ledger(n, custom_metadata=large)) for _ in range(20))
        )
        assert ids_of(made) == list(range(20))
        assert (await read_counter(store, LAYOUT)).version == 3


async def test_rule_62_no_snapshot_has_a_counter_past_a_ledger_that_it_lacks() -> None:
    """Otherwise nothing would prove that the ledger was lost with ZooKeeper, and bookies would collect it."""
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        layout = await formatted(one)
        managers = [LedgerManager(store, layout) for store in (one, two)]
        snapshots = []

        async def take_snapshots() -> None:
            while True:
                snapshots.append(server.backup())
                await asyncio.sleep(0)

        taking = asyncio.create_task(take_snapshots())
        made = await asyncio.gather(*(create(manager, 5) for _ in range(3) for manager in managers))
        taking.cancel()
        created = {ledger_id for group in made for ledger_id in ids_of(group)}
        assert created == set(range(30))
        assert len(snapshots) > 5
        for restore in snapshots:
            restore()
            counter = (await read_counter(one, LAYOUT)).value
            lost = created.difference(await ids_in(one))
            assert all(ledger_id >= counter for ledger_id in lost)


async def test_rule_62_no_ledger_is_created_at_or_below_one_that_its_creator_knows() -> None:
    """A topic's list of ledgers ascends, or ZooKeeper went back in time."""
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await create(manager, 3)
        restore = server.backup()
        last = ids_of(await create(manager, 3))[-1]
        assert (await manager.create_ledger(ledger, above=last)).value.ledger_id == last + 1
        restore()
        with pytest.raises(MetadataError, match=f"no ledger above {last} .* counter of ledger ids is at 3"):
            await manager.create_ledger(ledger, above=last)
        refused, made = await asyncio.gather(
            manager.create_ledger(ledger, above=3),
            manager.create_ledger(ledger, above=2),
            return_exceptions=True,
        )
        assert isinstance(refused, MetadataError)
        assert isinstance(made, Versioned)
        assert await ids_in(store) == [0, 1, 2, 3]


@pytest.mark.parametrize("together", [(7, -1), (7,), (-1,)])
async def test_a_counter_that_others_have_advanced_is_read_again(
    together: tuple[int, ...], recwarn: pytest.WarningsRecorder
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))

        def others_create() -> None:
            server.apply([Put(LAYOUT.idgen, b'{"next": 10}', None)], 0)

        held = Fault(FaultKind.HOLD, "multi", then=others_create)
        server.inject(held)
        first = asyncio.create_task(manager.create_ledger(ledger))
        await until_held(server, held)
        behind = [asyncio.create_task(manager.create_ledger(ledger, above=above)) for above in together]
        await asyncio.sleep(0)
        server.release()
        assert ids_of(await soon(asyncio.gather(first, *behind))) == [0, 10, 11][: 1 + len(together)]
    assert [str(each.message) for each in recwarn] == [], "no coroutine was made for nothing"


@pytest.mark.parametrize("theirs", [Put(LAYOUT.ledger(1), b"{}", 0), Delete(LAYOUT.ledger(1), 0)])
async def test_rule_42_of_a_group_whose_reply_was_lost_only_what_others_changed_is_made_again(
    theirs: Operation,
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        server.inject(Fault(FaultKind.DROP_REPLY, "multi", then=lambda: server.apply([theirs], 0)))
        assert ids_of(await soon(create(manager, 3))) == [0, 3, 2]
        assert await read_counter(store, LAYOUT) == Versioned(4, 2)


async def test_a_caller_that_is_cancelled_ends_nobody_elses_creation() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        held = Fault(FaultKind.HOLD, "multi")
        server.inject(held)
        in_group = [asyncio.create_task(manager.create_ledger(ledger)) for _ in range(2)]
        await until_held(server, held)
        behind = [asyncio.create_task(manager.create_ledger(ledger)) for _ in range(2)]
        await asyncio.sleep(0)
        in_group[0].cancel()
        behind[0].cancel()
        await asyncio.sleep(0)
        server.release()
        assert ids_of(await soon(asyncio.gather(in_group[1], behind[1]))) == [1, 2]
        assert await ids_in(store) == [0, 1, 2]


async def test_whoever_waits_is_refused_while_the_store_does_not_answer() -> None:
    server, opener = memory_opener(operation_timeout_s=0.05)
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        server.inject(Fault(FaultKind.HOLD, "multi"))
        results = await asyncio.gather(
            *(manager.create_ledger(ledger) for _ in range(GROUP_LEDGERS_MAX + 1)), return_exceptions=True
        )
        assert {type(error) for error in results} == {OutcomeUnknownError}
        server.suspend()
        with pytest.raises(MetadataUnavailableError):
            await manager.create_ledger(ledger)
        server.resume()
        assert (await manager.create_ledger(ledger)).value.ledger_id == 0


async def test_metadata_that_cannot_be_made_refuses_its_own_caller_alone() -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        bad, good = await asyncio.gather(
            manager.create_ledger(lambda n: ledger(n, fragments=())),
            manager.create_ledger(ledger),
            return_exceptions=True,
        )
        assert isinstance(bad, MetadataError)
        assert isinstance(good, Versioned)
        assert good.value.ledger_id == 0


async def test_an_error_of_whatever_type_refuses_its_own_caller_alone() -> None:
    """Those who asked at the same time get their ledgers."""

    def broken(ledger_id: int) -> LedgerMetadata:
        return ledger(ledger_id, custom_metadata={"k": "no bytes"})

    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        before, refused, after = await soon(
            asyncio.gather(*map(manager.create_ledger, (ledger, broken, ledger)), return_exceptions=True)
        )
        assert isinstance(refused, TypeError)
        assert isinstance(before, Versioned)
        assert isinstance(after, Versioned)
        assert ids_of([before, after]) == [0, 1]


async def test_a_ledger_is_created_though_an_import_has_replaced_the_directories(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await create(manager, 2)
        await delete_all_ledgers(store)
        assert ids_of(await soon(create(manager, 2))) == [2, 3]
        assert await ids_in(store) == [2, 3]


async def test_a_request_whose_parent_is_missing_is_refused(opener: Opener) -> None:
    """That the ledger's directory is there from before makes no difference: nothing is tried without end."""
    async with stores(opener, 1) as (store,):
        creation = LedgerCreation(store, await formatted(store))
        await creation.create(ledger, above=-1)
        with pytest.raises(NoNodeError):
            await soon(creation.create(ledger, above=-1, request=f"{LAYOUT.root}/missing/request"))
        assert (await creation.create(ledger, above=-1)).value.ledger_id == 1


async def test_a_counter_that_was_set_back_is_an_error_that_says_so(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        manager = LedgerManager(store, await formatted(store))
        await create(manager, 2)
        await store.put(LAYOUT.idgen, b'{"next": 1}', None)
        with pytest.raises(
            MetadataError, match=r"0001 exists, and the counter of ledger ids is at 1.*raise it"
        ):
            await manager.create_ledger(ledger)
