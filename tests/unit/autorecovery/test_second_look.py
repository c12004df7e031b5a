"""Open ledgers: what is on its way to a bookie is no gap, what stays away is one, and what a lost disk held comes back."""

import asyncio

import pytest

from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.worker import RepairWorker
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerState
from daybook.core.repair.work import Outcome
from tests.unit.autorecovery.kit import SETTINGS, FakeCluster, payload

LATE = 9
"""The entry that one bookie gets later than the others."""


async def full_round(cluster: FakeCluster, *, second_look_ms: int = 1) -> AuditReport:
    settings = SETTINGS.model_copy(update={"second_look_ms": second_look_ms})
    return await AuditCycles(cluster, settings, lost_delay_s=0).once(asyncio.Event(), full=True)


def arrives(cluster: FakeCluster, ledger_id: LedgerId, at_listing: int) -> None:
    """The writer goes on: b3 gets the late entry, and all confirm one more, before b1 is asked for the nth time."""
    asked = 0

    def before(call: str) -> None:
        nonlocal asked
        asked += call == "entry_intervals"
        if asked == at_listing and call == "entry_intervals":
            cluster.fakes["b3"].entries[ledger_id][LATE] = payload(LATE)
            for name in ("b1", "b2"):
                cluster.fakes[name].entries[ledger_id][LATE + 1] = payload(LATE + 1)
                cluster.fakes[name].confirm(ledger_id, LATE + 1)

    cluster.fakes["b1"].before_answer = before


@pytest.mark.parametrize(("at_listing", "full"), [(2, True), (3, False)])
@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_rule_45_a_full_audit_beside_a_writer_counts_what_is_missing_in_two_listings(
    cluster: FakeCluster, at_listing: int, full: bool
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False, without={"b3": {LATE}})
    arrives(cluster, ledger_id, at_listing)
    report = await full_round(cluster)
    assert report.is_fully_replicated is full
    assert report.found.by_reason == ({} if full else {"open-gap": (ledger_id,)})
    assert await cluster.task_ids() == [], "what an open fragment lacks is its writer's to give"


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_who_lacks_nothing_is_asked_once(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3", closed=False)
    report = await full_round(cluster, second_look_ms=3_600_000)
    assert report.is_fully_replicated
    assert [fake.asked.count("entry_intervals") for fake in cluster.fakes.values()] == [1, 1, 1]


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_rule_29_an_open_ledger_without_a_writer_gets_back_what_a_replaced_disk_held_in_its_own_place(
    cluster: FakeCluster,
) -> None:
    """Three bookies for three replicas: there is nobody else, and nobody else is needed."""
    written = await cluster.ledger("b1", "b2", "b3", closed=False, without={"b2": {LATE}})
    empty = await cluster.ledger("b1", "b2", "b3", closed=False, entries=0)
    lost = cluster.fakes["b3"]
    lost.wipe()
    for ledger_id, nonce in ((written, "aa"), (empty, "bb")):
        lost.machine.mark_limbo(ledger_id, nonce)
    before = await full_round(cluster)
    assert not before.is_fully_replicated
    assert before.found.blocked == ()
    assert await cluster.task_ids() == [written, empty]
    report = await RepairWorker(cluster, SETTINGS, name="w").drain()
    assert {result.outcome for result in report.results.values()} == {Outcome.REPAIRED}
    for ledger_id, last in ((written, LATE), (empty, -1)):
        metadata = (await cluster.ledgers.read(ledger_id)).value
        assert metadata.state is LedgerState.CLOSED
        assert metadata.last_entry == last, "what b1 alone still has may have been acknowledged with b3"
        assert metadata.last_fragment.bookies == ("b1", "b2", "b3")
        assert await cluster.is_whole(ledger_id)
    assert lost.limbo == {}
    assert (await full_round(cluster)).is_fully_replicated
    assert await cluster.task_ids() == []
