"""A link that nothing needs is ended while somebody waits for it: that is a failure of the waiter, and ends no part of the process."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_operator.clusters.clusters import Clusters
from daybook_operator.clusters.context import LinkContext
from daybook_operator.kube.part import PartEndedError, must_not_end
from daybook_operator.kube.queue import Key
from daybook_operator.metrics import LabelledRegistries
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.ledger import LedgerReconciler
from daybook_operator.settings import OperatorSettings

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.core.errors import MetadataUnavailableError
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from tests.unit.operator.test_ledger_plan import REF, manifest


class SilentZooKeeper:
    """Takes attempts to open a session, and answers none."""

    def __init__(self) -> None:
        self.attempts = 0
        self._another = asyncio.Event()

    async def open(self, _hosts: str, _options: ZooKeeperOptions) -> ZooKeeperStore:
        self.attempts += 1
        self._another.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def attempted(self) -> None:
        await self._another.wait()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> SilentZooKeeper:
    zookeeper = SilentZooKeeper()
    monkeypatch.setattr(ZooKeeperStore, "open", zookeeper.open)
    return zookeeper


def clusters() -> Clusters:
    return Clusters(
        LinkContext(
            OperatorSettings(),
            AutoRecoverySettings(),
            "operator",
            LabelledRegistries("cluster"),
            lambda _: None,
            lambda *_: None,
        )
    )


async def test_who_waits_for_a_link_that_is_ended_is_refused_and_not_cancelled(
    silent: SilentZooKeeper,
) -> None:
    links = clusters()
    waiting = asyncio.create_task(links.link(REF))
    await silent.attempted()
    await links.keep_only([])
    with pytest.raises(MetadataUnavailableError, match="does not answer"):
        await waiting


async def test_a_task_that_is_cancelled_while_it_ends_a_link_ends_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end(_hosts: str, _options: ZooKeeperOptions) -> ZooKeeperStore:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await may_end.wait()
        raise AssertionError

    monkeypatch.setattr(ZooKeeperStore, "open", slow_to_end)
    links = clusters()
    waiting = asyncio.create_task(links.link(REF))
    await begun.wait()
    closing = asyncio.create_task(links.keep_only([]))
    await ending.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    may_end.set()
    with pytest.raises(MetadataUnavailableError):
        await waiting


async def test_the_cluster_of_a_ledger_is_needed_before_its_link_is_open() -> None:
    """No pool names it any more, and nothing of the ledger can be read: a resync must leave the attempt alone."""
    key, inventory, needed = Key("Ledger", "data", "orders"), Inventory(), []

    async def find(kind: str, *_: str) -> Any:
        return manifest() if kind == "Ledger" else None

    async def link(_: ClusterRef) -> Any:
        needed.append(inventory.clusters())
        raise MetadataUnavailableError("ZooKeeper does not answer")

    async def carry_out(_: Any) -> float:
        return 5.0

    services: Any = SimpleNamespace(
        kube=SimpleNamespace(find=find),
        clusters=SimpleNamespace(link=link, find=lambda _: None),
        performer=SimpleNamespace(carry_out=carry_out),
        settings=OperatorSettings(),
        inventory=inventory,
        now_ms=lambda: 0,
    )
    assert await LedgerReconciler(services).reconcile(key) == 5.0
    assert needed == [{REF}]
    assert inventory.clusters() == {REF}
    inventory.remove(key)
    assert inventory.clusters() == set()


async def test_a_part_that_ends_by_itself_is_an_error() -> None:
    async def ends() -> None:
        return

    async def waits_for_what_is_cancelled() -> None:
        awaited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        awaited.cancel()
        await awaited

    with pytest.raises(PartEndedError, match="the queue ended"):
        await must_not_end("the queue", ends())
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.TaskGroup() as group:
            group.create_task(must_not_end("a worker", waits_for_what_is_cancelled()))
    assert failed.group_contains(PartEndedError)


async def test_a_part_that_is_cancelled_ends_without_an_error() -> None:
    begun = asyncio.Event()

    async def works() -> None:
        begun.set()
        await asyncio.Event().wait()

    part = asyncio.create_task(must_not_end("the queue", works()))
    await begun.wait()
    part.cancel()
    with pytest.raises(asyncio.CancelledError):
        await part
