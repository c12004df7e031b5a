"""Entries as readers have them: checked, and kept as columns until somebody looks at one.

Most of what a reader receives is passed on: into an answer, a file, a column of Arrow. An object for each entry would take longer than to check
it, and the garbage collector would visit it. So the entries of a frame are one sequence, which makes an `Entry` for whoever asks for it.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, compress
from typing import Final, NamedTuple, overload

from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import (
    HEADER_BYTES,
    ROW_BYTES,
    Buffer,
    FrameHeader,
    frame_columns,
    frame_entry_ids,
    frame_payloads,
)
from daybook.core.format.payload_run import PayloadRun, joined_payloads, sound_run
from daybook.core.ids import EntryId


class Entry(NamedTuple):
    """An entry as a reader gets it."""

    entry_id: EntryId
    data: bytes


_as_entry: Final = partial(tuple.__new__, Entry)
"""`Entry(*pair)` in a third of the time: a NamedTuple is made by a function in Python."""


class EntryRun(Sequence[Entry]):
    """Entries of one ledger in their order. Nobody changes it."""

    __slots__ = ("entry_ids", "payloads")

    def __init__(self, entry_ids: Sequence[EntryId], payloads: Sequence[bytes]) -> None:
        """An id for each payload; of entries that follow each other the ids are a range."""
        assert len(entry_ids) == len(payloads)
        self.entry_ids = entry_ids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Entry]:
        return map(_as_entry, zip(self.entry_ids, self.payloads, strict=True))

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> "EntryRun": ...

    def __getitem__(self, index: int | slice) -> "Entry | EntryRun":
        if isinstance(index, slice):
            return EntryRun(self.entry_ids[index], self.payloads[index])
        return Entry(self.entry_ids[index], self.payloads[index])

    def __eq__(self, other: object) -> bool:
        """Any sequence of the same entries is equal."""
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return f"EntryRun({tuple(self)!r})"


def joined(runs: Sequence[EntryRun]) -> EntryRun:
    """The entries of all runs, which follow each other in rising order."""
    if len(runs) == 1:
        return runs[0]
    payloads = joined_payloads([run.payloads for run in runs])
    span = range(runs[0].entry_ids[0], runs[-1].entry_ids[-1] + 1) if payloads else range(0)
    if len(span) == len(payloads):
        return EntryRun(span, payloads)
    return EntryRun(list(chain.from_iterable(run.entry_ids for run in runs)), payloads)


def payload_sizes(entries: Sequence[Entry]) -> list[int]:
    """The sizes of the payloads in bytes."""
    payloads = payloads_of(entries)
    if isinstance(payloads, PayloadRun):
        return [payloads.entry_bytes] * len(payloads)
    return list(map(len, payloads))


def payloads_of(entries: Sequence[Entry]) -> Sequence[bytes]:
    """The payloads; of a run without an object for each entry."""
    return entries.payloads if isinstance(entries, EntryRun) else [data for _, data in entries]


def decode_entries(
    buffer: Buffer,
    header: FrameHeader,
    offset: int = 0,
    *,
    payloads_at: int | None = None,
    is_own: bool = False,
) -> tuple[EntryRun, list[EntryId]]:
    """The frame's entries whose checksum holds, and the ids of those whose does not (rule 44); raises FrameError.

    The payloads follow the table, unless they are at `payloads_at`. They are copied; of a buffer that `is_own` some may be views of it
    (see `sound_run`).
    """
    entry_ids = frame_entry_ids(buffer, header, offset)
    end = offset + HEADER_BYTES + ROW_BYTES * header.count
    at = end if payloads_at is None else payloads_at
    if isinstance(entry_ids, range):
        run = sound_run(buffer, header, offset, at, entry_ids, is_own=is_own)
        if run is not None:
            return EntryRun(entry_ids, run), []
    if at != end:
        view = memoryview(buffer)
        buffer, offset = b"".join((view[offset:end], view[at : at + header.payload_bytes])), 0
    payloads = frame_payloads(buffer, header, offset)
    _, _, expected = frame_columns(buffer, header, offset)
    actual = entry_crcs(header.ledger_id, entry_ids, payloads)
    if actual == expected.tolist():
        return EntryRun(entry_ids, payloads), []
    is_good = [crc == wanted for crc, wanted in zip(actual, expected, strict=True)]
    good = EntryRun(list(compress(entry_ids, is_good)), list(compress(payloads, is_good)))
    return good, [entry_id for entry_id, holds in zip(entry_ids, is_good, strict=True) if not holds]
