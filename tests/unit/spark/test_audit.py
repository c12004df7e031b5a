"""The audit job: a corrupted and a missing copy, planted on real bookies, are found, marked and repaired."""

import asyncio
import json
import random
from pathlib import Path

import pytest
from daybook_spark.audit.check import FAULTS_MAX, in_words
from daybook_spark.audit.job import summary_of
from daybook_spark.audit.pace import Pace
from daybook_spark.audit.plan import plan_audit
from daybook_spark.audit.source import parse_audit
from daybook_spark.options import OptionError
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.cli.main import app
from daybook.client.verify import verify_ledger
from daybook.core.quorum import check_quorum
from daybook.local.cluster import LocalCluster
from daybook.metadata.tasks import RepairTasks
from tests.fixtures.cluster import Connect, connect_to, make_cluster
from tests.fixtures.spark import RunJob

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ENTRIES = 60
BROKEN = 37


async def plant(cluster: LocalCluster) -> tuple[int, int]:
    """Two ledgers: one with a damaged copy on bookie-1, one that bookie-2 has nothing of."""
    wanted = [random.Random(n).randbytes(300) for n in range(ENTRIES)]
    async with connect_to(cluster) as client:
        damaged = await client.create_ledger()
        await damaged.append_many(wanted)
        await damaged.replicated()
        await damaged.close()
        lacking = await client.create_ledger()
        await asyncio.to_thread(cluster.stop_bookies, "bookie-2")
        await lacking.append_many([data[::-1] for data in wanted])
        await lacking.close()
        report = await verify_ledger(client, lacking.id)
        silent = {copy.bookie: (copy.unread, len(copy.missing), bool(copy.error)) for copy in report.copies}
        assert silent["bookie-2"] == (ENTRIES, 0, True), "silence is never `not found` (rule 6)"
        assert silent["bookie-0"] == (0, 0, False)
    cluster.stop_bookies("bookie-1")
    flip(Path(cluster.file.bookie("bookie-1").dir) / "store" / "data.mdb", wanted[BROKEN])
    cluster.start_bookie("bookie-1")
    cluster.start_bookie("bookie-2")
    return damaged.id, lacking.id


