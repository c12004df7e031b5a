"""The judgement of a compaction that a job planned and wrote: the owner names it in the list, and nobody else (rule 38, rule 41).

A job plans on a list that it read some time ago. Meanwhile a busy topic has begun other ledgers, and has closed the one that the job read a part
of; neither is a reason to refuse. A plan is outdated if the list names another compaction than the one that the job began with, or if one of
the ledgers that it read has changed or is gone: then the topic may even be another one of the same name.
"""

from typing import Any, NamedTuple

from daybook.core.errors import MetadataError, PlanOutdatedError
from daybook.core.ids import LedgerId, check_integer, check_ledger_id
from daybook.core.topics.ledger_list import (
    NO_POSITION,
    Compaction,
    LedgerList,
    ListedLedger,
    Position,
    compaction_of,
    compaction_record,
)
from daybook.core.topics.trim_plan import PlannedLedger


class FormerCompaction(NamedTuple):
    """The compaction that a job began with, as it names it: what the job wrote takes its place, and nothing else's."""

    horizon: Position
    ledger_ids: tuple[LedgerId, ...]


class CompactionCommit(NamedTuple):
    """What a job asks the owner to name."""

    job: str
    """In the custom metadata of the ledgers that the job wrote."""
    former: FormerCompaction | None
    planned: tuple[PlannedLedger, ...]
    """The topic's own ledgers with entries behind the former horizon, up to the new one: that one is in the last of them, of which only that matters."""
    written: Compaction

    @property
    def start(self) -> Position:
        """The job has read the topic's own entries behind this one."""
        return NO_POSITION if self.former is None else self.former.horizon

    def record(self) -> dict[str, Any]:
        """For JSON: the body of the request."""
        former = self.former
        return {
            "job": self.job,
            "former": former and {"horizon": str(former.horizon), "ledgers": list(former.ledger_ids)},
            "planned": [
                {"ledgerId": plan.ledger_id, "entries": plan.entries, "size": plan.size_bytes}
                for plan in self.planned
            ],
            "compaction": compaction_record(self.written),
        }

    @classmethod
    def of(cls, record: dict[str, Any]) -> "CompactionCommit":
        """The inverse of `record`. Raises MetadataError for anything else."""
        try:
            former = record["former"]
            written = compaction_of(record["compaction"])
            if written is None or not isinstance(record["job"], str) or not record["job"]:
                raise ValueError("a commit has a job and a compaction")
            return cls(
                record["job"],
                former
                and FormerCompaction(
                    Position.parse(former["horizon"]),
                    tuple(check_ledger_id(check_integer(each)) for each in former["ledgers"]),
                ),
                tuple(
                    PlannedLedger(
                        check_ledger_id(check_integer(each["ledgerId"])),
                        check_integer(each["entries"]),
                        check_integer(each["size"]),
                    )
                    for each in record["planned"]
                ),
                written,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f"this is no commit of a compaction ({type(error).__name__}: {str(error)[:200]})"
            raise MetadataError(msg) from error


def former_of(compaction: Compaction | None) -> FormerCompaction | None:
    """How a job names a compaction."""
    if compaction is None:
        return None
    return FormerCompaction(compaction.horizon, tuple(ledger.ledger_id for ledger in compaction.ledgers))


def planned_ledgers(ledger_list: LedgerList, start: Position, horizon: Position) -> list[ListedLedger]:
    """The topic's own ledgers that a compaction from behind `start` to `horizon` reads. A ledger that may be open counts as one with entries."""
    return [
        ledger
        for ledger in ledger_list.ledgers
        if ledger.ledger_id <= horizon.ledger_id
        and (ledger.is_open or (ledger.entries and ledger.last_position > start))
    ]


def is_committed(ledger_list: LedgerList, commit: CompactionCommit) -> bool:
    """Whether the list names it already: an owner has carried the same request out, and its answer was lost."""
    return former_of(ledger_list.compaction) == former_of(commit.written)


def check_commit(ledger_list: LedgerList, last_confirmed: Position, commit: CompactionCommit) -> None:
    """Raise PlanOutdatedError unless the list is, of what the job planned on, as it was. `last_confirmed`: the topic's last acknowledged entry."""
    horizon, former = commit.written.horizon, former_of(ledger_list.compaction)
    if former != commit.former:
        now = "is not compacted" if former is None else f"is compacted up to {former.horizon}"
        then = "from its beginning on" if commit.former is None else f"from {commit.former.horizon} on"
        _refuse(f"the topic {now}, by other ledgers than when the job began, which compacted it {then}")
    if not commit.start < horizon <= last_confirmed:
        _refuse(
            f"the job compacted the topic from {commit.start} to {horizon}, and it ends at {last_confirmed}"
        )
    listed = {ledger.ledger_id: ledger for ledger in planned_ledgers(ledger_list, commit.start, horizon)}
    planned = {plan.ledger_id: plan for plan in commit.planned}
    if listed.keys() != planned.keys():
        differing = sorted(listed.keys() ^ planned.keys())
        _refuse(f"the plan and the topic's list differ by the ledgers {differing}")
    for ledger_id, ledger in listed.items():
        plan = planned[ledger_id]
        if ledger_id == horizon.ledger_id:
            is_same = ledger.is_open or ledger.entries > horizon.entry_id
        else:
            is_same = (ledger.entries, ledger.size_bytes) == (plan.entries, plan.size_bytes)
        if not is_same:
            _refuse(
                f"ledger {ledger_id} has {ledger.entries} entries and {ledger.size_bytes} bytes, and the plan says "
                f"{plan.entries} and {plan.size_bytes}, with the horizon {horizon}"
            )


def _refuse(why: str) -> None:
    msg = f"{why}: read the topic's list and plan again"
    raise PlanOutdatedError(msg)
