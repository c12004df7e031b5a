"""The journal: what is appended here and synced survives a crash; the bookie answers only for what was synced.

A passive object behind the Disk interface, without a thread, so that it also runs on a simulated disk: the caller appends
groups, syncs once, then answers for all of them. After a failed write or fsync it is unknown what is durable (fsyncgate),
so the journal refuses every further call and the process must stop; the next start replays (rule 23). A full disk fails
at preallocation, before anything is promised, and is no such failure (rule 30); nor is a process without file
descriptors. The journal removes a file, or uses it again, only when the store holds all of it (rule 24). A file that is
used again is all zeros before it is written, so that a replay never takes stale bytes for new ones.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from daybook_bookie.disk.disk import FULL, NO_DESCRIPTORS, Disk, DiskFile, has_room
from daybook_bookie.disk.errors import BookieMustStopError, StorageFullError
from daybook_bookie.journal.format import (
    DATA_START,
    RECORDS_MAX,
    ROW_BYTES,
    START,
    FileHeader,
    Position,
    Record,
    file_name,
    group_bytes,
    pack_file_header,
    pack_group,
)
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.journal.spare import TAKEN, SpareFile

_READ_ONLY: Final = "the bookie is read-only until ledgers are deleted or the volume grows"


def _random_salt() -> int:
    return secrets.randbits(32)


class Journal:
    """The writing end. One caller at a time; any thread may read `written` and `durable`."""

    def __init__(
        self,
        disk: Disk,
        replay: JournalReplay,
        *,
        file_bytes: int,
        new_salt: Callable[[], int] = _random_salt,
    ) -> None:
        """Continue after `replay`, which must have been iterated to its end.

        Nothing is written before the first append, so that a bookie starts on a full disk (rule 30).
        """
        assert replay.done, "replay the journal to its end before writing to it"
        self._disk = disk
        self._file_bytes = file_bytes
        self._new_salt = new_salt
        self._file: DiskFile | None = None
        self._spare = SpareFile(disk, file_bytes)
        self._file_ids = set(replay.found)
        """Of the files that exist; listing the directory would take a descriptor."""
        self._salt = 0
        self._sequence = replay.next_sequence
        self._last_header = replay.headers.get(replay.end.file_id)
        self._failed: str | None = None
        self._replay = replay
        self._rewriting = threading.Lock()
        """Held by a rewrite of what was replayed, and by a trim, which may make that rewrite unnecessary."""
        self.written = replay.end
        self.durable = replay.checkpoint if replay.needs_rewrite else replay.end
        """Everything before it survives a power cut."""

    def prepare(self) -> None:
        """Create the file that the first append would create, so that a journal without files is known to be lost.

        For a new bookie, before its cookies are written. Raises StorageFullError and BookieMustStopError.
        """
        self._check_alive()
        if self._file is None:
            self._roll()

    def make_spare(self) -> None:
        """Create the journal's next file ahead of time; from any thread. Raises OSError, which has no consequence."""
        self._spare.make()

    @property
    def has_spare(self) -> bool:
        """Whether the next file was created ahead of time."""
        return self._spare.is_ready

    @property
    def spares(self) -> int:
        """How many files there are beside those that hold records, each of `journal_file_bytes`."""
        return self._spare.count

    def append(self, records: Sequence[Record]) -> Position:
        """Write `records` in order and return where they end; they are durable after `sync`.

        Raises StorageFullError if there is no room for a new file or, on a file system that copies on write, in this one:
        some of the records may have been written and a replay may return them, but none is promised. Raises
        BookieMustStopError after any other failure, and from then on always.
        """
        self._check_alive()
        self._rewrite_replayed()
        for group, size in self._groups(records):
            if self._file is None or self.written.offset + size > self._file_bytes:
                self._roll()
            self._write(group, size)
        return self.written

    def sync(self) -> Position:
        """Make everything appended durable and return where that ends.

        Raises StorageFullError as long as there is no room to rewrite what was replayed, and BookieMustStopError.
        """
        self._check_alive()
        self._rewrite_replayed()
        if self._file is not None and self.durable != self.written:
            try:
                self._file.fdatasync()
            except OSError as error:
                self._fail("fdatasync of the journal failed", error)
            self.durable = self.written
        return self.durable

    def trim(self, up_to: Position) -> int:
        """Remove the files that end before `up_to`, whose content the store must hold durably; return how many.

        The oldest file goes first, so that a crash in between leaves no gap. One is kept to be used again, if this
        process made it, as only those surely have the size of the settings. Raises BookieMustStopError.
        """
        self._check_alive()
        assert up_to <= max(self.durable, self._replay.end), "the store cannot hold what the journal does not"
        with self._rewriting:
            if self._needs_rewrite and up_to >= self._replay.end:
                self.durable = self._replay.end  # no replay will read it again
        removed = 0
        try:
            for file_id in sorted(each for each in self._file_ids.copy() if each < up_to.file_id):
                with suppress(FileNotFoundError):
                    self._remove(file_id)
                self._file_ids.discard(file_id)
                removed += 1
            if removed:
                self._disk.sync_directory()
        except OSError as error:
            self._fail("a journal file could not be removed", error)
        return removed

    def _remove(self, file_id: int) -> None:
        is_own = file_id not in self._replay.found
        if not (is_own and self._spare.keep(file_name(file_id))):
            self._disk.unlink(file_name(file_id))

    def has_room(self) -> bool:
        """Whether there is room for a further file now; from any thread. Raises OSError."""
        return self.has_spare or has_room(self._disk, self._file_bytes)

    def close(self) -> None:
        """Sync, and write an empty group: it records what was durable, so that a replay recognises later damage."""
        self._spare.close()
        if self._file is None:
            return
        if self._failed is None:
            self.sync()
            size = group_bytes([])
            if self.written.offset + size <= self._file_bytes:
                with suppress(StorageFullError):  # all that was promised is durable without it
                    self._write([], size)
                    self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None
        self._failed = "the journal is closed"

    @property
    def _needs_rewrite(self) -> bool:
        return self.durable < self._replay.end

    def _rewrite_replayed(self) -> None:
        """Rewrite what the replay had no room to rewrite; nothing may be answered for or appended after it before."""
        if not self._needs_rewrite:
            return
        with self._rewriting:
            if not self._needs_rewrite:
                return
            try:
                self._replay.rewrite()
            except OSError as error:
                if error.errno not in FULL | NO_DESCRIPTORS:
                    self._fail("the journal's replayed entries could not be written again", error)
                msg = f"the journal's replayed entries cannot be written again yet ({error}): {_READ_ONLY}"
                raise StorageFullError(msg) from error
            self.durable = self._replay.end

    def _groups(self, records: Sequence[Record]) -> Iterator[tuple[Sequence[Record], int]]:
        """Cut `records` into groups that fit a file and one write call, with the room that each takes."""
        room = self._file_bytes - DATA_START
        size = group_bytes(records)
        if 0 < len(records) <= RECORDS_MAX and size <= room:
            yield records, size
            return
        begin = size = 0
        for at, record in enumerate(records):
            added = ROW_BYTES + len(record.body)
            assert group_bytes([record]) <= room, f"a record of {len(record.body)} bytes fits no journal file"
            if at > begin and (at - begin == RECORDS_MAX or group_bytes(()) + size + added > room):
                yield records[begin:at], group_bytes(records[begin:at])
                begin, size = at, 0
            size += added
        if begin < len(records):
            yield records[begin:], group_bytes(records[begin:])

    def _write(self, group: Sequence[Record], size: int) -> None:
        assert self._file is not None
        buffers = pack_group(group, self.written, self._sequence, self.durable, self._salt)
        try:
            self._file.pwritev(buffers, self.written.offset)
        except OSError as error:
            if error.errno in FULL:
                self._end_file(error)
            self._fail("a write to the journal failed", error)
        self._sequence += 1
        self.written = Position(self.written.file_id, self.written.offset + size)

    def _end_file(self, error: OSError) -> NoReturn:
        """No room within a preallocated file, as a copy on write takes some. The next records go into another file."""
        assert self._file is not None
        self.sync()
        self._file.close()
        self._file = None
        msg = f"no room to write to the journal ({error}): {_READ_ONLY}"
        raise StorageFullError(msg) from error

    def _roll(self) -> None:
        """Begin the next file. All of the previous one is made durable first: the new header says that it is."""
        self.sync()
        end = self.written
        reused = self._file is None and self._last_header is not None and end.offset == DATA_START
        if reused:  # the last file holds no group: put a fresh one in its place
            assert self._last_header is not None
            header = self._last_header._replace(salt=self._new_salt(), first_sequence=self._sequence)
        elif self._last_header is None:
            header = FileHeader(START.file_id, 0, self._sequence, self._new_salt())
        else:
            header = FileHeader(end.file_id + 1, end.offset, self._sequence, self._new_salt())
        file = self._create(header)
        if self._file is not None:
            self._file.close()
        self._file, self._salt, self._last_header = file, header.salt, header
        self._file_ids.add(header.file_id)
        self.written = self.durable = Position(header.file_id, DATA_START)

    def _create(self, header: FileHeader) -> DiskFile:
        """Create a preallocated file with a durable header under its name. Raises StorageFullError if there is no room."""
        try:
            file = self._spare.take()
        except OSError as error:
            self._refuse_or_fail(error)
        try:
            file.pwritev([pack_file_header(header)], 0)
            file.fdatasync()
            self._disk.rename(TAKEN, file_name(header.file_id))
        except OSError as error:
            file.close()
            self._refuse_or_fail(error)
        try:
            self._disk.sync_directory()
        except OSError as error:
            file.close()
            self._fail("a new journal file could not be made durable", error)
        return file

    def _refuse_or_fail(self, error: OSError) -> NoReturn:
        if error.errno in NO_DESCRIPTORS:
            msg = (
                f"no file descriptor for a journal file ({error}): the bookie is read-only until there is one; "
                "raise the limit of open files (RLIMIT_NOFILE, fs.file-max)"
            )
        elif error.errno in FULL:
            msg = f"no room for a journal file of {self._file_bytes} bytes ({error}): {_READ_ONLY}"
        else:
            self._fail("a new journal file could not be made", error)
        raise StorageFullError(msg) from error

    def _fail(self, what: str, error: OSError) -> NoReturn:
        self._failed = (
            f"{what} ({error}): what is durable is unknown; stop the bookie, its next start replays"
        )
        raise BookieMustStopError(self._failed) from error

    def _check_alive(self) -> None:
        if self._failed is not None:
            raise BookieMustStopError(self._failed)
