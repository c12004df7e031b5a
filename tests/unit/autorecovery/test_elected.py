"""The auditor as a process: what others may ask of it while it leads."""

import asyncio

from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.report import AuditReport
from daybook.runtime.clock import monotonic_ms
from tests.unit.autorecovery.kit import SETTINGS, FakeCluster, until


async def test_a_full_audit_that_is_asked_for_comes_at_once_and_tells_when_it_began(
    cluster: FakeCluster,
) -> None:
    """A roll of bookies waits for a full audit that began after the last of them came back."""
    ledger_id = await cluster.ledger("b1", "b2", "b3")
    stop = asyncio.Event()
    reports: list[AuditReport] = []

    def note(report: AuditReport) -> None:
        """Quick rounds come in between by the clock."""
        if report.full:
            reports.append(report)

    process = ElectedAuditor(cluster, SETTINGS, name="a", on_report=note)
    assert process.last_clean_full_audit_began_ms is None
    serving = asyncio.ensure_future(process.run(stop))
    await until(lambda: len(reports) == 1)
    first = process.last_clean_full_audit_began_ms
    assert first is not None
    assert reports[0].is_fully_replicated

    asked_ms = monotonic_ms()
    process.request_full_audit()
    await until(lambda: len(reports) == 2)
    second = process.last_clean_full_audit_began_ms
    assert second is not None
    assert first <= asked_ms <= second

    del cluster.fakes["b2"].entries[ledger_id][4]
    process.request_full_audit()
    await until(lambda: len(reports) == 3)
    assert not reports[2].is_fully_replicated
    assert process.last_clean_full_audit_began_ms == second, "one that found a gap proves nothing"
    stop.set()
    await serving


async def test_rule_35_a_term_begins_with_another_try_of_what_was_set_aside(cluster: FakeCluster) -> None:
    """The bookie that a task waits for may have come while nobody led."""
    ledger_id = await cluster.ledger("b1", "b2", "b3", without={"b2": {4}})
    task = await cluster.tasks.mark(ledger_id, reasons=["gap b2"], bookies=["b2"], now_ms=1)
    await cluster.tasks.set_aside(task, until_ms=2**50, why="entry 4 was on no bookie")
    stop = asyncio.Event()
    reports: list[AuditReport] = []
    process = ElectedAuditor(cluster, SETTINGS, name="a", on_report=reports.append)
    serving = asyncio.ensure_future(process.run(stop))
    await until(lambda: bool(reports))
    stop.set()
    await serving
    free = await cluster.tasks.read(ledger_id)
    assert free is not None
    assert free.value == task.value.set_aside(until_ms=2**50, why="entry 4 was on no bookie").set_free()
