"""Entries of topics as rows, one for each message, in batches of a bounded size.

Only what the query's columns need is done: without a column of single messages a batch is counted and not unpacked, and without the
value no payload is copied.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from daybook.core.format.entries import Entry
from daybook.core.ids import LedgerId
from daybook.wire.pulsar.batches import BatchMessage
from daybook.wire.pulsar.errors import EntryError
from daybook_spark.rows.batch_columns import BatchColumns, Chain, chain_of
from daybook_spark.rows.columns import ERROR
from daybook_spark.rows.messages import StoredMessage, read_entry
from daybook_spark.rows.spans import UnusualError
from daybook_spark.rows.values import OF_BATCH, OF_ENTRY, OF_MESSAGE

ROWS_MAX: Final = 8192
VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A batch of rows is given to Spark once it has so many."""
CHAIN_MESSAGES_MIN: Final = 32
"""Of a batch that is worth columns of its own."""


class Place(NamedTuple):
    """Where entries are: the columns that all rows of a range share."""

    topic: str
    partition: int | None
    ledger_id: LedgerId


class TimeRange(NamedTuple):
    """Publish times that a query wants: from `start_ms` on, before `end_ms`."""

    start_ms: int | None = None
    end_ms: int | None = None

    def holds(self, time_ms: int) -> bool:
        """Whether a message that was published then is wanted."""
        return (self.start_ms is None or self.start_ms <= time_ms) and (
            self.end_ms is None or time_ms < self.end_ms
        )


ALL_TIMES: Final = TimeRange()


