"""The last words of an audit: what it read, and in one sentence what is wrong with it; ledgers are named in its output."""

from collections.abc import Iterator
from dataclasses import asdict

from daybook.autorecovery.report import AuditReport
from daybook_spark.audit.job import AuditSummary
from daybook_spark.jobs.result import last_message

_FAULTS = ("missing", "damaged", "differing", "unread")


def audit_message(summary: AuditSummary, report: AuditReport) -> str:
    """The termination message; it has an `error` unless every copy is there, intact and in its place."""
    copies = asdict(summary.copies)
    error = "; ".join([*_of_copies(summary, copies), *_of_ledgers(report)])
    return last_message("audit", error, {"ledgers": summary.ledgers, "copies": copies})


def _of_copies(summary: AuditSummary, copies: dict[str, int]) -> Iterator[str]:
    if summary.is_whole:
        return
    counts = ", ".join(f"{copies[name]:,} {name}" for name in _FAULTS if copies[name])
    first = summary.faulty[0]
    why = first["faults"] or first["error"]
    yield (
        f"of {copies['owed']:,} copies that bookies owe: {counts}, the first in ledger {first['ledger_id']} on {first['bookie']} ({why})"
    )


def _of_ledgers(report: AuditReport) -> Iterator[str]:
    if report.is_fully_replicated:
        return
    found = report.found
    reasons = [f"{name}: {len(ledgers):,} ledgers" for name, ledgers in found.by_reason.items() if ledgers]
    if found.unread:
        reasons.append(f"not judged: {len(found.unread):,} ledgers")
    yield f"not every entry has all its replicas ({', '.join(reasons) or 'its log says which'})"