def flip(file: Path, wanted: bytes) -> None:
    """Flip a bit of these bytes wherever a file has them."""
    content = bytearray(file.read_bytes())
    at = content.find(wanted)
    assert at >= 0
    while at >= 0:
        content[at + len(wanted) // 2] ^= 0x10
        at = content.find(wanted, at + 1)
    with file.open("r+b") as opened:
        opened.write(content)


async def marked(cluster: LocalCluster) -> list[int]:
    async with connect_to(cluster) as client:
        return [ledger_id async for ledger_id in RepairTasks(client.store, client.layout).ids()]


async def repair(cluster: LocalCluster) -> None:
    async with connect_to(cluster) as client:
        report = await RepairWorker(client, AutoRecoverySettings(), name="a test").drain()
        assert report.is_complete, report.record()


def test_a_corrupted_and_a_missing_copy_are_found_marked_and_repaired(
    spark: SparkSession, run_job: RunJob, tmp_path: Path
) -> None:
    table = str(tmp_path / "copies")
    with make_cluster(tmp_path / "cluster", bookies=3) as cluster:
        damaged, lacking = asyncio.run(plant(cluster))
        last = tmp_path / "last"
        words = ("--delay", "0", "--termination-log", str(last))
        code, found, _ = run_job(cluster, "audit", *words, "--dry-run", "--parquet", table)
        assert code == 1
        said = json.loads(last.read_text())
        assert said["copies"] == found["copies"]["copies"]
        assert said["error"] == (
            f"of {6 * ENTRIES:,} copies that bookies owe: {ENTRIES} missing, 1 damaged, the first in ledger {damaged} on bookie-1 "
            f"(damaged {BROKEN}); not every entry has all its replicas (gap: 2 ledgers)"
        )
        assert asyncio.run(marked(cluster)) == [], "a dry run marks nothing"
        faulty = {(row["ledger_id"], row["bookie"]): row["faults"] for row in found["copies"]["faulty"]}
        assert faulty == {
            (damaged, "bookie-1"): f"damaged {BROKEN}",
            (lacking, "bookie-2"): f"missing 0-{ENTRIES - 1}",
        }
        assert found["copies"]["copies"]["owed"] == 6 * ENTRIES
        assert found["audit"]["by_reason"] == {"gap": [damaged, lacking]}
        assert summary_of(spark.read.parquet(table)).record() == found["copies"]

        code, _, _ = run_job(cluster, "audit", "--delay", "0")
        assert code == 1
        assert asyncio.run(marked(cluster)) == [damaged, lacking]

        asyncio.run(repair(cluster))
        code, found, _ = run_job(cluster, "audit", *words)
        assert code == 0, found
        assert "error" not in json.loads(last.read_text())
        assert found["copies"]["is_whole"]
        assert asyncio.run(marked(cluster)) == []


def test_without_spark_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    ran = CliRunner().invoke(app, ["spark", "audit", "--zookeeper", "127.0.0.1:1"])
    assert ran.exit_code == 1
    assert "`uv sync --inexact --extra spark` in a checkout" in ran.output


async def test_every_entry_is_in_one_piece_whatever_its_size(connect: Connect) -> None:
    async with connect() as client:
        ledger = await client.create_ledger(ensemble_size=4, write_quorum=2, ack_quorum=2)
        await ledger.append_many([b"x" * 100] * 1000)
        await ledger.close()
        small = await plan_audit(client, piece_bytes=7_000)
        large = await plan_audit(client, piece_bytes=10**9)
    for pieces in (small, large):
        own = [r.copies for piece in pieces for r in piece.ranges if r.copies.ledger_id == ledger.id]
        assert [entry for copies in own for entry in range(copies.first, copies.last + 1)] == list(
            range(1000)
        )
        assert {copies.quorum for copies in own} == {check_quorum(4, 2, 2)}
    assert max(sum(r.size_bytes for r in piece.ranges) for piece in small) <= 7_000 or all(
        len(piece.ranges) == 1 for piece in small if sum(r.size_bytes for r in piece.ranges) > 7_000
    )
    assert len(large) <= len(small)


async def test_a_piece_shows_no_key(connect: Connect) -> None:
    async with connect() as client:
        ledger = await client.create_ledger(password=b"secret")
        await ledger.append(b"x")
        await ledger.close()
        key = (await client.ledgers.read(ledger.id)).value.password_hash
        pieces = await plan_audit(client)
    shown = "".join([repr(pieces), *(repr(piece.ranges) for piece in pieces)])
    assert key
    assert key not in shown


def test_the_pace_leaves_a_bookie_what_it_may_have() -> None:
    now_s = 0.0
    pace = Pace(1000, lambda: now_s)
    assert pace.pause_s("a", 500) == 0.5
    assert pace.pause_s("b", 500) == 0.5, "each bookie has a limit of its own"
    now_s = 0.5
    assert pace.pause_s("a", 1000) == 1.0
    now_s = 10.0
    assert pace.pause_s("a", 1000) == 1.0, "time without reads is not saved up"
    assert Pace(0, lambda: now_s).pause_s("a", 10**9) == 0


def test_faults_are_named_as_ranges_and_bounded() -> None:
    assert in_words([3, 4, 5, 9]) == "3-5, 9"
    assert in_words(range(0, 2 * (FAULTS_MAX + 5), 2)).endswith(" and 5 more")


def test_an_option_of_the_audit_that_is_wrong_is_refused() -> None:
    assert parse_audit({"zookeeper": "a:1", "bytesPerSecond": "7"}).bytes_per_second == 7
    with pytest.raises(OptionError, match="a whole number"):
        parse_audit({"zookeeper": "a:1", "bytesPerSecond": "-7"})
    with pytest.raises(OptionError, match="zookeeper"):
        parse_audit({"zookeper": "a:1"})
