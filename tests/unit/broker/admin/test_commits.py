"""Compactions that a job wrote, and what their owner finds before it names them: rule 38 and rule 41, over real HTTP."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pulsar
import pytest
from daybook_broker.topics import committed

from daybook.client import broker_topics
from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import AdminError
from daybook.core.errors import NoSuchLedgerError
from daybook.core.topics.compaction.commit import CompactionCommit, former_of, planned_ledgers
from daybook.core.topics.compaction.record import encode_compacted
from daybook.core.topics.ledger_list import NO_POSITION, CompactedLedger, Compaction, LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.unnamed import JOB_KEY, made_by_compaction_job
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import TOPICS, Admin, admins, new_namespace, owner_of
from tests.unit.broker.admin.test_jobs import ROLLS
from tests.unit.broker.kit import until_gone, with_pulsar

pytestmark = pytest.mark.integration

JOB = "job-7"


@dataclass(slots=True)
class Work:
    """A topic with an owner, and a job that compacts it by hand."""

    name: TopicName
    owner: Admin
    http: Http

    async def publish(self, *values: bytes) -> None:
        """Each an entry of its own."""

        def send(client: pulsar.Client) -> None:
            producer = client.create_producer(str(self.name), batching_enabled=False)
            for value in values:
                producer.send(value, partition_key="k")
            producer.close()

        await with_pulsar(self.owner.broker, send)

    async def ledger_list(self) -> LedgerList:
        """As it is stored."""
        return (await self.owner.broker.topics.read(self.name, sync=True)).value

    async def write(
        self,
        *positions: Position,
        marks: Mapping[str, bytes] | None = None,
        password: bytes = b"",
        closes: bool = True,
    ) -> CompactedLedger:
        """A compacted ledger with entries at these positions."""
        handle = await self.owner.broker.client.create_ledger(
            custom_metadata=marks or made_by_compaction_job(str(self.name), JOB, "0.0"), password=password
        )
        await handle.append_many([encode_compacted(position, b"left") for position in positions])
        length = handle.length
        if closes:
            await handle.close()
        return CompactedLedger(handle.id, len(positions), length, positions[-1])

    async def commit(self, *ledgers: CompactedLedger) -> CompactionCommit:
        """What the job asks for, planned on the list as it is now."""
        ledger_list = await self.ledger_list()
        horizon = self.owner.broker.registry.served()[0].extent.last_confirmed
        former = former_of(ledger_list.compaction)
        start = NO_POSITION if former is None else former.horizon
        planned = tuple(
            PlannedLedger(each.ledger_id, each.entries, each.size_bytes)
            for each in planned_ledgers(ledger_list, start, horizon)
        )
        return CompactionCommit(JOB, former, planned, Compaction(horizon, ledgers))

    async def ask(self, commit: CompactionCommit) -> tuple[int, str]:
        """The owner's answer."""
        try:
            await asyncio.to_thread(broker_topics.commit_compaction, self.http, self.name, commit)
        except AdminError as error:
            return error.status, str(error)
        return 200, ""

    async def exists(self, ledger: CompactedLedger) -> bool:
        """Whether the ledger does."""
        (found,) = await self.owner.broker.client.ledgers.read_each([ledger.ledger_id], sync=True)
        return not isinstance(found, NoSuchLedgerError)


async def begin(brokers: Any) -> Work:
    """A topic with three entries in two ledgers, whose other broker is asked."""
    name = TopicName(*new_namespace(), "orders")
    await brokers[0].do("PUT", f"{TOPICS}/{name.tenant}/{name.namespace}/orders")
    owner, others = await owner_of(brokers, name)
    work = Work(name, owner, Http([(others or [owner])[0].broker.admin_url]))
    await work.publish(b"0", b"1", b"2")
    return work


async def test_rule_41_the_owner_names_what_a_job_wrote_and_then_deletes_what_was_named_before(
    cluster: LocalCluster,
) -> None:
    async with admins(cluster, 2, **ROLLS) as brokers:
        work = await begin(brokers)
        first, second = [each.ledger_id for each in (await work.ledger_list()).ledgers]
        written = [await work.write(Position(first, 1)), await work.write(Position(second, 0))]
        commit = await work.commit(*written)
        await work.publish(
            b"3", b"4", b"5"
        )  # the ledger that was read a part of is closed, and others follow
        assert await work.ask(commit) == (200, "")
        assert (await work.ledger_list()).compaction == commit.written
        assert await work.ask(commit) == (200, ""), "an answer that was lost is asked for again"
        other = await work.write(Position(first, 0))
        status, reason = await work.ask(commit._replace(written=Compaction(commit.written.horizon, (other,))))
        assert (status, "by other ledgers than when the job began" in reason) == (409, True)
        last = await work.write(Position(second, 0))
        following = await work.commit(last)
        assert following.planned[0].ledger_id == second
        assert await work.ask(following) == (200, "")
        assert (await work.ledger_list()).compacted_ids == {last.ledger_id}
        for ledger in written:
            await until_gone(
                partial(work.owner.broker.client.ledgers.read, ledger.ledger_id), NoSuchLedgerError
            )
        status, compaction = await work.owner.ask("GET", f"{TOPICS}/{work.name.tenant}/ns/orders/compaction")
        assert (status, compaction["status"]) == (200, "SUCCESS")


