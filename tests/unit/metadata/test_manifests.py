"""Manifests in the store: jobs add to them, one compare-and-set each, and an abandoned job adds nothing."""

import asyncio

import pytest

from daybook.core.errors import MetadataError
from daybook.metadata.manifests import JobAbandonedError, Manifest, ManifestManager, WrittenLedger
from tests.unit.metadata.harness import LAYOUT, Opener, formatted, stores


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


def test_a_manifest_keeps_what_a_later_release_added() -> None:
    manifest = Manifest(written(1), {"q": 3}, ("old",), {"later": [1]})
    assert Manifest.from_json(manifest.to_json()) == manifest
    with pytest.raises(MetadataError, match="this is no manifest"):
        Manifest.from_json(b'{"formatVersion":1,"ledgers":7,"batches":{},"abandoned":[]}')
