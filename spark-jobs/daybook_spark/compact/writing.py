"""What a task writes in the second pass: what stays of a part, into one compacted ledger, which it closes (rule 41).

The ledger has the key that all ledgers of a topic have, that of no password, whatever the job's own password is: otherwise neither the topic's
owner nor Spark's readers could open it. Its custom metadata names the topic and the job. A task that fails deletes its ledger; one that is
killed leaves it, and it is deleted by the job's end or by a later retention (rule 71).
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from daybook.client.blocking import BlockingClient, BlockingLedger
from daybook.client.placement_settings import placement_policy
from daybook.core.ids import LedgerId
from daybook.core.quorum import Quorum
from daybook.core.topics.ledger_list import NO_POSITION, CompactedLedger, Position
from daybook.core.topics.unnamed import made_by_compaction_job
from daybook.wire.pulsar.compacting import compacted_entry
from daybook_spark.access import open_client
from daybook_spark.compact.columns import batch_left
from daybook_spark.compact.entries import stored_entries
from daybook_spark.compact.kept import KeptPlaces
from daybook_spark.compact.plan import Part
from daybook_spark.options import Where
from daybook_spark.write.entries import CHUNK_BYTES, CHUNK_ENTRIES
from daybook_spark.write.job import delete_ledgers

WRITTEN: Final = "part int, ledger_id long, entries long, size_bytes long, through_ledger long, through_entry long, keyed_kept long"
"""What a task reports of each part."""


class Written(NamedTuple):
    """What is left of a part: as a row, a compacted ledger, or no ledger with the id −1."""

    part: int
    ledger_id: LedgerId = -1
    entries: int = 0
    size_bytes: int = 0
    through_ledger: int = NO_POSITION.ledger_id
    through_entry: int = NO_POSITION.entry_id
    keyed_kept: int = 0
    """Messages with a key, and chunks, that stay."""

    @property
    def compacted(self) -> CompactedLedger:
        """As the list names it."""
        through = Position(self.through_ledger, self.through_entry)
        return CompactedLedger(self.ledger_id, self.entries, self.size_bytes, through)

    def batch(self) -> pa.RecordBatch:
        """As Spark takes it."""
        kinds = (pa.int32(), *[pa.int64()] * (len(self) - 1))
        arrays = [pa.array([value], kind) for value, kind in zip(self, kinds, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=self._fields)


@dataclass(frozen=True, slots=True)
class PartWriter:
    """How the ledgers of a job are made; it travels to the tasks."""

    where: Where
    topic: str
    job_id: str
    quorum: Quorum
    pool: str
    keeps_keyless: bool
    keyless_parts: frozenset[int]
    """Parts with messages without a key, or with entries that cannot be judged; of others nothing stays but what has a place."""

    def write(self, part: Part, places: Iterator[int]) -> Written:
        """Write what stays of a part; `places` are those of its messages with keys that stay, within the part and in order.

        Raises CompactionError, and what the reading and the writing of ledgers raise.
        """
        kept = KeptPlaces(places, keeps_keyless=self.keeps_keyless)
        chunks = _chunks(self._left(part, kept))
        first = next(chunks, None)
        if first is None:
            return Written(part.number)
        with BlockingClient(open_client(self.where, placement=placement_policy())) as client:
            ledger = self._create(client, part)
            through = NO_POSITION
            try:
                for chunk in chain((first,), chunks):
                    ledger.append_many([data for _, data in chunk])
                    through = chunk[-1][0]
                closed = ledger.close()
            except BaseException:
                asyncio.run(self._delete(ledger.id))
                raise
        return Written(part.number, ledger.id, closed.last_entry + 1, closed.length, *through, kept.count)

    def _left(self, part: Part, kept: KeptPlaces) -> Iterator[tuple[Position, bytes]]:
        is_keyed = part.number not in self.keyless_parts
        for entry in stored_entries(self.where, part):
            indexes = kept.indexes_of(entry.number)
            if is_keyed and not indexes:
                continue
            data = batch_left(entry, indexes) if is_keyed else None
            if data is None:
                opened = entry.opened()
                data = compacted_entry(opened, kept.judge(opened.keyed, indexes))
            if data is not None:
                yield entry.position, data
        kept.finish()

    def _create(self, client: BlockingClient, part: Part) -> BlockingLedger:
        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        return client.create_ledger(
            ensemble_size=self.quorum.ensemble_size,
            write_quorum=self.quorum.write_quorum,
            ack_quorum=self.quorum.ack_quorum,
            custom_metadata=made_by_compaction_job(
                self.topic, self.job_id, f"{part.number}.{attempt}", pool=self.pool
            ),
        )

    async def _delete(self, ledger_id: LedgerId) -> None:
        async with open_client(self.where) as client:
            await delete_ledgers(client, [ledger_id], b"")


Chunk = list[tuple[Position, bytes]]


def _chunks(entries: Iterable[tuple[Position, bytes]]) -> Iterator[Chunk]:
    """Entries as they are appended: what a task holds does not depend on how much it writes."""
    chunk: Chunk = []
    size_bytes = 0
    for position, data in entries:
        if chunk and (size_bytes + len(data) > CHUNK_BYTES or len(chunk) >= CHUNK_ENTRIES):
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append((position, data))
        size_bytes += len(data)
    if chunk:
        yield chunk
