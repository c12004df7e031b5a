"""Manifests in the store: jobs add to them, one compare-and-set each, and an abandoned job adds nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from daybook.core.errors import MetadataError
from daybook.metadata.manifests import JobAbandonedError, Manifest, ManifestManager, WrittenLedger
from daybook.metadata.store.memory import Fault, FaultKind, MemoryServer
from daybook.metadata.store.store import Put
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, memory_opener, stores

STRANGER = 999
"""A session of another client."""


def written(*ledger_ids: int) -> tuple[WrittenLedger, ...]:
    return tuple(WrittenLedger(ledger_id, 10, 1000) for ledger_id in ledger_ids)


async def ids(manifests: ManifestManager, name: str = "daily") -> list[int]:
    found = await manifests.read(name)
    return [] if found is None else [ledger.ledger_id for ledger in found.value.ledgers]


async def test_jobs_side_by_side_all_add_their_ledgers(opener: Opener) -> None:
    async with stores(opener, 3) as several:
        await formatted(several[0])
        managers = [ManifestManager(store, LAYOUT) for store in several]
        assert await managers[0].read("daily") is None
        assert await managers[0].names() == []
        adding = (managers[n % 3].add("daily", f"job-{n}", written(2 * n, 2 * n + 1)) for n in range(9))
        assert await asyncio.gather(*adding) == [()] * 9
        found = await ids(managers[0])
        assert sorted(found) == list(range(18))
        assert all(found[i + 1] == found[i] + 1 for i in range(0, 18, 2)), "a job's ledgers stay together"
        assert await managers[0].names() == ["daily"]


async def test_an_overwriting_job_returns_what_nobody_names_any_more(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        await manifests.add("daily", "first", written(1, 2))
        assert await manifests.add("daily", "second", written(3), overwrite=True) == (1, 2)
        assert await ids(manifests) == [3]


async def test_a_batch_of_a_stream_is_added_once(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        assert await manifests.add("daily", "a", written(1), query="q", batch=0) == ()
        assert await manifests.add("daily", "b", written(2), query="q", batch=0) == (2,)
        assert await manifests.add("daily", "c", written(3), query="q", batch=1) == ()
        assert await manifests.add("daily", "d", written(4), query="other", batch=0) == ()
        assert await ids(manifests) == [1, 3, 4]


async def test_an_abandoned_job_adds_nothing(opener: Opener) -> None:
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        assert (await manifests.abandon("daily", "slow")).ledgers == ()
        with pytest.raises(JobAbandonedError, match="job slow was given up while it ran"):
            await manifests.add("daily", "slow", written(1))
        await manifests.add("daily", "quick", written(2))
        assert (await manifests.abandon("daily", "slow")).ledgers == written(2)


def before_its_answer(server: MemoryServer, operation: str, change: Callable[[Manifest], Manifest]) -> None:
    """The answer to the next `operation` on the manifest is lost, and another client changes the manifest meanwhile."""
    path = LAYOUT.manifest("daily")

    def changes() -> None:
        after = change(Manifest.from_json(server.read(path).data))
        server.apply([Put(path, after.to_json(), None)], STRANGER)

    server.inject(Fault(FaultKind.DROP_REPLY, operation, path, then=changes))


@pytest.mark.parametrize(
    ("earlier", "operation", "named"), [("weekly", "create", [1, 2, 3]), ("daily", "put", [9, 1, 2, 3])]
)
async def test_rule_66_a_job_whose_answer_was_lost_is_named_once(
    earlier: str, operation: str, named: list[int]
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        await manifests.add(earlier, "earlier", written(9))
        before_its_answer(
            server, operation, lambda manifest: manifest.with_job("other", written(3), overwrite=False)
        )
        assert await manifests.add("daily", "job", written(1, 2)) == ()
        assert await ids(manifests) == named


@pytest.mark.parametrize(
    ("does_other_overwrite", "unnamed", "named"), [(False, (9,), [1, 2, 3]), (True, (9, 1, 2), [3])]
)
async def test_rule_66_a_job_that_overwrites_and_whose_answer_was_lost_takes_nothing_of_a_later_job(
    does_other_overwrite: bool, unnamed: tuple[int, ...], named: list[int]
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        await manifests.add("daily", "earlier", written(9))
        before_its_answer(
            server,
            "put",
            lambda manifest: manifest.with_job("other", written(3), overwrite=does_other_overwrite),
        )
        assert await manifests.add("daily", "job", written(1, 2), overwrite=True) == unnamed
        assert await ids(manifests) == named


async def test_a_job_that_is_abandoned_after_its_change_has_not_failed() -> None:
    server, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        await manifests.add("daily", "earlier", written(9))
        before_its_answer(server, "put", lambda manifest: replace(manifest, abandoned=("job",)))
        assert await manifests.add("daily", "job", written(1)) == ()
        assert await ids(manifests) == [9, 1]


@pytest.mark.parametrize("overwrite", [False, True])
async def test_a_job_without_ledgers_is_committed_as_well(*, overwrite: bool) -> None:
    _, opener = memory_opener()
    async with stores(opener, 1) as (store,):
        await formatted(store)
        manifests = ManifestManager(store, LAYOUT)
        for job in ("first", "second", "first"):
            assert await manifests.add("daily", job, (), overwrite=overwrite) == ()
        found = await manifests.read("daily")
        assert found is not None
        assert found.value == Manifest(committed=("first", "second"))


def test_a_manifest_of_an_earlier_release_has_no_committed_jobs() -> None:
    stored = b'{"formatVersion":1,"ledgers":[],"batches":{},"abandoned":["old"]}'
    assert Manifest.from_json(stored) == Manifest(abandoned=("old",))


def test_a_manifest_keeps_what_a_later_release_added() -> None:
    manifest = Manifest(written(1), {"q": 3}, ("old",), ("job",), {"later": [1]})
    assert Manifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(MetadataError, match="this is no manifest"):
        Manifest.from_json(b'{"formatVersion":1,"ledgers":7,"batches":{},"abandoned":[]}')
