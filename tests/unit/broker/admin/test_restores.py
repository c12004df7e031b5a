"""The owner of a topic names copies of offloaded ledgers, and reads them under the ledgers' own ids: over real HTTP, with Pulsar's client (rule 72)."""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from daybook_broker.topics import committed
from daybook_broker.topics.ledger_reads import ReadDelayedError

from daybook.client import broker_topics
from daybook.client.broker_admin import AdminError
from daybook.core.errors import NoSuchLedgerError
from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import ListedLedger, Position
from daybook.core.topics.offload.restore import RestoredLedger
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.unnamed import JOB_KEY, RESTORED_KEY, made_by_restore_job
from daybook.local.cluster import LocalCluster
from tests.unit.broker.admin.kit import TOPICS, admins
from tests.unit.broker.admin.test_offloads import JOB, PAYLOADS, Served, served
from tests.unit.broker.kit import LIMIT_S, until_gone, with_pulsar
from tests.unit.offload.kit import read_all

pytestmark = pytest.mark.integration

LAG_MS = 60_000


async def offloaded(found: Served) -> list[ListedLedger]:
    """All closed ledgers are in files alone."""
    await found.begin()
    files = [await found.copy(ledger) for ledger in await found.closed()]
    assert await found.commit(files) == (204, "")
    await (await found.topic()).offloads.give_replicas_up()
    ledgers = list(await found.closed())
    for ledger in ledgers:
        await until_gone(partial(found.owner.broker.client.ledgers.read, ledger.ledger_id), NoSuchLedgerError)
    return ledgers


async def copy(
    found: Served,
    ledger: ListedLedger,
    *,
    marks: Mapping[str, bytes] | None = None,
    password: bytes = b"",
    less: int = 0,
    closes: bool = True,
) -> LedgerId:
    """A ledger with the entries of the file, but for the last ones."""
    assert ledger.offload is not None
    payloads = read_all(ledger.offload.place, ledger.entries, ledger.ledger_id)
    handle = await found.owner.broker.client.create_ledger(
        custom_metadata=marks or made_by_restore_job(str(found.name), ledger.ledger_id, JOB, "0"),
        password=password,
    )
    await handle.append_many(payloads[: len(payloads) - less])
    if closes:
        await handle.close()
    return handle.id


def restored(ledger: ListedLedger, stored_as: LedgerId | None) -> RestoredLedger:
    """What a job says of it."""
    assert ledger.offload is not None
    plan = PlannedLedger(ledger.ledger_id, ledger.entries, ledger.size_bytes)
    return RestoredLedger(plan, ledger.offload.place, ledger.offload.crc, stored_as)


async def ask(found: Served, *ledgers: RestoredLedger) -> tuple[int, str]:
    """The owner's answer."""
    work = partial(broker_topics.commit_restore, found.http, found.name, JOB, ledgers, lag_ms=LAG_MS)
    try:
        await asyncio.to_thread(work)
    except AdminError as error:
        return error.status, str(error)
    return 204, ""


def received(found: Served, subscription: str) -> Any:
    """Work for Pulsar's client: all messages with their ids, from the first one on."""

    def work(client: pulsar.Client) -> list[tuple[bytes, str]]:
        earliest = pulsar.InitialPosition.Earliest
        consumer = client.subscribe(str(found.name), subscription, initial_position=earliest)
        messages = (consumer.receive(int(LIMIT_S * 1000)) for _ in PAYLOADS)
        return [(message.data(), str(message.message_id())) for message in messages]

    return work


async def exists(found: Served, ledger_id: LedgerId) -> bool:
    """Whether there is such a ledger."""
    (read,) = await found.owner.broker.client.ledgers.read_each([ledger_id], sync=True)
    return not isinstance(read, NoSuchLedgerError)


