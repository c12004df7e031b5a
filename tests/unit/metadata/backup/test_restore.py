"""An export that is written back is the cluster that it was, but for what may have changed since."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from daybook.core.errors import DaybookError
from daybook.core.ledger.metadata import LedgerState
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.backup.file import BackupFileError, Header, create
from daybook.metadata.backup.restore import (
    BATCH_NODES,
    ClusterExistsError,
    check_export,
    finish,
    import_nodes,
)
from daybook.metadata.backup.snapshot import open_snapshot, read_snapshot
from daybook.metadata.hold import CollectionHeldError, check_not_held
from daybook.metadata.instance import read_instance
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore, NoNodeError, Operation
from tests.unit.metadata.harness import LAYOUT, formatted, ledger, memory_opener, register, stores

LEDGERS = 2 * BATCH_NODES + 7


async def snapshot_of(store: MetadataStore) -> dict[str, bytes]:
    """All that persists."""
    with open_snapshot() as snapshot:
        await read_snapshot(store, LAYOUT, snapshot)
        return dict(snapshot)


async def exported(store: MetadataStore, path: Path) -> dict[str, bytes]:
    """A cluster with ledgers, of which the first alone is open, and its export; what the export has."""
    layout = await formatted(store)
    ledgers = LedgerManager(store, layout)
    for _ in range(LEDGERS):
        await ledgers.create_ledger(ledger)
    for ledger_id in range(1, LEDGERS):
        current = await ledgers.read(ledger_id)
        await ledgers.cas(current, current.value.closed(5, 50))
    registration = await register(store, BookieInfo("b1", "address", boot_id="boot"))
    await registration.close()
    await store.create(f"{layout.root}/a-later-release/node", b"\xff", parents=True)
    found = await snapshot_of(store)
    instance = await read_instance(store, layout)
    with create(path) as writer, open_snapshot() as snapshot:
        await read_snapshot(store, layout, snapshot)
        writer.begin(Header(layout.cluster, instance.instance_id, 1))
        for node in snapshot:
            writer.write(node._replace(path=node.path.removeprefix(layout.root)))
        writer.end()
    return found


@pytest.fixture
async def export(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    path = tmp_path / "export.gz"
    async with stores(memory_opener()[1], 1) as (store,):
        return path, await exported(store, path)


async def test_rule_68_a_restore_brings_back_all_but_the_counter_and_writers(
    export: tuple[Path, dict[str, bytes]],
) -> None:
    path, before = export
    found = check_export(path)
    assert (found.next_id, found.unclosed, found.bookies, found.nodes) == (LEDGERS, 1, ["b1"], len(before))
    async with stores(memory_opener()[1], 1) as (store,):
        await import_nodes(store, LAYOUT, found, overwrite=False, now_ms=2)
        after = await snapshot_of(store)
        assert before.keys() - after.keys() == {LAYOUT.idgen}
        changed = {node for node, data in after.items() if data != before[node]}
        assert changed == {LAYOUT.ledger(0)}
        ledgers = LedgerManager(store, LAYOUT)
        unclosed = (await ledgers.read(0)).value
        assert (unclosed.state, unclosed.restored_among) == (LedgerState.IN_RECOVERY, ("b1",))
        assert unclosed.closed(3, 30).restored_among == ()
        with pytest.raises(DaybookError, match="stays until the close"):
            await ledgers.cas(await ledgers.read(0), replace(unclosed, restored_among=()))
        with pytest.raises(CollectionHeldError, match="daybook metadata confirm"):
            await check_not_held(store, LAYOUT)


async def test_rule_68_no_ledger_begins_before_the_counter_is_above_all_that_bookies_hold(
    export: tuple[Path, dict[str, bytes]],
) -> None:
    found = check_export(export[0])
    async with stores(memory_opener()[1], 1) as (store,):
        await import_nodes(store, LAYOUT, found, overwrite=False, now_ms=2)
        with pytest.raises(NoNodeError):
            await LedgerManager(store, LAYOUT).create_ledger(ledger)
        assert await finish(store, LAYOUT, found, highest_held=LEDGERS + 40) == LEDGERS + 41
        created = await LedgerManager(store, LAYOUT).create_ledger(ledger)
        assert created.value.ledger_id == LEDGERS + 41


async def test_a_counter_of_the_export_that_bookies_do_not_reach_stays(
    export: tuple[Path, dict[str, bytes]],
) -> None:
    found = check_export(export[0])
    async with stores(memory_opener()[1], 1) as (store,):
        await import_nodes(store, LAYOUT, found, overwrite=False, now_ms=2)
        assert await finish(store, LAYOUT, found, highest_held=3) == LEDGERS
        assert json.loads((await store.get(LAYOUT.idgen)).value)["next"] == LEDGERS


class BreaksOff:
    """A store that fails after so many transactions."""

    def __init__(self, store: MetadataStore, transactions: int) -> None:
        self._store = store
        self._left = transactions

    async def multi(self, operations: Sequence[Operation]) -> None:
        if self._left == 0:
            raise ConnectionAbortedError
        self._left -= 1
        await self._store.multi(operations)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_rule_68_a_restore_that_breaks_off_anywhere_holds_collection_and_has_no_identity(
    export: tuple[Path, dict[str, bytes]],
) -> None:
    found = check_export(export[0])
    _, opener = memory_opener()
    for transactions in range(3):
        async with stores(opener, 1) as (store,):
            with pytest.raises(ConnectionAbortedError):
                await import_nodes(BreaksOff(store, transactions), LAYOUT, found, overwrite=True, now_ms=2)  # type: ignore[arg-type]  # all that an import asks of a store
            with pytest.raises(CollectionHeldError):
                await check_not_held(store, LAYOUT)
            assert await store.exists(LAYOUT.instance) is None
    async with stores(opener, 1) as (store,):
        with pytest.raises(ClusterExistsError, match="--overwrite"):
            await import_nodes(store, LAYOUT, found, overwrite=False, now_ms=2)
        await import_nodes(store, LAYOUT, found, overwrite=True, now_ms=2)
        assert (await snapshot_of(store)).keys() == export[1].keys() - {LAYOUT.idgen}


async def test_an_overwritten_cluster_keeps_its_ephemeral_nodes_alone(
    export: tuple[Path, dict[str, bytes]],
) -> None:
    found = check_export(export[0])
    async with stores(memory_opener()[1], 1) as (store,):
        layout = await formatted(store)
        await store.create(layout.replacement("b1"), b"{}")
        await store.create(f"{layout.topics}/tenant/namespace/topic", b"", parents=True)
        registration = await register(store, BookieInfo("b2", "address", boot_id="boot"))
        with pytest.raises(ClusterExistsError, match="is not empty"):
            await import_nodes(store, layout, found, overwrite=False, now_ms=2)
        await import_nodes(store, layout, found, overwrite=True, now_ms=2)
        assert (await snapshot_of(store)).keys() == export[1].keys() - {LAYOUT.idgen}
        assert await store.exists(layout.replacement("b1")) is None, "it was for once (rule 29)"
        assert await store.exists(layout.registration("b2", writable=True)) is not None
        await registration.close()


async def test_a_damaged_file_changes_nothing(export: tuple[Path, dict[str, bytes]]) -> None:
    path = export[0]
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BackupFileError, match="cut short"):
        check_export(path)