async def test_rule_38_a_planned_ledger_that_changed_is_a_conflict(cluster: LocalCluster) -> None:
    async with admins(cluster, 1, **ROLLS) as brokers:
        work = await begin(brokers)
        first, second = [each.ledger_id for each in (await work.ledger_list()).ledgers]
        ledger = await work.write(Position(first, 1))
        commit = await work.commit(ledger)
        shorter = PlannedLedger(first, 1, commit.planned[0].size_bytes)
        status, reason = await work.ask(commit._replace(planned=(shorter, *commit.planned[1:])))
        assert (status, f"ledger {first} has 2 entries" in reason) == (409, True)
        listed = (await work.ledger_list()).ledgers
        await asyncio.to_thread(broker_topics.trim, work.http, work.name, listed[:1])
        status, reason = await work.ask(commit)
        assert (status, f"differ by the ledgers [{first}]" in reason) == (409, True)
        status, reason = await work.ask(await work.commit(await work.write(Position(second, 0))))
        assert (status, reason) == (200, "")


async def test_rule_41_ledgers_that_are_not_what_the_job_says_are_not_named(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1, **ROLLS) as brokers:
        work = await begin(brokers)
        first, second = [each.ledger_id for each in (await work.ledger_list()).ledgers]
        at, later = Position(first, 1), Position(second, 0)

        async def refused(why: str, *ledgers: CompactedLedger) -> None:
            status, reason = await work.ask(await work.commit(*ledgers))
            assert (status, why in reason) == (412, True), reason
            assert (await work.ledger_list()).compaction is None

        good = await work.write(at)
        await refused("it is OPEN", await work.write(at, closes=False))
        await refused("has 1 entries", replace(good, entries=2))
        await refused("bytes, and the job says", replace(good, size_bytes=good.size_bytes + 1))
        await refused("does not exist", replace(good, ledger_id=2**40))
        marks = made_by_compaction_job(str(work.name), JOB, "0.0")
        for other in ({**marks, JOB_KEY: b"other"}, made_by_compaction_job("t/n/other", JOB, "0.0"), {}):
            await refused("its metadata does not say", await work.write(at, marks={**other, "any": b""}))
        await refused("it has a password", await work.write(at, password=b"secret"))
        await refused("its entries are those from", replace(good, through=Position(first, 0)))
        await refused(
            "are to be behind", replace(good, through=at), replace(await work.write(at), through=later)
        )
        monkeypatch.setattr(committed, "COMMIT_AGE_MS_MAX", -1)
        await refused("it was begun more than", good)
        monkeypatch.undo()
        assert await work.ask(await work.commit(good)) == (200, "")


async def test_rule_41_while_another_compaction_is_under_way_a_job_waits(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admins(cluster, 1, **ROLLS) as brokers:
        work = await begin(brokers)
        (topic,) = work.owner.broker.registry.served()
        position = topic.extent.last_confirmed
        checks, goes_on = asyncio.Event(), asyncio.Event()
        check: Callable[..., Any] = committed.check_written

        async def slow(*arguments: Any) -> None:
            checks.set()
            await goes_on.wait()
            await check(*arguments)

        monkeypatch.setattr("daybook_broker.topics.compaction.check_written", slow)
        commit = await work.commit(await work.write(position))
        asking = asyncio.create_task(work.ask(commit))
        await checks.wait()
        path = f"{TOPICS}/{work.name.tenant}/ns/orders/compaction"
        status, _ = await work.owner.refused("PUT", path)
        assert status == 409
        status, reason = await work.ask(commit)
        assert (status, "ask again once that has ended" in reason) == (503, True)
        listed = (await work.ledger_list()).ledgers
        with pytest.raises(AdminError, match="is being compacted"):
            await asyncio.to_thread(broker_topics.trim, work.http, work.name, listed[:1])
        goes_on.set()
        assert await asking == (200, "")


async def test_a_request_that_describes_no_compaction_is_refused(cluster: LocalCluster) -> None:
    async with admins(cluster, 1) as (admin,):
        path = f"{broker_topics.TOPICS_PATH}/t%2Fn%2Fx/compaction"
        whole: dict[str, Any] = {"job": "j", "former": None, "planned": [], "compaction": {}}
        for body in ({}, {"job": "j"}, whole):
            status, reason = await admin.refused("POST", path, body)
            assert (status, "the body is to describe a compaction" in reason) == (400, True)
