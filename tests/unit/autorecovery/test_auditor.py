"""The auditor's rounds: what is asked of whom, which tasks come and go, and when it stops acting."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from daybook.autorecovery.cluster import LeaseLostError, is_set_within
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.worker import RepairWorker
from daybook.core.ids import LedgerId
from daybook.metadata.store.memory import Fault, FaultKind
from daybook.wire import bookie_pb2 as pb
from tests.unit.autorecovery.kit import LAYOUT, SETTINGS, FakeCluster, until


def audits(cluster: FakeCluster, *, delay_s: float | None = None, **changes: Any) -> AuditCycles:
    return AuditCycles(cluster, SETTINGS.model_copy(update=changes), lost_delay_s=delay_s)


async def once(cluster: FakeCluster, *, full: bool = True, **changes: Any) -> AuditReport:
    return await audits(cluster, delay_s=0, **changes).once(asyncio.Event(), full=full)


async def reasons(cluster: FakeCluster, ledger_id: LedgerId) -> tuple[str, ...] | None:
    task = await cluster.tasks.read(ledger_id)
    return task.value.reasons if task else None


def calls(cluster: FakeCluster, name: str) -> int:
    return sum(fake.asked.count(name) for fake in cluster.fakes.values())


async def test_a_sound_cluster_is_fully_replicated_and_has_no_tasks(cluster: FakeCluster) -> None:
    for _ in range(3):
        await cluster.ledger("b1", "b2", "b3")
    report = await once(cluster)
    assert report.is_fully_replicated
    assert (report.found.ledgers, report.found.under_replicated, report.found.by_reason) == (3, (), {})
    assert await cluster.task_ids() == []


async def test_every_ledger_of_a_lost_bookie_is_marked_in_one_cycle(cluster: FakeCluster) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3") for _ in range(20)]
    spared = await cluster.ledger("b2", "b3", "b4")
    await cluster.unregister("b1")
    report = await once(cluster, full=False)
    assert report.found.under_replicated == tuple(ids)
    assert report.found.by_reason == {"lost": tuple(ids)}
    assert report.lost_bookies == ("b1",)
    assert report.found.tasks_marked == len(ids)
    assert not report.is_fully_replicated
    assert await cluster.task_ids() == ids
    assert {await reasons(cluster, ledger_id) for ledger_id in ids} == {("lost b1",)}
    assert await reasons(cluster, spared) is None


async def test_a_bookie_that_is_lost_in_the_middle_of_a_cycle_is_lost_for_every_ledger(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3") for _ in range(20)]
    looking, read = audits(cluster, delay_s=0, reads_in_flight_max=1), cluster.ledgers.read

    async def noted(ledger_id: LedgerId) -> Any:
        if ledger_id == ids[10] and "b1" in cluster.bookies():
            await cluster.unregister("b1")
            await until(lambda: looking.news.is_set())
        return await read(ledger_id)

    cluster.ledgers.read = noted  # type: ignore[method-assign,assignment]  # something happens meanwhile
    assert (await looking.once(asyncio.Event(), full=False)).found.under_replicated == tuple(ids)


async def test_a_bookie_that_died_before_the_auditor_began_is_known_by_its_cookie(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    report = await audits(cluster, delay_s=0.05).once(asyncio.Event(), full=False)
    assert report.lost_bookies == ("b1",)
    assert await reasons(cluster, ledger_id) == ("lost b1",)


async def test_nobody_waits_for_a_bookie_that_was_decommissioned(cluster: FakeCluster) -> None:
    auditing = audits(cluster)
    await cluster.unregister("b1")
    assert (await auditing.cycle(full=True)).missing_bookies == ("b1",)
    cookie = await cluster.directory.cookie("b1")
    assert cookie is not None
    await cluster.directory.delete_cookie("b1", cookie.version)
    assert (await auditing.cycle(full=True)).missing_bookies == ()
    assert auditing.next_check_ms() is None


async def test_rule_33_within_the_delay_nothing_is_marked(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    auditing = audits(cluster)
    report = await auditing.cycle(full=True)
    assert (report.lost_bookies, report.missing_bookies) == ((), ("b1",))
    assert report.found.by_reason == {"missing": (0,)}
    assert await cluster.task_ids() == []
    await cluster.register("b1")
    report = await auditing.cycle(full=True)
    assert report.is_fully_replicated
    assert report.missing_bookies == ()


async def test_rule_33_a_bookie_that_returns_during_a_cycle_is_not_lost_for_the_rest_of_it(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3") for _ in range(30)]
    await cluster.unregister("b1")
    judged = asyncio.Event()
    auditing = AuditCycles(
        cluster,
        SETTINGS.model_copy(update={"reads_in_flight_max": 1}),
        lost_delay_s=0,
        on_progress=lambda done, _: judged.set() if done == 3 else None,
    )
    going = asyncio.ensure_future(auditing.cycle(full=False))
    await judged.wait()
    await cluster.register("b1")
    await going
    assert 3 <= len(await cluster.task_ids()) < len(ids)


async def test_rule_33_while_repair_is_switched_off_nothing_is_lost_and_nothing_is_marked(
    cluster: FakeCluster,
) -> None:
    await cluster.ledger("b1", "b2", "b3", without={"b2": {1}})
    await cluster.unregister("b1")
    await cluster.tasks.set_disabled(True)
    report = await once(cluster)
    assert report.disabled
    assert report.lost_bookies == ()
    assert await cluster.task_ids() == []


async def test_tasks_go_when_their_reason_does(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    deleted = await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    await once(cluster)
    assert await reasons(cluster, ledger_id) == ("gap b2", "lost b1")
    await cluster.register("b1")
    found = await cluster.ledgers.read(deleted)
    await cluster.ledgers.delete(deleted, found.version)
    report = await once(cluster)
    assert await reasons(cluster, ledger_id) == ("gap b2",), "a worker must not take b1 for lost later"
    assert await reasons(cluster, deleted) is None
    assert report.found.tasks_removed == 2
    cluster.fakes["b2"].entries[ledger_id][4] = cluster.fakes["b1"].entries[ledger_id][4]
    assert (await once(cluster, full=False)).found.tasks_removed == 1
    assert await cluster.task_ids() == []


async def test_rule_47_a_missing_entry_in_the_middle_is_found_by_a_quick_cycle_once_and_by_every_full_one(
    cluster: FakeCluster,
) -> None:
    gap = await cluster.ledger("b1", "b2", "b3", entries=100, without={"b2": {50}})
    sound = await cluster.ledger("b1", "b2", "b3", entries=100)
    auditing = audits(cluster)
    report = await auditing.cycle(full=False)
    assert await reasons(cluster, gap) == ("gap b2",)
    assert report.found.by_reason == {"gap": (gap,)}
    before = calls(cluster, "entry_intervals")
    await auditing.cycle(full=False)
    per_page = (calls(cluster, "entry_intervals") - before) / 3
    assert per_page == 1, "only the ledger with a task is compared again"
    del cluster.fakes["b3"].entries[sound][70]
    await auditing.cycle(full=False)
    assert await reasons(cluster, sound) is None, "what was whole is left to the next full round"
    await auditing.cycle(full=True)
    assert await reasons(cluster, sound) == ("gap b3",)


async def test_a_quick_audit_asks_metadata_and_no_bookie_for_its_entries(cluster: FakeCluster) -> None:
    """A hundred thousand ledgers would be three hundred thousand questions."""
    for _ in range(5):
        await cluster.ledger("b1", "b2", "b3", entries=100)
    marked = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    await once(cluster, full=False)
    assert calls(cluster, "entry_intervals") == 0
    assert (await once(cluster)).found.by_reason == {"gap": (marked,)}
    before = calls(cluster, "entry_intervals")
    assert (await once(cluster, full=False)).found.under_replicated == (marked,)
    assert calls(cluster, "entry_intervals") == before + 3, "a task is about something: it is looked at"


async def test_rule_29_limbo_is_found_by_a_quick_cycle(cluster: FakeCluster) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3") for _ in range(5)]
    for ledger_id in ids:
        cluster.fakes["b1"].machine.mark_limbo(ledger_id, "aa")
    report = await once(cluster, full=False)
    assert report.found.by_reason == {"limbo": tuple(ids)}
    assert await cluster.task_ids() == ids


async def test_a_bookie_that_does_not_tell_is_asked_once_and_proves_nothing(cluster: FakeCluster) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3") for _ in range(10)]
    cluster.fakes["b1"].down = True
    report = await once(cluster)
    assert not report.is_fully_replicated
    assert report.found.by_reason == {"unlisted": tuple(ids)}
    assert list(report.silent_bookies) == ["b1"]
    assert len(cluster.fakes["b1"].asked) == 1
    assert await cluster.task_ids() == [], "silence is no reason to copy"


@pytest.mark.parametrize(
    "interval",
    [
        pb.EntryInterval(first_entry=0, last_entry=9),
        pb.EntryInterval(first_entry=5, last_entry=4, stripe_period=1, stripe_mask=1),
        pb.EntryInterval(first_entry=-1, last_entry=9, stripe_period=1, stripe_mask=1),
        pb.EntryInterval(first_entry=0, last_entry=9, stripe_period=65, stripe_mask=1),
        pb.EntryInterval(first_entry=0, last_entry=9, stripe_period=2, stripe_mask=4),
    ],
)
async def test_a_listing_that_cannot_be_proves_nothing_and_ends_no_cycle(
    cluster: FakeCluster, interval: pb.EntryInterval
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    cluster.fakes["b1"].lies = [interval]
    report = await once(cluster)
    assert report.found.by_reason == {"unlisted": (ledger_id,)}
    assert "cannot be" in report.silent_bookies["b1"]


async def test_rule_36_a_ledger_in_one_rack_is_marked_and_spread_once_another_rack_is_there(
    cluster: FakeCluster,
) -> None:
    cluster.racks = dict.fromkeys(("b1", "b2", "b3"), "a") | dict.fromkeys(("b4", "b5"), "b")
    await cluster.unregister("b1", "b2", "b3", "b4", "b5")
    await cluster.register("b1", "b2", "b3")
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await once(cluster, full=False)
    assert await cluster.task_ids() == []
    await cluster.register("b4", "b5")
    report = await once(cluster)
    assert report.found.by_reason == {"misplaced": (ledger_id,)}
    assert report.is_fully_replicated, "every copy is there"
    assert (await RepairWorker(cluster, SETTINGS, name="w").drain()).is_complete
    bookies = (await cluster.ledgers.read(ledger_id)).value.bookies()
    assert {cluster.racks[bookie] for bookie in bookies} == {"a", "b"}
    assert await cluster.is_whole(ledger_id)


async def test_rule_31_an_open_ledger_in_need_is_marked_for_recovery_after_its_grace_period(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", closed=False)
    await cluster.unregister("b1")
    patient = audits(cluster, delay_s=0, open_grace_ms=3_600_000)
    await patient.cycle(full=False)
    report = await patient.cycle(full=False)
    assert report.found.waiting == (ledger_id,)
    assert await cluster.task_ids() == []
    hasty = audits(cluster, delay_s=0)
    await hasty.cycle(full=False)
    await hasty.cycle(full=False)
    assert await reasons(cluster, ledger_id) == ("lost b1", "recover")


@pytest.mark.parametrize("cluster", [3], indirect=True)
async def test_rule_31_without_a_replacement_an_open_ledger_is_not_marked(cluster: FakeCluster) -> None:
    await cluster.ledger("b1", "b2", "b3", closed=False)
    await cluster.unregister("b1")
    report = await once(cluster)
    assert report.found.waiting == ()
    assert not report.is_fully_replicated
    assert await cluster.task_ids() == []


async def test_rule_34_an_auditor_that_may_have_lost_the_leadership_marks_nothing(
    cluster: FakeCluster,
) -> None:
    await cluster.ledger("b1", "b2", "b3")
    await cluster.unregister("b1")
    deposed = AuditCycles(cluster, SETTINGS, lost_delay_s=0, may_act=lambda: False)
    with pytest.raises(LeaseLostError):
        await deposed.cycle(full=False)
    assert await cluster.task_ids() == []


async def test_rule_34_an_auditor_that_lost_the_leadership_since_it_marked_sets_nothing_free(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    task = await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=1)
    await cluster.tasks.set_aside(task, until_ms=2**50, why="entry 4 was on no bookie")
    aside = await cluster.tasks.read(ledger_id)
    leads = iter((True, False))
    auditing = AuditCycles(cluster, SETTINGS, lost_delay_s=0, may_act=lambda: next(leads))
    auditing.begin_term()
    with pytest.raises(LeaseLostError):
        await auditing.cycle(full=False)
    assert await cluster.tasks.read(ledger_id) == aside


async def test_rule_37_reads_are_paced_and_few_at_a_time(cluster: FakeCluster) -> None:
    for _ in range(60):
        await cluster.ledger("b1", "b2", "b3")
    cluster.server.in_flight_max = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    await once(cluster, full=False, reads_per_second=100, reads_in_flight_max=4)
    assert cluster.server.in_flight_max <= 4
    assert loop.time() - began > 0.2, (
        "60 ledgers at 100 a second, of which a quarter second's worth may go at once"
    )


async def test_rule_28_a_listing_that_fails_ends_the_cycle_and_nothing_is_removed(
    cluster: FakeCluster,
) -> None:
    ids = [await cluster.ledger("b1", "b2", "b3", without={"b2": {4}}) for _ in range(3)]
    await once(cluster)
    marked = await cluster.task_ids()
    assert marked == ids
    cluster.server.inject(Fault(FaultKind.REFUSE, "children", LAYOUT.ledgers, times=1))
    report = await once(cluster)
    assert report.found.ledgers == 3, "a lost answer is asked for again"
    assert await cluster.task_ids() == ids


async def test_a_bookie_that_comes_makes_ledgers_that_were_set_aside_due_again(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    auditing = audits(cluster)
    await auditing.cycle(full=False)
    task = await cluster.tasks.read(ledger_id)
    assert task is not None
    await cluster.tasks.set_aside(task, until_ms=2**50, why="unrecoverable: nowhere")
    report = await auditing.cycle(full=False)
    assert report.found.unrecoverable == (ledger_id,)
    aside = await cluster.tasks.read(ledger_id)
    assert aside is not None
    assert aside.value.not_before_ms == 2**50
    await cluster.unregister("b5")
    await auditing.cycle(full=False)
    await cluster.register("b5")
    await auditing.cycle(full=False)
    free = await cluster.tasks.read(ledger_id)
    assert free is not None
    assert free.value.not_before_ms == 0


async def test_one_auditor_of_two_leads_and_the_other_takes_over(cluster: FakeCluster) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    stop = asyncio.Event()
    reports: list[tuple[str, AuditReport]] = []

    def noting(name: str) -> Callable[[AuditReport], None]:
        return lambda report: reports.append((name, report))

    with cluster.another() as other:
        await other.refresh()
        processes = {
            name: ElectedAuditor(where, SETTINGS, name=name, on_report=noting(name))
            for name, where in (("one", cluster), ("two", other))
        }
        one = asyncio.ensure_future(processes["one"].run(stop))
        await until(lambda: processes["one"].is_leader)
        two = asyncio.ensure_future(processes["two"].run(stop))
        await until(lambda: bool(reports))
        assert not processes["two"].is_leader
        assert {name for name, _ in reports} == {"one"}
        assert await reasons(cluster, ledger_id) == ("gap b2",)
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        await until(lambda: any(name == "two" for name, _ in reports))
        stop.set()
        await two


async def test_an_auditor_whose_session_outlives_an_outage_leads_again(cluster: FakeCluster) -> None:
    """It could not leave the election while the store was away, and must not wait for itself."""
    stop = asyncio.Event()
    with cluster.another(session_timeout_s=0.1, operation_timeout_s=0.1) as other:
        await other.refresh()
        process = ElectedAuditor(other, SETTINGS, name="a")
        serving = asyncio.ensure_future(process.run(stop))
        await until(lambda: process.is_leader)
        session_id = other.store.session.session_id
        cluster.server.suspend()
        await until(lambda: not process.is_leader)
        assert not await is_set_within(stop, 300), "long enough for the release to fail"
        cluster.server.resume()
        await until(lambda: process.is_leader)
        assert other.store.session.session_id == session_id
        stop.set()
        await serving


async def test_a_lost_bookie_is_acted_on_when_its_delay_is_over_without_waiting_for_the_interval(
    cluster: FakeCluster,
) -> None:
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    await cluster.tasks.set_lost_bookie_delay_s(0.1)
    settings = SETTINGS.model_copy(
        update={"audit_interval_ms": 3_600_000, "full_audit_interval_ms": 3_600_000}
    )
    stop, reports = asyncio.Event(), list[AuditReport]()
    process = ElectedAuditor(cluster, settings, name="a", on_report=reports.append)
    serving = asyncio.ensure_future(process.run(stop))
    await until(lambda: bool(reports))
    await cluster.unregister("b1")
    await until(lambda: len(reports) == 2)
    assert await reasons(cluster, ledger_id) == ("lost b1",)
    stop.set()
    await serving
