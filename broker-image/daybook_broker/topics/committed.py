"""The check of what a job wrote, a compaction or copies of ledgers that were offloaded, before the owner names it (rule 41, rule 72).

Readers trust the list: a ledger that is open could still change, one of another topic would show its messages here, one with a password
would be closed to the owner itself, and entries out of order would be skipped by the search for a position. A ledger that is too old may be
deleted at any time by whoever collects what killed jobs left behind.
"""

from typing import Final, NoReturn

from daybook.client.preconditions import check_password
from daybook.client.reader import Reader
from daybook.core.errors import CompactionError, DaybookError, RestoreError, UnauthorizedError
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.topics.compaction.commit import CompactionCommit
from daybook.core.topics.ledger_list import NO_POSITION, CompactedLedger
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.restore import LedgersRestored
from daybook.core.topics.unnamed import COMMIT_AGE_MS_MAX, COMPACTION_KEY, JOB_KEY, RESTORED_KEY
from daybook.runtime.clock import unix_ms
from daybook_broker.topics.compacted_reads import CompactedReads, ReadTopic
from daybook_broker.topics.ledger_reads import LedgerGoneError, ReadDelayedError

LEDGERS_AT_ONCE: Final = 200
"""Ledgers whose metadata one request reads (rule 37)."""


async def check_written(topic: ReadTopic, commit: CompactionCommit) -> None:
    """Raise CompactionError unless the ledgers of a commit are closed, the topic's, the job's, and as large as the job says, in order.

    Raises ReadDelayedError, MetadataUnavailableError.
    """
    ledgers = commit.written.ledgers
    for at in range(0, len(ledgers), LEDGERS_AT_ONCE):
        part = ledgers[at : at + LEDGERS_AT_ONCE]
        each_found = await topic.services.client.ledgers.read_each(
            [ledger.ledger_id for ledger in part], sync=True
        )
        for ledger, found in zip(part, each_found, strict=True):
            if isinstance(found, DaybookError):
                _refuse(ledger, str(found))
            why = _why_refused(found.value, ledger.entries, ledger.size_bytes, topic.name, commit.job)
            if not why and COMPACTION_KEY not in found.value.custom_metadata:
                why = "its metadata does not say that it was written to compact a topic"
            if why:
                _refuse(ledger, why)
    reads = CompactedReads(topic)
    before = NO_POSITION
    for ledger in ledgers:
        try:
            first, last = await reads.ends(ledger)
        except LedgerGoneError as error:
            _refuse(ledger, str(error))
        if not before < first <= last <= ledger.through:
            _refuse(
                ledger,
                f"its entries are those from {first} to {last}, and are to be behind {before} and up to {ledger.through}",
            )
        before = ledger.through


async def check_copies(topic: ReadTopic, restored: LedgersRestored) -> None:
    """Raise RestoreError unless the copies are closed, of these ledgers of the topic, the job's, and as large as the list says.

    Raises ReadDelayedError where this broker cannot read them, MetadataUnavailableError.
    """
    client = topic.services.client
    copies = [each for each in restored.ledgers if each.stored_as is not None]
    ids = [each.stored_as for each in copies if each.stored_as is not None]
    for each, found in zip(copies, await client.ledgers.read_each(ids, sync=True), strict=True):
        ledger_id, entries, size_bytes = each.ledger
        what = f"the copy of ledger {ledger_id} in ledger {each.stored_as} is not named"
        if isinstance(found, DaybookError):
            why = str(found)
        elif found.value.custom_metadata.get(RESTORED_KEY) != str(ledger_id).encode():
            why = "its metadata does not say that it is a copy of that ledger"
        else:
            why = _why_refused(found.value, entries, size_bytes, topic.name, restored.job)
        if why or isinstance(found, DaybookError):
            msg = f"{what}: {why}; run the job again"
            raise RestoreError(msg)
        reader = Reader(found.value, client)
        try:
            for entry_id in (0, entries - 1):
                await reader.read_batch(entry_id, entry_id)
        except DaybookError as error:
            msg = (
                f"{what} yet, because this broker cannot read it ({error}): ask again once its bookies answer"
            )
            raise ReadDelayedError(msg) from error


def _why_refused(metadata: LedgerMetadata, entries: int, size_bytes: int, topic: TopicName, job: str) -> str:
    marks = metadata.custom_metadata
    if not metadata.is_closed:
        return f"it is {metadata.state.value}"
    if (metadata.last_entry + 1, metadata.length) != (entries, size_bytes):
        return f"it has {metadata.last_entry + 1} entries and {metadata.length} bytes, and the job says {entries} and {size_bytes}"
    if marks.get(TOPIC_KEY) != str(topic).encode() or marks.get(JOB_KEY) != job.encode():
        return f"its metadata does not say that job {job} wrote it for this topic"
    if unix_ms() - metadata.created_at_ms > COMMIT_AGE_MS_MAX:
        return f"it was begun more than {COMMIT_AGE_MS_MAX // 3_600_000} hours ago: ledgers of jobs are collected after that time; use more tasks"
    try:
        check_password(metadata, b"")
    except UnauthorizedError:
        return "it has a password, and the ledgers of a topic have none"
    return ""


def _refuse(ledger: CompactedLedger, why: str) -> NoReturn:
    msg = f"ledger {ledger.ledger_id} of a compaction is not named: {why}; run the job again"
    raise CompactionError(msg)
