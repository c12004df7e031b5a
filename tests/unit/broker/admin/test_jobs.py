"""What jobs ask the owner of a topic for, over real HTTP."""

import asyncio
from functools import partial
from typing import Any

import pulsar
import pytest

from daybook.client import broker_topics
from daybook.client.broker_admin import Admin as Http
from daybook.client.broker_admin import AdminError
from daybook.core.errors import NoSuchLedgerError
from daybook.core.topics.name import TopicName
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import TOPICS, admins, new_namespace, owner_of
from tests.unit.broker.kit import until_gone, with_pulsar

pytestmark = pytest.mark.integration

ROLLS: dict[str, Any] = {
    "ledger_entries_max": 2,
    "ledger_age_ms_min": 0,
    "trim_interval_ms": 600_000,
    "cursor_persist_ms": 10,
}
"""Ledgers are short, and the owner drops none by itself while a test runs."""


async def test_rule_38_the_owner_drops_what_a_job_planned_and_says_what_it_keeps(
    cluster: LocalCluster,
) -> None:
    name = TopicName(*new_namespace(), "orders")
    async with admins(cluster, 2, **ROLLS) as brokers:
        path = f"{TOPICS}/{name.tenant}/{name.namespace}/orders"
        await brokers[0].do("PUT", path)
        owner, (other,) = await owner_of(brokers, name)
        await other.do("PUT", f"{path}/subscription/s", "earliest")
        http = Http([other.broker.admin_url])

        def publish(client: pulsar.Client) -> None:
            producer = client.create_producer(str(name), batching_enabled=False)
            for number in range(7):
                producer.send(b"%d" % number)

        async def trim(count: int) -> tuple[int, str]:
            """The answer to a request for the first ledgers of the plan."""
            try:
                await asyncio.to_thread(broker_topics.trim, http, name, plan[:count])
            except AdminError as error:
                return error.status, str(error)
            return 200, ""

        await with_pulsar(owner.broker, publish)
        plan = (await owner.broker.topics.read(name)).value.ledgers
        assert [each.entries for each in plan] == [2, 2, 2, 0]
        first = plan[0].ledger_id
        status, reason = await trim(2)
        assert (status, f"'s' has acknowledged up to -1:-1 and needs ledger {first}" in reason) == (412, True)
        await other.do("POST", f"{path}/subscription/s/skip_all")
        await with_pulsar(owner.broker, publish)  # the list has changed, and none of the named ledgers
        assert await trim(2) == (200, "")
        left = (await owner.broker.topics.read(name, sync=True)).value
        assert left.ledgers[0].ledger_id == plan[2].ledger_id
        read = owner.broker.client.ledgers.read
        for ledger in plan[:2]:  # the ledgers go after the list has lost them
            await until_gone(partial(read, ledger.ledger_id), NoSuchLedgerError)
        status, reason = await trim(2)
        assert (status, reason) == (
            409,
            f"the topic has no ledger {plan[0].ledger_id} any more, or never had: read its list and plan again",
        )
        await other.do("POST", f"{path}/policy", {"retentionMs": 600_000, "retentionBytes": -1})
        plan = left.ledgers
        status, reason = await trim(1)
        assert (status, "retention keeps messages of 600000 ms" in reason) == (412, True)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"ledgers": []},
        {"ledgers": [3]},
        {"ledgers": [{"ledgerId": 3}]},
        {"ledgers": [{"ledgerId": "3", "entries": 1, "size": 1}]},
        {"ledgers": [{"ledgerId": 3, "entries": -1, "size": 1}]},
    ],
)
async def test_a_request_that_names_no_ledgers_is_refused(cluster: LocalCluster, body: object) -> None:
    async with admins(cluster, 1) as (admin,):
        status, reason = await admin.refused("POST", f"{broker_topics.TOPICS_PATH}/t%2Fn%2Fx/trim", body)
        assert status == 400
        assert "the body is to" in reason
