"""The replay: it returns the whole groups of the journal, cuts off a torn tail, and refuses damage.

Sectors that were not synced when the power failed persist in any order, so whole groups may follow a torn one: they were
never acknowledged, and the replay drops them. But a group that records a later position as durable proves that everything
before that position was stored; if some of it is gone, acknowledged entries are missing, and the bookie must not start as
if they had never existed (rule 25).

What is readable need not be durable: a killed process leaves pages that no sync has covered, and a failed sync leaves
pages that the kernel calls clean, so that no later sync writes them either. The replay therefore rewrites what it read, in
place and with the same bytes, before anything relies on it (rule 23). That needs no room, except on file systems that copy
on write; without room there the journal rewrites it before the next append, or a flush to the store makes it unnecessary. Nor
need the last file's name be durable, after a kill or a failed sync of the directory: the store would then need a file that the
next power cut removes. The replay therefore syncs the directory as well.
"""

from collections.abc import Iterator
from typing import Final

from daybook_bookie.disk.disk import FULL, Disk, DiskFile
from daybook_bookie.disk.errors import JournalCorruptError
from daybook_bookie.journal.format import (
    DATA_START,
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    PAGE_BYTES,
    START,
    DamagedGroupError,
    FileHeader,
    GroupHeader,
    Position,
    Record,
    file_id_of,
    file_name,
    page_end,
    unpack_file_header,
    unpack_group_header,
    unpack_records,
)

_CHUNK_BYTES: Final = 1024 * 1024
_WHAT_TO_DO: Final = (
    "entries that this bookie acknowledged are missing: do not start it on this journal; "
    "replace the bookie (`daybook bookie replace`), so that its entries are copied from other replicas"
)


