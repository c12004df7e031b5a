"""The judgement of a trim that a job planned: its request names the ledgers that the plan is about, and only the owner changes the list.

A job plans on a list that it read some time ago. Meanwhile a busy topic has begun other ledgers, which is no reason to refuse: a plan is
outdated only if one of the ledgers that it names has changed. The owner trims as it does by itself (rule 51), no ledger beyond the plan, and
says what keeps a ledger that it refuses to drop.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from daybook.core.errors import LedgersNeededError, PlanOutdatedError
from daybook.core.ids import LedgerId
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, Position
from daybook.core.topics.trimming import Retention, trimmed


class PlannedLedger(NamedTuple):
    """A closed ledger as the plan knows it."""

    ledger_id: LedgerId
    entries: int
    size_bytes: int


def check_plan(
    ledger_list: LedgerList,
    planned: Collection[PlannedLedger],
    marks: Mapping[str, Position],
    retention: Retention,
    unix_ms: int,
) -> Position:
    """The last position that the plan drops: a trim with this as a further mark drops the planned ledgers and no others.

    `marks` are the persisted positions of subscriptions, by name. Raises PlanOutdatedError if a named ledger is another now, and
    LedgersNeededError if one of them stays.
    """
    listed = {ledger.ledger_id: ledger for ledger in ledger_list.ledgers}
    for plan in planned:
        check_unchanged(plan, listed.get(plan.ledger_id))
    ids = {plan.ledger_id for plan in planned}
    front = ledger_list.ledgers[: len(ids)]
    for ledger in front:
        if ledger.ledger_id not in ids:
            msg = f"ledger {ledger.ledger_id} comes before ledger {max(ids)}, and a topic loses its first ledgers first: name it, too"
            raise LedgersNeededError(msg)
    end = front[-1].last_position
    count = trimmed(ledger_list, (*marks.values(), end), retention, unix_ms)
    if count < len(front):
        raise LedgersNeededError(_why_kept(front[count], ledger_list, marks, retention))
    return end


def check_unchanged(plan: PlannedLedger, found: ListedLedger | None) -> None:
    """Raise PlanOutdatedError unless `found`, which the list has, is what the plan knows; LedgersNeededError if it is open."""
    if found is None:
        msg = f"the topic has no ledger {plan.ledger_id} any more, or never had: read its list and plan again"
        raise PlanOutdatedError(msg)
    if found.is_open:
        msg = f"ledger {plan.ledger_id} is being written: leave it out"
        raise LedgersNeededError(msg)
    if (found.entries, found.size_bytes) != (plan.entries, plan.size_bytes):
        msg = (
            f"ledger {plan.ledger_id} has {found.entries} entries and {found.size_bytes} bytes, and the plan says "
            f"{plan.entries} and {plan.size_bytes}: read the topic's list and plan again"
        )
        raise PlanOutdatedError(msg)


def _why_kept(
    ledger: ListedLedger, ledger_list: LedgerList, marks: Mapping[str, Position], retention: Retention
) -> str:
    for name, mark in sorted(marks.items()):
        if mark < ledger.last_position:
            return (
                f"subscription {name!r} has acknowledged up to {mark} and needs ledger {ledger.ledger_id}, which ends at "
                f"{ledger.last_position}: consume or skip its backlog, or delete the subscription"
            )
    compaction = ledger_list.compaction
    if compaction is not None and compaction.horizon < ledger.last_position:
        return (
            f"the topic is compacted up to {compaction.horizon}, and ledger {ledger.ledger_id} ends at {ledger.last_position}: "
            "compact the topic first"
        )
    later = sum(each.size_bytes for each in ledger_list.ledgers if each.ledger_id >= ledger.ledger_id)
    limits = [
        *([] if retention.time_ms is None else [f"messages of {retention.time_ms} ms"]),
        *([] if retention.size_bytes is None else [f"{retention.size_bytes} bytes"]),
    ]
    kept = " and ".join(limits) or "everything"
    return (
        f"the topic's retention keeps {kept}, and so ledger {ledger.ledger_id}, with which the topic has {later} bytes: "
        "wait, or change the retention"
    )
