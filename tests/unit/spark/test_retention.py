"""The retention job on a real cluster with real Spark: idle topics, what nothing names, a dry run, no broker, and its last words."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.write.job import JOB as JOB_KEY
from daybook_spark.write.job import MANIFEST

from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import made_by
from daybook.local.cluster import LocalCluster
from daybook.metadata.job_results import JobResults
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms
from tests.fixtures.brokers import Brokers, write_settings
from tests.fixtures.cluster import connect_to, make_cluster
from tests.fixtures.spark import RunJob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

IDLE, KEPT, GONE = (TopicName("public", "default", name) for name in ("idle", "kept", "gone"))


async def plant(cluster: LocalCluster) -> dict[str, list[int]]:
    """Two idle topics of two ledgers, of which one keeps everything; ledgers that nothing names, and one that is nobody's."""
    async with connect_to(cluster) as client:
        topics = TopicManager(client.store, client.layout)

        async def closed(custom: dict[str, bytes]) -> int:
            ledger = await client.create_ledger(custom_metadata=custom)
            await ledger.append(b"x" * 10)
            await ledger.close()
            return ledger.id

        found: dict[str, list[int]] = {}
        for name, policy in [(IDLE, {}), (KEPT, {"retentionMs": -1, "retentionBytes": -1})]:
            ids = [await closed(made_by(str(name), "former owner")) for _ in range(2)]
            current = await topics.create(name, policy)
            for each in ids:
                listed = ListedLedger(each, unix_ms(), entries=1, size_bytes=10, closed_at_ms=unix_ms())
                grown = LedgerList(
                    ledgers=(*current.value.ledgers, listed),
                    last_confirmed=Position(each, 0),
                    owner_token="former owner",
                )
                current = await topics.cas(name, current, grown)
            found[name.local] = ids
        found["unnamed"] = [
            await closed(made_by(str(KEPT), "owner before that")),
            await closed(made_by(str(GONE), "former owner", "s")),
            await closed({JOB_KEY: b"a job that died", MANIFEST: b"daily"}),
        ]
        found["nobody's"] = [await closed({}), await closed({"app": b"mine"})]
        return found


async def existing(cluster: LocalCluster) -> set[int]:
    async with connect_to(cluster) as client:
        return {found.value.ledger_id async for found in client.list_ledgers()}


async def left_of(cluster: LocalCluster, name: TopicName, ids: list[int]) -> tuple[list[int], bool]:
    """The topic's ledgers once its owner has deleted those of `ids` that it dropped, and whether the job left a result."""
    async with connect_to(cluster) as client:
        listed = (await TopicManager(client.store, client.layout).read(name, sync=True)).value
        left = [ledger.ledger_id for ledger in listed.ledgers if ledger.ledger_id in ids]
        for each in set(ids) - set(left):
            async for found in client.ledgers.watch(each):
                if found is None:
                    break
        result = await JobResults(client.store, client.layout).read(name, "retention")
        return left, result is not None and result.succeeded


def test_retention_of_idle_topics_and_of_what_nothing_names(run_job: RunJob, tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        return run_job(cluster, "retention", "--topics-per-second", "0", *arguments)

    log = tmp_path / "termination-log"
    with make_cluster(tmp_path / "cluster", bookies=3) as cluster:
        planted = asyncio.run(plant(cluster))
        every = {each for ids in planted.values() for each in ids}

        code, _, errors = run("--grace", "0", "--termination-log", str(log))
        assert code == 1
        assert "nothing was changed; start a broker" in errors
        assert "start a broker" in json.loads(log.read_text())["error"]
        code, shown, _ = run("--grace", "0", "--dry-run")
        assert (code, shown["figures"]) == (0, {"bytesToTrim": 20, "ledgersToDelete": 3, "ledgersToTrim": 2})
        assert asyncio.run(existing(cluster)) == every

        brokers = Brokers(cluster, ("broker-0",))
        write_settings(cluster, brokers.ids, trim_interval_ms=600_000, collect_interval_ms=600_000)
        brokers.whole()
        of_no_pool = ("--pool", "data.bk")  # the topics here name none, as those that brokers made
        code, shown, _ = run("--grace", "0", *of_no_pool, "--termination-log", str(log))
        assert code == 0, shown
        assert shown["figures"] == {"bytesTrimmed": 20, "ledgersDeleted": 3, "ledgersTrimmed": 2}
        assert json.loads(log.read_text())["figures"] == shown["figures"]
        assert asyncio.run(left_of(cluster, IDLE, planted["idle"])) == ([], True)
        assert asyncio.run(left_of(cluster, KEPT, planted["kept"])) == (planted["kept"], True)
        assert asyncio.run(existing(cluster)) & every == {*planted["kept"], *planted["nobody's"]}
        code, shown, _ = run("--grace", "0")
        assert (code, shown["figures"]) == (0, {}), "what is done is not there to be done"
        brokers.none()