class JournalReplay:
    """One reading of the journal from `checkpoint` on. Iterate it to the end; `end` and `next_sequence` are then known.

    When the iteration ends, writes of this process have made everything durable that was read, unless `needs_rewrite`.
    Raises JournalCorruptError while iterating; OSError is the disk's.
    """

    def __init__(self, disk: Disk, checkpoint: Position, *, new: bool = False) -> None:
        """`new`: the bookie is being created, so that there may be no journal yet; later, a missing journal is a loss."""
        self._disk = disk
        self._new = new
        self._to_rewrite: list[tuple[int, int, int]] = []
        """What was read and not rewritten yet: file, begin, end."""
        self.checkpoint = checkpoint
        self.end = checkpoint
        self.next_sequence = 0
        self.found: list[int] = []
        """The files that exist, including those before the checkpoint."""
        self.headers: dict[int, FileHeader] = {}
        self.done = False

    def __iter__(self) -> Iterator[Record]:
        ids = self._file_ids()
        if ids:
            files = {file_id: self._disk.open(file_name(file_id)) for file_id in ids}
            try:
                self.headers = {file_id: self._header(files[file_id], file_id) for file_id in ids}
                for file_id in ids:
                    yield from self._file(files[file_id], file_id)
            finally:
                for file in files.values():
                    file.close()
            self._disk.sync_directory()
            self._rewrite_if_there_is_room()
        self.done = True

    @property
    def needs_rewrite(self) -> bool:
        """Whether there was no room to rewrite all that was read: nothing may rely on it before `rewrite`."""
        return bool(self._to_rewrite)

    def rewrite(self) -> None:
        """Write again what was read, so that its pages are dirty, and sync. Raises OSError; may be repeated."""
        while self._to_rewrite:
            file_id, begin, end = self._to_rewrite[0]
            file = self._disk.open(file_name(file_id))
            try:
                for at in range(begin, end, _CHUNK_BYTES):
                    file.pwritev([file.read(at, min(_CHUNK_BYTES, end - at))], at)
                file.fdatasync()
            finally:
                file.close()
            del self._to_rewrite[0]

    def _rewrite_if_there_is_room(self) -> None:
        try:
            self.rewrite()
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _file_ids(self) -> list[int]:
        """The files from the checkpoint on; raises JournalCorruptError if one is missing."""
        self.found = sorted(filter(None, map(file_id_of, self._disk.names())))
        ids = [file_id for file_id in self.found if file_id >= self.checkpoint.file_id]
        if not ids and self._new and self.checkpoint == START:
            return []
        expected = list(range(self.checkpoint.file_id, (ids[-1] if ids else self.checkpoint.file_id) + 1))
        if ids != expected:
            gone = ", ".join(file_name(file_id) for file_id in expected if file_id not in ids)
            msg = f"journal file {gone} is missing, the store needs it from {tuple(self.checkpoint)} on: {_WHAT_TO_DO}"
            raise JournalCorruptError(msg)
        return ids

    def _header(self, file: DiskFile, file_id: int) -> FileHeader:
        """A file gets its name only after its header is durable, so a damaged header is never a torn tail."""
        header = unpack_file_header(file.read(0, FILE_HEADER_BYTES))
        if header is None or header.file_id != file_id:
            msg = f"the header of journal file {file_name(file_id)} is damaged: {_WHAT_TO_DO}"
            raise JournalCorruptError(msg)
        return header

    def _file(self, file: DiskFile, file_id: int) -> Iterator[Record]:
        at = begin = self.checkpoint.offset if file_id == self.checkpoint.file_id else DATA_START
        following = self.headers.get(file_id + 1)
        sequence = None if at != DATA_START else self.headers[file_id].first_sequence
        self.next_sequence = self.headers[file_id].first_sequence
        while following is None or at < following.previous_end:
            place = Position(file_id, at)
            try:
                group, records = self._group(file, place, sequence)
            except DamagedGroupError as damage:
                self._refuse_if_durable(file, place, following, damage)
                break
            yield from records
            sequence = self.next_sequence = group.sequence + 1
            at = page_end(at + group.size_bytes)
        if at > begin:
            self._to_rewrite.append((file_id, begin, at))
        self.end = Position(file_id, at)

    def _group(
        self, file: DiskFile, place: Position, sequence: int | None
    ) -> tuple[GroupHeader, list[Record]]:
        group = unpack_group_header(
            file.read(place.offset, GROUP_HEADER_BYTES), place, self.headers[place.file_id].salt
        )
        if group is None or sequence not in (None, group.sequence):
            msg = "no group begins here"
            raise DamagedGroupError(msg)
        if group.size_bytes > file.size_bytes() - place.offset:  # before anything is allocated for it
            msg = "the file ends within the group"
            raise DamagedGroupError(msg)
        rest = file.read(place.offset + GROUP_HEADER_BYTES, group.size_bytes - GROUP_HEADER_BYTES)
        return group, unpack_records(group, rest)

    def _refuse_if_durable(
        self, file: DiskFile, place: Position, following: FileHeader | None, damage: DamagedGroupError
    ) -> None:
        """Raise JournalCorruptError if anything proves that `place` was durable."""
        durable = self._durable_after(file, place, following)
        if durable is not None and durable > place:
            msg = (
                f"journal file {file_name(place.file_id)} is damaged at byte {place.offset} ({damage}), "
                f"although everything before {tuple(durable)} was durable: {_WHAT_TO_DO}"
            )
            raise JournalCorruptError(msg)

    def _durable_after(
        self, file: DiskFile, place: Position, following: FileHeader | None
    ) -> Position | None:
        """The highest position that later groups record as durable; None if there are no later groups."""
        if following is not None:
            return Position(place.file_id, following.previous_end)
        highest = None
        salt = self.headers[place.file_id].salt
        for begin, end in file.written_ranges(place.offset):
            for at in range(begin // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
                data = file.read(at, GROUP_HEADER_BYTES)
                found = unpack_group_header(data, Position(place.file_id, at), salt)
                if found is not None and (highest is None or found.durable > highest):
                    highest = found.durable
        return highest