async def test_rule_72_restored_ledgers_are_read_under_their_own_ids_and_their_copies_go_with_them(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        everything = list(zip(PAYLOADS, found.ids, strict=True))
        ledgers = await offloaded(found)
        topic, owner = await found.topic(), found.owner
        assert await with_pulsar(owner.broker, received(found, "from-files")) == everything
        copies = [await copy(found, ledger) for ledger in ledgers]
        asked = [restored(*pair) for pair in zip(ledgers, copies, strict=True)]
        assert await ask(found, *asked) == (204, "")
        assert await ask(found, *asked) == (204, ""), "an answer that was lost is asked for again"
        for ledger in ledgers:
            found.file_of(ledger).unlink()
        assert await with_pulsar(owner.broker, received(found, "from-copies")) == everything
        assert [row.stored_as for row in await found.closed()] == copies
        path = f"{TOPICS}/{found.name.tenant}/{found.name.namespace}/orders"
        internal = (await owner.get(f"{path}/internalStats"))["ledgers"]
        assert [each.get("storedAs") for each in internal] == [*copies, None]
        assert [each["offloaded"] for each in internal] == [False] * 4

        lost = copies.pop(1)
        await owner.broker.client.delete_ledger(lost)
        topic.reads.forget([ledgers[1].ledger_id])
        with pytest.raises(ReadDelayedError, match=f"its copy in ledger {lost} cannot be read now"):
            await topic.reads.read(Position(ledgers[1].ledger_id, 0), 10, 10**6)
        for subscription in ("s", "from-files", "from-copies"):
            await owner.do("POST", f"{path}/subscription/{subscription}/skip_all")
        await asyncio.to_thread(broker_topics.trim, found.http, found.name, ledgers[:1])
        read = owner.broker.client.ledgers.read
        await until_gone(partial(read, copies[0]), NoSuchLedgerError)
        assert await exists(found, copies[1])
        await owner.do("DELETE", f"{path}?force=true")
        await until_gone(partial(read, copies[1]), NoSuchLedgerError)


async def test_rule_72_the_owner_names_only_what_is_a_copy_and_only_in_place_of_the_file_of_the_plan(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        first, second, third = await offloaded(found)

        async def refused(status: int, why: str, stored_as: LedgerId | None, **changes: Any) -> None:
            answer = await ask(found, restored(first, stored_as)._replace(**changes))
            assert (answer[0], why in answer[1]) == (status, True), answer
            assert (await found.closed())[0] == first

        good = await copy(found, first)
        marks = made_by_restore_job(str(found.name), first.ledger_id, JOB, "0")
        await refused(412, "does not exist", 10**9)
        await refused(412, "it is OPEN", await copy(found, first, closes=False))
        await refused(412, "it has 1 entries", await copy(found, first, less=1))
        for key, value in ((RESTORED_KEY, b"0"), (JOB_KEY, b"other"), ("daybook/topic", b"t/n/other")):
            wrong = await copy(found, first, marks={**marks, key: value})
            await refused(412, "its metadata does not say", wrong)
        await refused(412, "it has a password", await copy(found, first, password=b"secret"))
        await refused(409, "is not in the file", good, crc=first.entries)
        await refused(409, "is not in the file", good, place="file:///other")
        await refused(409, "the plan says", good, ledger=PlannedLedger(first.ledger_id, 1, 1))
        await refused(409, "its replicas have gone meanwhile", None)
        await refused(409, "already", second.ledger_id)
        with monkeypatch.context() as patch:
            patch.setattr(committed, "COMMIT_AGE_MS_MAX", -1)
            await refused(412, "it was begun more than", good)
        assert await ask(found, restored(first, good)) == (204, "")
        other = await copy(found, first)
        status, reason = await ask(found, restored(first, other))
        assert (status, "is not in the file" in reason) == (409, True), "another run was first"
        assert await exists(found, good)
        assert [row.has_replicas for row in await found.closed()] == [True, False, False]
        assert list((await found.closed())[1:]) == [second, third]


async def test_a_ledger_within_its_lag_keeps_its_replicas_and_loses_the_mark(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with served(cluster, tmp_path, trim_interval_ms=600_000) as found:
        await found.begin()
        first, *_ = await found.closed()
        assert await found.commit([await found.copy(first)], lag_ms=0) == (204, "")
        marked, *_ = await found.closed()
        assert await ask(found, restored(marked, None)) == (204, "")
        assert await ask(found, restored(marked, None)) == (204, "")
        await (await found.topic()).offloads.give_replicas_up()
        now, *_ = await found.closed()
        assert (now.offload, now.stored_as, now.has_replicas) == (None, None, True)
        assert await exists(found, first.ledger_id)


ROW: dict[str, Any] = {
    "ledgerId": 3,
    "entries": 1,
    "size": 1,
    "place": "file:///cold/x",
    "crc": 7,
    "storedAs": 9,
}


@pytest.mark.parametrize(
    "change",
    [
        {"job": "x"},
        {"fileForMs": None},
        {"fileForMs": -1},
        {"ledgers": None},
        {"ledgers": []},
        {"ledgers": [3]},
        {"ledgers": [ROW | {"storedAs": -1}]},
        {"ledgers": [ROW | {"crc": "7"}]},
        {"ledgers": [ROW | {"place": None}]},
        {"ledgers": [{"ledgerId": 3}]},
        {"ledgers": [ROW, ROW | {"ledgerId": 4}]},
        {"ledgers": [ROW | {"ledgerId": at, "storedAs": None} for at in range(201)]},
    ],
)
async def test_a_request_that_names_no_copies_is_refused(
    cluster: LocalCluster, change: dict[str, Any]
) -> None:
    async with admins(cluster, 1) as (admin,):
        body = {"job": JOB, "fileForMs": 1, "ledgers": [ROW]} | change
        status, reason = await admin.refused("POST", f"{broker_topics.TOPICS_PATH}/t%2Fn%2Fx/restore", body)
        assert (status, "the body is to name" in reason) == (400, True)
