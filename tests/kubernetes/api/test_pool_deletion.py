"""A pool that is deleted, on a real API server: what stays and what goes, by its policy; and a namespace that can always end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kubernetes import client as kubernetes

from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.kubernetes.api.pool_kit import CLUSTER, Operator, PretendBookies, Site

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

NOT_FOUND = 404


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[tuple[Operator, PretendBookies, MetadataStore]]:
    """A pool of two that serves, its operator, and what stands in ZooKeeper."""
    store = await ZooKeeperStore.open(site.zookeeper)
    try:
        await ensure_cluster(store, Layout(CLUSTER), created_at_ms=0)
        bookies = PretendBookies(site, store)
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            yield operator, bookies, store
    finally:
        await store.close()


def delete(site: Site) -> None:
    site.custom.delete_namespaced_custom_object(
        "daybook.dev", "v1alpha1", site.namespace, "bookiepools", "bk", propagation_policy="Background"
    )


def is_gone(read: Callable[[], object]) -> bool:
    """Whether what is read is not there (any more)."""
    try:
        read()
    except kubernetes.ApiException as error:
        if error.status != NOT_FOUND:
            raise
        return True
    return False


async def ledger_on(site: Site, store: MetadataStore) -> LedgerId:
    """A closed ledger that names both bookies; no entry of it was ever written."""
    names = (site.bookie(0), site.bookie(1))
    made = await LedgerManager(store, Layout(CLUSTER)).create_ledger(
        lambda number: LedgerMetadata(
            number, Quorum(2, 2, 1), (Fragment(0, 0, names),), password_hash="00$key"
        ).closed(-1, 0)
    )
    return made.value.ledger_id


def test_retain_lets_the_pool_go_and_one_of_that_name_finds_all_it_had(site: Site) -> None:
    site.create(replicas=2)

    async def scene() -> None:
        async with running(site) as (operator, bookies, store):
            await ledger_on(site, store)
            disks, cookies = set(bookies.disks), await _cookies(site)
            assert len(cookies) == 2
            delete(site)
            await operator.drive(lambda: is_gone(site.pool), "the pool is gone, ledgers or not")
            await operator.drive(
                lambda: is_gone(site.stateful_set) and not site.pods(), "what it owned goes with it"
            )
            assert len(site.claims()) == 4
            assert not [name for name, claim in site.claims().items() if claim.metadata.deletion_timestamp]
            assert await _cookies(site) == cookies
            assert len(await site.with_directory(lambda directory: directory.topology())) == 2
            site.create(replicas=2)
            await operator.drive(lambda: site.status.get("readyReplicas") == 2, "it serves again")
            assert bookies.disks == disks, "from the same volumes"

    asyncio.run(scene())


async def _cookies(site: Site) -> list[str]:
    found: list[str] = sorted(await site.with_directory(lambda directory: directory.cookies()))
    return found


def test_delete_waits_for_the_ledgers_and_then_destroys_everything(site: Site) -> None:
    site.create(replicas=2, reclaimPolicy="Delete")

    async def scene() -> None:
        async with running(site) as (operator, _, store):
            ledger_id = await ledger_on(site, store)
            delete(site)
            await operator.drive(
                lambda: site.condition("Ready").get("reason") == "DeletionBlocked", "a ledger names it"
            )
            assert "daybook ledger delete" in site.condition("Ready")["message"]
            assert (site.status["phase"], len(site.pods())) == ("Deleting", 2), "it runs on meanwhile"
            ledgers = LedgerManager(store, Layout(CLUSTER))
            await ledgers.delete(ledger_id, (await ledgers.read(ledger_id)).version)
            await operator.drive(lambda: is_gone(site.pool), "nothing names it any more")
            assert is_gone(site.stateful_set)
            assert not site.pods()
            assert await _cookies(site) == []
            assert await site.with_directory(lambda directory: directory.topology()) == {}
            await operator.drive(lambda: not site.claims(), "the volumes go")

    asyncio.run(scene())


def test_a_namespace_ends_although_ledgers_name_the_bookies_of_its_pool(site: Site) -> None:
    """Its finalizer may hold the namespace for a while, and not for ever."""
    site.create(replicas=2, reclaimPolicy="Delete")

    async def scene() -> None:
        async with running(site) as (operator, _, store):
            await ledger_on(site, store)
            site.core.delete_namespace(site.namespace)
            await operator.drive(lambda: is_gone(site.pool), "the finalizer is taken off in time")
            await operator.drive(
                lambda: is_gone(lambda: site.core.read_namespace(site.namespace)), "the namespace is gone"
            )
            assert len(await _cookies(site)) == 2, "what ledgers name is not forgotten"

    asyncio.run(scene())
