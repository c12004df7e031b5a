"""The journal: what is written here and synced survives; what is answered was synced here first.

A passive piece behind the Disk interface, without a thread, so that it runs under a simulated disk as well: append
groups, sync once, then the caller answers all of them. After a failed write or fsync nobody knows what is durable
(fsyncgate), so the journal refuses everything from then on and the process must stop; the next start replays (rule 23).
A full disk is met at preallocation, before anything is promised, and is no such failure (rule 30), nor is a process without
file descriptors. Files go only when
the store holds all that is in them (rule 24), and no byte is ever written twice, so that stale bytes cannot be mistaken.
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
    START,
    FileHeader,
    Position,
    file_name,
    group_bytes,
    pack_file_header,
    pack_group,
)
from daybook_bookie.journal.records import Record
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.journal.spare import SPARE, SpareFile

_READ_ONLY: Final = "the bookie is read-only until ledgers are deleted or the volume grows"


def _random_salt() -> int:
    return secrets.randbits(32)


class Journal:
    """The writing end. One caller at a time; `written` and `durable` may be read by anyone."""

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
        """Of the files that are there; to list the directory takes a descriptor."""
        self._salt = 0
        self._sequence = replay.next_sequence
        self._last_header = replay.headers.get(replay.end.file_id)
        self._failed: str | None = None
        self._replay = replay
        self._owing = threading.Lock()
        """Held while it is made up for what the replay owes: the store may have all of it meanwhile."""
        self.written = replay.end
        self.durable = replay.mark if replay.is_owed else replay.end
        """Everything before it survives a power cut."""

    def prepare(self) -> None:
        """Create the file that the first append would, so that a journal without files is known to be lost.

        For a new bookie, before its cookies are written. Raises StorageFullError and BookieMustStopError.
        """
        self._check_alive()
        if self._file is None:
            self._roll()

    def make_spare(self) -> None:
        """Make the file ahead of time that the journal begins next; from any thread. Raises OSError: no harm is done."""
        self._spare.make()

    @property
    def has_spare(self) -> bool:
        """Whether the next file is made."""
        return self._spare.is_ready

    def append(self, records: Sequence[Record]) -> Position:
        """Write `records` in order and return where they end; they are durable after `sync`.

        Raises StorageFullError if there is no room for a new file or, copying on write, in this one: some of the records may have been written and may
        come back in a replay, none is promised. Raises BookieMustStopError after any other failure, and ever after.
        """
        self._check_alive()
        self._settle()
        for group in self._groups(records):
            size = group_bytes(group)
            if self._file is None or self.written.offset + size > self._file_bytes:
                self._roll()
            self._write(group, size)
        return self.written

    def sync(self) -> Position:
        """Make everything appended durable and return where that ends.

        Raises StorageFullError as long as there is no room for what a replay owes, and BookieMustStopError.
        """
        self._check_alive()
        self._settle()
        if self._file is not None and self.durable != self.written:
            try:
                self._file.fdatasync()
            except OSError as error:
                self._fail("fdatasync of the journal failed", error)
            self.durable = self.written
        return self.durable

    def trim(self, up_to: Position) -> int:
        """Remove the files that lie wholly before `up_to`, which the store must hold durably; return how many.

        Oldest first, so that a crash in between leaves no gap. Raises BookieMustStopError.
        """
        self._check_alive()
        assert up_to <= max(self.durable, self._replay.end), "the store cannot hold what the journal does not"
        with self._owing:
            if self._is_owing and up_to >= self._replay.end:
                self.durable = self._replay.end  # nobody will read it again
        removed = 0
        try:
            for file_id in sorted(each for each in self._file_ids.copy() if each < up_to.file_id):
                with suppress(FileNotFoundError):
                    self._disk.unlink(file_name(file_id))
                self._file_ids.discard(file_id)
                removed += 1
            if removed:
                self._disk.sync_directory()
        except OSError as error:
            self._fail("a journal file could not be removed", error)
        return removed

    def has_room(self) -> bool:
        """Whether a further file would find room now; from any thread. Raises OSError."""
        return self.has_spare or has_room(self._disk, self._file_bytes)

    def close(self) -> None:
        """Sync, and write an empty group: it records how much was durable, so that later damage is told apart."""
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
    def _is_owing(self) -> bool:
        return self.durable < self._replay.end

    def _settle(self) -> None:
        """Make up for what the replay had no room to write again; nothing may be answered or built on it before."""
        if not self._is_owing:
            return
        with self._owing:
            if not self._is_owing:
                return
            try:
                self._replay.write_again()
            except OSError as error:
                if error.errno not in FULL | NO_DESCRIPTORS:
                    self._fail("the journal's last entries could not be written again", error)
                msg = f"the journal's last entries cannot be written again yet ({error}): {_READ_ONLY}"
                raise StorageFullError(msg) from error
            self.durable = self._replay.end

    def _groups(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """Cut `records` into groups that fit a file and one write call."""
        room = self._file_bytes - DATA_START
        begin = size = 0
        for at, record in enumerate(records):
            added = 8 + len(record.body)
            assert group_bytes([record]) <= room, f"a record of {len(record.body)} bytes fits no journal file"
            if at > begin and (at - begin == RECORDS_MAX or group_bytes(()) + size + added > room):
                yield records[begin:at]
                begin, size = at, 0
            size += added
        if begin < len(records):
            yield records[begin:]

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
        """No room within a preallocated file: copying on write takes some. What comes next goes into another file."""
        assert self._file is not None
        self.sync()
        self._file.close()
        self._file = None
        msg = f"no room to write to the journal ({error}): {_READ_ONLY}"
        raise StorageFullError(msg) from error

    def _roll(self) -> None:
        """Begin the next file. All of the one before is durable first: the new header says so."""
        self.sync()
        end = self.written
        reused = self._file is None and self._last_header is not None and end.offset == DATA_START
        if reused:  # the last file holds nothing that counts: put a fresh one in its place
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
        """A preallocated file with a durable header under its name. Raises StorageFullError when there is no room."""
        try:
            file = self._spare.take()
        except OSError as error:
            self._refuse_or_fail(error)
        try:
            file.pwritev([pack_file_header(header)], 0)
            file.fdatasync()
            self._disk.rename(SPARE, file_name(header.file_id))
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
