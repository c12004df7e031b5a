"""The epoch of a bookie's disks: a number that only rises, on both disks and in ZooKeeper (rule 58).

A disk that was restored from an old snapshot passes every other check and lacks what came later. So the bookie raises
its epoch at each start, each roll of the journal and each minute of writing, and at once at the first write after a pause:
on the journal's disk, on the store's, and only then in ZooKeeper. Disks that are behind ZooKeeper are therefore old, and
so is a disk that is behind the other by more than the step that a crash leaves; a crash, or an outage of ZooKeeper, leaves
ZooKeeper behind the disks. A raise costs two small files and one write in ZooKeeper, on a thread of its own; no entry
waits for it.
"""

import errno
import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import FULL, Disk
from daybook_bookie.disk.small_files import read_whole, with_checksum, without_checksum, write_durably
from daybook_bookie.journal.format import Position
from daybook_bookie.poller import Poller

_LOG: Final = get_logger(__name__)
FILE: Final = "epoch"
_UNKNOWN: Final = -1
RAISE_MS: Final = 60_000
"""How much writing a restored snapshot may undo without being noticed, while ZooKeeper answers."""
_POLL_S: Final = 1.0


class Age(NamedTuple):
    """The epochs of the two disks; 0: no epoch was written yet, as before an upgrade; −1: the file is damaged."""

    journal: int
    store: int

    def is_behind(self, in_zookeeper: int) -> bool:
        """Whether a disk went back in time. A crash between the two writes leaves the journal's epoch one ahead."""
        return min(self) < in_zookeeper or self.journal - self.store not in (0, 1) or min(self) == _UNKNOWN


class DiskEpoch:
    """The files on both disks."""

    def __init__(self, disks: Mapping[str, Disk], incarnation: str) -> None:
        """The bookie's two directories are of this incarnation."""
        self._disks = (disks["journal"], disks["store"])
        self._incarnation = incarnation
        self.age = Age(*(self._read(disk) for disk in self._disks))

    def _read(self, disk: Disk) -> int:
        data = read_whole(disk, FILE)
        if data is None:
            return 0
        text = without_checksum(data)
        if text is None:
            return _UNKNOWN
        record = json.loads(text)
        return int(record["epoch"]) if record["incarnation"] == self._incarnation else 0

    def write(self, epoch: int) -> None:
        """Raise both to `epoch`, durably, the journal's first. Raises OSError."""
        data = with_checksum({"version": 1, "epoch": epoch, "incarnation": self._incarnation})
        for disk in self._disks:
            write_durably(disk, FILE, data)
        self.age = Age(epoch, epoch)

    def step(self) -> int:
        """Raise both by one; the epoch that both durably have. On a full disk it does not change. Raises OSError."""
        try:
            # from the store's epoch, which is the lower one, so that the journal's is never more than one ahead
            self.write(self.age.store + 1)
        except OSError as error:
            if error.errno not in (*FULL, errno.EROFS):
                raise
            _LOG.warning("no room to raise the epoch of the disks", reason=str(error))
        return self.age.store


class EpochKeeper:
    """Raises the epoch while the bookie writes."""

    def __init__(
        self,
        disks: DiskEpoch,
        written: Callable[[], Position],
        publish: Callable[[int], None],
        is_connected: Callable[[], bool],
    ) -> None:
        """`written`: the journal's end; `publish` raises the epoch in ZooKeeper, or raises DaybookError."""
        self._disks = disks
        self._written = written
        self._publish = publish
        self._is_connected = is_connected
        self._seen = written()
        self._raised_ms = monotonic_ms()
        self._poller = Poller(
            "epoch", _POLL_S, self.poll, failed="the epoch of the disks could not be polled"
        )

    def start(self) -> None:
        """Start the thread."""
        self._poller.start()

    def close(self) -> None:
        """Raise the epoch once more if anything was written, so that an old copy is found even after an orderly stop."""
        if self._poller.close():
            self.poll(at_last=True)

    def poll(self, *, at_last: bool = False) -> None:
        """Raise the epoch if that is due and ZooKeeper is connected; the next poll retries what fails."""
        written = self._written()
        is_due = (
            at_last or written.file_id != self._seen.file_id or monotonic_ms() - self._raised_ms >= RAISE_MS
        )
        if written == self._seen or not is_due or not self._is_connected():
            return
        try:
            self._publish(self._disks.step())
        except (OSError, DaybookError) as error:
            _LOG.warning("the epoch of the disks was not raised yet", reason=str(error))
        else:
            self._seen, self._raised_ms = written, monotonic_ms()