def message_rows(
    place: Place,
    runs: Iterable[Sequence[Entry]],
    schema: pa.Schema,
    *,
    times: TimeRange = ALL_TIMES,
    is_permissive: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The messages of the entries, each exactly once and in order.

    Raises EntryError for an entry that is no message; with `is_permissive` it becomes a row that says why, and of a batch that
    breaks off the messages before are rows as well.
    """
    rows = _Rows(place, schema, is_permissive=is_permissive)
    for run in runs:
        for entry in run:
            try:
                stored = read_entry(entry)
                if not times.holds(stored.metadata.publish_time):
                    continue
                for _ in rows.add(entry, stored):
                    if rows.is_full:
                        yield from rows.take()
            except EntryError as error:
                rows.failed(entry, error)
            if rows.is_full:
                yield from rows.take()
    yield from rows.take()


class _Rows:
    """Rows that were not given to Spark yet: finished parts, and behind them batches or single rows that are yet to become one."""

    def __init__(self, place: Place, schema: pa.Schema, *, is_permissive: bool) -> None:
        self._place = place
        self._schema = schema
        self._is_permissive = is_permissive
        self._shared = place._asdict()
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names if name not in self._shared}
        self._of_single = [name for name in self._columns if name in OF_MESSAGE]
        self._unpacks = any(name != "batch_index" for name in self._of_single)
        self._parts: list[pa.RecordBatch] = []
        self._chains: list[tuple[Entry, Chain]] = []
        self._listed = 0
        """How many rows `_columns` has; none while there are chains."""
        self.count = 0
        self._value_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.count >= ROWS_MAX or self._value_bytes >= VALUE_BYTES_MAX

    def add(self, entry: Entry, stored: StoredMessage) -> Iterator[None]:
        """Add the rows of an entry; yield after each part of a batch, which may fill more than one batch of rows.

        Raises EntryError.
        """
        if not stored.is_batch:
            self._extend(stored, 1, lambda name: [OF_MESSAGE[name](stored)])
        elif not self._unpacks:
            for begin in range(0, stored.count, ROWS_MAX):
                count = min(ROWS_MAX, stored.count - begin)
                self._extend(stored, count, _counted(begin, count))
                yield
        elif not self._add_chain(entry, stored):
            yield from self._unpack(stored)

    def _add_chain(self, entry: Entry, stored: StoredMessage) -> bool:
        """Add a batch that is as producers write them; whether it was. Raises EntryError.

        A small one behind single rows is not worth columns of its own.
        """
        if stored.count > ROWS_MAX or (self._listed and stored.count < CHAIN_MESSAGES_MIN):
            return False
        try:
            chain = chain_of(stored)
        except UnusualError:
            return False
        self._end_list()
        self._chains.append((entry, chain))
        self.count += len(chain.ends)
        self._value_bytes += len(chain.data)
        return True

    def _end_chains(self) -> None:
        """Make columns of the batches. Raises EntryError."""
        chains, self._chains = self._chains, []
        if not chains:
            return
        try:
            columns = BatchColumns([chain for _, chain in chains])
            arrays = [self._of_chains(field, columns, chains) for field in self._schema]
        except (UnusualError, EntryError):  # which entry it is shows when each is unpacked
            self.count -= sum(len(chain.ends) for _, chain in chains)
            self._value_bytes -= sum(len(chain.data) for _, chain in chains)
            for entry, chain in chains:
                try:
                    for _ in self._unpack(chain.stored):
                        continue
                except EntryError as error:
                    self.failed(entry, error)
        else:
            self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _of_chains(
        self, field: pa.Field, columns: BatchColumns, chains: list[tuple[Entry, Chain]]
    ) -> pa.Array:
        """A column of batches. Raises UnusualError, EntryError."""
        if field.name in self._shared:
            return pa.repeat(pa.scalar(self._shared[field.name], field.type), columns.count)
        if field.name in OF_ENTRY:
            values = [OF_ENTRY[field.name](chain.stored) for _, chain in chains]
            return columns.of_entries(values, field.type)
        return columns.column(field.name, field.type)

    def _end_list(self) -> None:
        """Make columns of the single rows."""
        if not self._listed:
            return
        arrays = [
            pa.array(self._columns[field.name], field.type)
            if field.name in self._columns
            else pa.repeat(pa.scalar(self._shared[field.name], field.type), self._listed)
            for field in self._schema
        ]
        for column in self._columns.values():
            column.clear()
        self._listed = 0
        self._parts.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _unpack(self, stored: StoredMessage) -> Iterator[None]:
        """Add a batch message by message. Raises EntryError."""
        begin = 0
        for run in stored.runs(ROWS_MAX):
            self._extend(stored, len(run), _of_batch(stored, begin, run))
            begin += len(run)
            yield

    def _extend(self, stored: StoredMessage, count: int, values: Callable[[str], list[Any]]) -> None:
        """Add rows, or none where a value cannot be read. Raises EntryError."""
        added = {
            name: values(name) if name in OF_MESSAGE else [OF_ENTRY[name](stored)] * count
            for name in self._columns
        }
        self._end_chains()
        self._value_bytes += sum(len(value) for value in added.get("value", ()) if value is not None)
        for name, column in self._columns.items():
            column += added[name]
        self._listed += count
        self.count += count

    def failed(self, entry: Entry, error: EntryError) -> None:
        """Add the row of an entry that is no message, or raise EntryError."""
        if not self._is_permissive:
            raise _explained(error, self._place, entry) from error
        self._end_chains()
        known = {"entry_id": entry.entry_id, "value": entry.data, ERROR: str(error)}
        for name, column in self._columns.items():
            column.append(known.get(name))
        self._value_bytes += len(entry.data)
        self._listed += 1
        self.count += 1

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows as a batch if there are any, and begin another. Raises EntryError."""
        self._end_chains()
        self._end_list()
        if self.count:
            yield self._parts[0] if len(self._parts) == 1 else pa.concat_batches(self._parts)
        self._parts = []
        self.count = self._value_bytes = 0


def _of_batch(stored: StoredMessage, begin: int, run: list[BatchMessage]) -> Callable[[str], list[Any]]:
    return lambda name: OF_BATCH[name](stored, begin, run)


def _counted(begin: int, count: int) -> Callable[[str], list[Any]]:
    """The values of messages that are not unpacked: only their index is asked for."""
    return lambda _: list(range(begin, begin + count))


def _explained(error: EntryError, place: Place, entry: Entry) -> EntryError:
    where = f"entry {place.ledger_id}:{entry.entry_id} of {place.topic}"
    return type(error)(f"{where} is no message: {error}. Read with option mode=permissive to get it as a row")
