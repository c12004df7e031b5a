"""Scale-up with real bookies: nothing that is stored moves, and what is new is spread over all, the new ones too."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from kubernetes import client as kubernetes

from daybook.client.client import Client
from daybook.client.connecting import connect
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.pool_kit import CLUSTER, Operator, RealBookies, Site

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

OLD, NEW = 12, 200
TOLERANCE = 0.17
"""Five standard deviations of the share of one bookie in NEW draws of three out of five."""


async def write(client: Client) -> LedgerId:
    """A closed ledger with entries, which all three have: there is no worker here to copy what a slow one misses."""
    ledger = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
    await ledger.append_many([b"entry"] * 8)
    await ledger.close()
    return ledger.id


async def all_of(client: Client) -> dict[LedgerId, LedgerMetadata]:
    return {found.value.ledger_id: found.value async for found in client.list_ledgers()}


def test_after_adding_two_bookies_each_gets_its_share_of_what_is_new_and_nothing_of_what_was(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    nodes: PretendNodes,
    zookeeper: str,
    tmp_path: Path,
) -> None:
    zones = tuple(f"zone-{number}" for number in range(5))
    site = Site(control_plane, api, namespace, nodes, zookeeper, zones)
    site.create(replicas=3)
    bookies = RealBookies(site, tmp_path)

    async def scene() -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(3), "created")
            async with connect(zookeeper, cluster=CLUSTER) as client:
                for _ in range(OLD):
                    await write(client)
                before = await all_of(client)
            site.change(replicas=5)
            await operator.drive(lambda: site.is_running(5), "two more, and a full audit after they came")
            async with connect(zookeeper, cluster=CLUSTER) as client:
                assert await all_of(client) == before, "nothing moves, and no ledger names the new ones"
                assert site.status["recovery"]["underReplicated"] == 0
                for _ in range(NEW):
                    await client.create_unattached(ensemble_size=3, write_quorum=3, ack_quorum=2)
                await write(client)  # the new bookies take entries, and do not stand there for show
                new = [each for ledger_id, each in (await all_of(client)).items() if ledger_id not in before]
        share = Counter(bookie for each in new for bookie in each.last_fragment.bookies)
        assert set(share) == {site.bookie(ordinal) for ordinal in range(5)}
        for bookie, count in share.items():
            assert count / len(new) == pytest.approx(3 / 5, abs=TOLERANCE), bookie

    async def run() -> None:
        try:
            await scene()
        finally:
            await bookies.close()

    asyncio.run(run())
