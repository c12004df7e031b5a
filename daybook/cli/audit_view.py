"""What people and scripts see of audits and repairs: tables, JSON, a bar; results on standard output, the rest on error."""

import contextlib
import json
from collections.abc import AsyncIterable, Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from daybook.autorecovery.pool import WorkProgress, WorkReport
from daybook.autorecovery.report import AuditReport
from daybook.cli.listing import print_json_array, print_tables
from daybook.cli.output import err, out
from daybook.core.ids import LedgerId
from daybook.core.repair.task import RepairTask


async def print_tasks(
    tasks: AsyncIterable[RepairTask], locked: AbstractSet[LedgerId], *, as_json: bool
) -> None:
    """The marked ledgers as they come, and whether each is under repair."""
    if as_json:
        await print_json_array(
            _task_record(task, under_repair=task.ledger_id in locked) async for task in tasks
        )
    else:
        titles = ("ledger", "reasons", "under repair", "failed", "why not")
        await print_tables(
            titles, (_task_row(task, under_repair=task.ledger_id in locked) async for task in tasks)
        )


def _task_record(task: RepairTask, *, under_repair: bool) -> dict[str, Any]:
    return {
        "ledger_id": task.ledger_id,
        "reasons": task.reasons,
        "bookies": task.bookies,
        "since_ms": task.since_ms,
        "attempts": task.attempts,
        "not_before_ms": task.not_before_ms,
        "why_not": task.why_not,
        "under_repair": under_repair,
    }


def _task_row(task: RepairTask, *, under_repair: bool) -> tuple[str, ...]:
    reasons = ", ".join(task.reasons)
    return str(task.ledger_id), reasons, "yes" if under_repair else "", str(task.attempts or ""), task.why_not


def print_report(report: AuditReport, *, as_json: bool) -> None:
    """What a cycle found; what is blocked goes to standard error."""
    if as_json:
        out.print_json(json.dumps(report.record()))
        return
    table = Table(show_header=False, title="audit")
    verdict = "yes" if report.is_fully_replicated else ("no" if report.full else "not checked (--quick)")
    table.add_row("fully replicated", verdict)
    table.add_row("ledgers", f"{report.found.ledgers:,}")
    table.add_row("under-replicated", f"{len(report.found.under_replicated):,}")
    for reason, ledgers in report.found.by_reason.items():
        table.add_row(f"  {reason}", f"{len(ledgers):,}: {_some(ledgers)}")
    rows: dict[str, Any] = {
        "lost bookies": report.lost_bookies,
        "missing bookies": report.missing_bookies,
        "silent bookies": tuple(report.silent_bookies),
        "unrecoverable": report.found.unrecoverable,
        "could not be read": report.found.unread,
    }
    for name, values in rows.items():
        if values:
            table.add_row(name, _some(values))
    out.print(table)
    for why in report.found.blocked:
        err.print(f"[yellow]blocked:[/] {why}", soft_wrap=True)


def _some(values: tuple[object, ...]) -> str:
    shown = ", ".join(map(str, values[:10]))
    return f"{shown}, …" if len(values) > 10 else shown


def print_work(report: WorkReport, *, as_json: bool) -> None:
    """The summary of a worker on standard output, what is not done on standard error."""
    if as_json:
        out.print_json(json.dumps(report.record()))
    else:
        done = sum(result.is_done for result in report.results.values())
        copied = sum(result.copied_entries for result in report.results.values())
        out.print(f"{done:,} of {len(report.results):,} ledgers are repaired, {copied:,} entries were copied")
    for result in report.not_done:
        text = f"ledger {result.ledger_id}: {result.outcome.value}: {result.why}"
        err.print(text, style="red", markup=False, soft_wrap=True)
    if report.disabled:
        err.print("repair is switched off for this cluster: marked ledgers are left as they are", style="red")


@contextlib.contextmanager
def progress_bar(what: str = "repairing") -> Iterator[Callable[[WorkProgress], None]]:
    """A bar on standard error for a worker's progress."""
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed} of {task.total} ledgers, {task.fields[copied]} copied"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(what, total=None, copied="0 MB")

        def show(progress: WorkProgress) -> None:
            copied = f"{progress.copied_bytes / 1e6:,.1f} MB"
            bar.update(task, total=progress.total, completed=progress.done + progress.failed, copied=copied)

        yield show
