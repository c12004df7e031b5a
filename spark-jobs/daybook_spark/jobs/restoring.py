"""What a task of a restore does: it copies a ledger from its file into a fresh ledger, closes that, and reads it back from the bookies (rule 72).

Entry k of the copy is entry k of the ledger. The file has to be the one that the topic's list names, by its count and the CRCs of all entries, and
so has what was read back. Each attempt has a ledger of its own, which says in its custom metadata what it is a copy of. What goes wrong with
a ledger is its result, and its copy is deleted: nobody was asked to name it. An attempt that is killed leaves its copy, which the end of the
run deletes, or a later retention (rule 71).
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from pyspark import TaskContext

from daybook.client.blocking import BlockingClient, BlockingLedger
from daybook.client.placement_settings import placement_policy
from daybook.core.errors import DaybookError, RestoreError
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.ids import LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.core.topics.unnamed import made_by_restore_job
from daybook.offload.errors import OffloadFileError
from daybook.offload.reading import EntriesFile
from daybook.offload.writing import crc_of
from daybook.runtime.logs import get_logger
from daybook_spark.access import open_client
from daybook_spark.options import Where
from daybook_spark.write.entries import CHUNK_BYTES, CHUNK_ENTRIES
from daybook_spark.write.job import delete_ledgers

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerRestore:
    """What a task is asked for."""

    planned: PlannedLedger
    """The ledger as the topic's list has it."""
    place: str
    """The URI of its file."""
    crc: int
    """As the list has it: of the CRCs of all entries."""
    topic: str
    job: str
    quorum: Quorum
    """Of the copy,"""
    pool: str
    """and where its replicas are; "" for any bookies."""


class CopyWritten(NamedTuple):
    """What became of a ledger: a copy that is closed, was read back and is whole, or an error."""

    ledger_id: LedgerId
    stored_as: LedgerId | None
    error: str = ""


def restore_ledgers(restores: Iterator[LedgerRestore], *, where: Where) -> Iterator[CopyWritten]:
    """Restore ledgers, one after the other; what goes wrong with one is its result."""
    for each in restores:
        yield restored(each, where)


def restored(asked: LedgerRestore, where: Where) -> CopyWritten:
    """Write the copy of a ledger."""
    ledger_id = asked.planned.ledger_id
    try:
        return CopyWritten(ledger_id, _copy(asked, where))
    except DaybookError as error:
        why = str(error)
    except Exception as error:
        log.error(
            "a ledger was not restored after an error of the job's own", ledger_id=ledger_id, exc_info=error
        )
        why = f"{type(error).__name__}: {error}; the task's log has more: please report it"
    return CopyWritten(ledger_id, None, why)


def _copy(asked: LedgerRestore, where: Where) -> LedgerId:
    """The copy's ledger. Raises OffloadError, RestoreError, and what writing and reading ledgers raise."""
    ledger_id, entries, _ = asked.planned
    with (
        closing(EntriesFile(asked.place, ledger_id, entries)) as file,
        BlockingClient(open_client(where, placement=placement_policy())) as client,
    ):
        ledger = _create(client, asked)
        try:
            crc = _written(asked, file, ledger)
            if crc != asked.crc:
                msg = f"{asked.place} has entries with the CRC {crc}, and the topic's list names {asked.crc}: bring the file that it names back"
                raise OffloadFileError(msg)
            closed = ledger.close()
            if (closed.last_entry + 1, closed.length) != asked.planned[1:]:
                msg = f"its copy has {closed.last_entry + 1} entries and {closed.length} bytes, and the topic's list says {entries} and {asked.planned.size_bytes}"
                raise RestoreError(msg)
            _check(asked, client, ledger.id)
        except BaseException:
            asyncio.run(_delete(where, ledger.id))
            raise
    return ledger.id


def _create(client: BlockingClient, asked: LedgerRestore) -> BlockingLedger:
    """The key of the copy is that of no password, as of all ledgers of topics."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    ledger_id, quorum = asked.planned.ledger_id, asked.quorum
    return client.create_ledger(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        custom_metadata=made_by_restore_job(
            asked.topic, ledger_id, asked.job, f"{ledger_id}.{attempt}", pool=asked.pool
        ),
    )


def _written(asked: LedgerRestore, file: EntriesFile, ledger: BlockingLedger) -> int:
    """Append what the file has, in order; the CRC of it."""
    crc = 0
    for group in file.read(0, asked.planned.entries - 1):
        crc = _crc_of(asked, group, crc)
        for chunk in _chunks(group):
            first, _ = ledger.append_many([entry.data for entry in chunk])
            assert first == chunk[0].entry_id, "an entry keeps its id"
    return crc


def _check(asked: LedgerRestore, client: BlockingClient, copy: LedgerId) -> None:
    """Raise RestoreError unless bookies return what the file has."""
    crc = 0
    for run in client.open_ledger(copy, recover=False).read_batches(0, asked.planned.entries - 1):
        crc = _crc_of(asked, run, crc)
    if crc != asked.crc:
        msg = f"its copy was read back with the CRC {crc}, and the topic's list names {asked.crc}: run the job again"
        raise RestoreError(msg)


def _crc_of(asked: LedgerRestore, entries: Sequence[Entry], crc: int) -> int:
    """As the list has it: with the CRCs of the ledger that was offloaded."""
    ids, payloads = [entry.entry_id for entry in entries], [entry.data for entry in entries]
    return crc_of(entry_crcs(asked.planned.ledger_id, ids, payloads), crc)


def _chunks(group: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries as they are appended: a task has no more than so many of them under way."""
    chunk: list[Entry] = []
    size_bytes = 0
    for entry in group:
        if chunk and (size_bytes + len(entry.data) > CHUNK_BYTES or len(chunk) >= CHUNK_ENTRIES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(entry)
        size_bytes += len(entry.data)
    yield chunk


async def _delete(where: Where, ledger_id: LedgerId) -> None:
    async with open_client(where) as client:
        await delete_ledgers(client, [ledger_id], b"")
