"""One topic's part of a retention: the owner drops what is past the retention, and what nothing names is deleted (rule 71).

daybook/core/topics/retention_plan.py decides. Each step can be repeated: a trim names ledgers that only one trim drops, and a deletion of a
ledger that is gone does nothing. So a job that is killed between any two steps is run again, and what it did already is not there to be done.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from daybook.client import broker_topics
from daybook.client.broker_admin import AdminError, BrokerAdmin
from daybook.client.client import Client
from daybook.client.left_behind import delete_unnamed, named_by
from daybook.client.topic_reports import TopicReport
from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.retention_plan import GRACE_MS, MarkedLedger, TrimPlan, plan_trim, plan_with
from daybook.core.topics.trimming import Retention
from daybook.core.topics.unnamed import NamedLedgers
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms
from daybook_spark.jobs.result import DELETED_MEANWHILE, Done

PLANS_MAX: Final = 3
"""How often a trim is planned while the topic's first ledgers change; its owner trims by itself, too."""


@dataclass(frozen=True, slots=True)
class RetentionTerms:
    """How a retention is run."""

    grace_ms: int = GRACE_MS
    """The age from which a ledger that nothing names goes; those of jobs have GRACE_MS at least."""
    topics_per_second: float = 20.0
    """Of all tasks together; 0: no limit."""
    is_dry_run: bool = False
    places: tuple[str, ...] = ()
    """Where files of deleted topics may be, beside the places that topics' lists name."""


@dataclass(frozen=True, slots=True)
class TopicWork:
    """A topic, and the ledgers that were made for it and are old enough to be judged; read before the topic is."""

    name: TopicName
    is_taken: bool
    """Whether its retention is applied; False for a topic of which only ledgers are left."""
    marked: tuple[MarkedLedger, ...] = ()


class LedgersStayError(DaybookError):
    """Ledgers that nothing names could not be deleted."""


async def retain(client: Client, admin: BrokerAdmin | None, work: TopicWork, terms: RetentionTerms) -> Done:
    """Do a topic's part, or with a dry run say what it would be; without `admin` it is one.

    Raises AdminError, MetadataError, MetadataUnavailableError, PolicyError, LedgersStayError.
    """
    topics = TopicManager(client.store, client.layout)
    names = await named_by(topics, work.name)
    said: list[str] = []
    figures: dict[str, int] = {}
    ask = None if terms.is_dry_run else admin
    if work.is_taken and names.ledger_list is not None:
        trim = _Trim(client, topics, work.name, terms)
        said.append(await trim.run(names.ledger_list, names, ask))
        figures |= trim.figures
    unnamed = [each for each in work.marked if not names.names(each.ledger.ledger_id)]
    if unnamed:
        said.append(await _delete(client, topics, ask, work.name, unnamed, figures))
    return Done("; ".join(filter(None, said)) or "nothing to do", figures)


class _Trim:
    """A topic's trim by its owner."""

    def __init__(self, client: Client, topics: TopicManager, name: TopicName, terms: RetentionTerms) -> None:
        self._policies = PolicyManager(client.store, client.layout)
        self._topics = topics
        self._name = name
        self._terms = terms
        self.figures: dict[str, int] = {}

    async def run(self, ledger_list: LedgerList, names: NamedLedgers, admin: BrokerAdmin | None) -> str:
        """Trim, and say what became of it; without `admin` say what would be asked for."""
        try:
            retention = (await self._policies.of(self._name)).retention
        except NoSuchTopicError:
            return DELETED_MEANWHILE
        plan = plan_trim(ledger_list, names.cursors, retention, self._terms.grace_ms, unix_ms())
        if not plan.ledgers and plan.is_certain:
            return ""
        if admin is None:
            return self._would_trim(plan)
        try:
            return await self._trim(admin, retention)
        except NoSuchTopicError:
            return DELETED_MEANWHILE

    def _would_trim(self, plan: TrimPlan) -> str:
        self.figures |= {"ledgersToTrim": len(plan.ledgers), "bytesToTrim": plan.size_bytes}
        unsure = "" if plan.is_certain else "; the owner knows more, and would be asked"
        return f"{len(plan.ledgers)} ledgers with {plan.size_bytes} bytes are past the retention{unsure}"

    async def _trim(self, admin: BrokerAdmin, retention: Retention) -> str:
        """Plan by what the owner knows, and ask it. What changes meanwhile is planned again."""
        for _ in range(PLANS_MAX):
            _, report = await asyncio.to_thread(broker_topics.topic, admin, self._name)
            found = (await self._topics.read(self._name, sync=True)).value
            plan = plan_with(found, await self._marks(report), retention, unix_ms())
            if not plan.ledgers:
                return ""
            try:
                await asyncio.to_thread(broker_topics.trim, admin, self._name, plan.ledgers)
            except AdminError as error:
                if error.status == HTTPStatus.PRECONDITION_FAILED:
                    return f"the owner keeps its ledgers: {error}"
                if error.status != HTTPStatus.CONFLICT:
                    raise
                continue
            self.figures |= {"ledgersTrimmed": len(plan.ledgers), "bytesTrimmed": plan.size_bytes}
            return f"{len(plan.ledgers)} ledgers with {plan.size_bytes} bytes were trimmed"
        return "its first ledgers changed while they were planned: its owner trims it by itself"

    async def _marks(self, report: TopicReport) -> list[Position]:
        """How far the subscriptions are, of those that the owner has not opened by their nodes."""
        marks = [Position.parse(each.mark_delete) for each in report.subscriptions if each.is_durable]
        for subscription in report.unopened_subscriptions:
            with suppress(NoSuchTopicError):  # unsubscribed meanwhile
                marks.append((await self._topics.read_cursor(self._name, subscription)).value.mark_delete)
        return marks


async def _delete(
    client: Client,
    topics: TopicManager,
    admin: BrokerAdmin | None,
    name: TopicName,
    unnamed: Iterable[MarkedLedger],
    figures: dict[str, int],
) -> str:
    """Delete ledgers that nothing names, or without `admin` say which; those that may still be named stay. Raises LedgersStayError."""
    names = await named_by(topics, name)
    going = [each.ledger.ledger_id for each in unnamed if each.never_named(names)]
    waiting = [each.ledger.ledger_id for each in unnamed if each.ledger.ledger_id not in going]
    kept = f"ledgers {_ids(waiting)} stay, because the topic's owner may still name them" if waiting else ""
    if admin is None:
        figures["ledgersToDelete"] = len(going)
        would = f"nothing names ledgers {_ids(going)}" if going else ""
        return "; ".join(filter(None, (would, kept)))
    deleted, problems = [], []
    for ledger_id in going:
        try:
            if await delete_unnamed(client, ledger_id):
                deleted.append(ledger_id)
        except DaybookError as error:
            problems.append(f"ledger {ledger_id}: {error}")
    figures["ledgersDeleted"] = len(deleted)
    if problems:
        msg = f"{len(deleted)} ledgers were deleted, and {len(problems)} stay for the next run: {'; '.join(problems)}"
        raise LedgersStayError(msg)
    done = f"ledgers {_ids(deleted)}, which nothing names, were deleted" if deleted else ""
    return "; ".join(filter(None, (done, kept)))


def _ids(ledgers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ledgers)))
