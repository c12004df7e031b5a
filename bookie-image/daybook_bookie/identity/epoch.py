"""The age of a bookie's disks: a number that only rises, on both of them and in ZooKeeper (rule 58).

A disk that was restored from an old snapshot passes every other check and lacks what came later. So the bookie raises
its epoch at each start, each roll of the journal and each minute of writing, at the first write after a pause at once:
on the journal's disk, on the store's, and only then in ZooKeeper. Disks that are behind ZooKeeper are therefore old
ones, and so is one that is behind the other by more than the step that a crash leaves; ZooKeeper behind the disks is
what a crash, or an outage of ZooKeeper, leaves behind. A raise costs two small files and one write in ZooKeeper, on a
thread of its own; nothing on the way of an entry waits for it.
"""

import errno
import json
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from zlib import crc32

from daybook.core.errors import DaybookError
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook_bookie.disk.disk import FULL, Disk, write_durably
from daybook_bookie.journal.format import Position

_LOG: Final = get_logger(__name__)
FILE: Final = "epoch"
_SIZE_MAX: Final = 4096
_UNKNOWN: Final = -1
RAISE_MS: Final = 60_000
"""So much writing may be undone by a restored snapshot without being noticed, while ZooKeeper answers."""
_LOOK_S: Final = 1.0


class Age(NamedTuple):
    """The epochs of the two disks; 0: none was written yet, as before an upgrade; −1: the file is damaged."""

    journal: int
    store: int

    def is_behind(self, in_zookeeper: int) -> bool:
        """Whether one of them went back in time. A crash between the two writes leaves the journal's one ahead."""
        return min(self) < in_zookeeper or self.journal - self.store not in (0, 1) or min(self) == _UNKNOWN


class DiskEpoch:
    """The files."""

    def __init__(self, disks: Mapping[str, Disk], incarnation: str) -> None:
        """Of the bookie's two directories, which are of this incarnation."""
        self._disks = (disks["journal"], disks["store"])
        self._incarnation = incarnation
        self.age = Age(*(self._read(disk) for disk in self._disks))

    def _read(self, disk: Disk) -> int:
        if FILE not in disk.names():
            return 0
        file = disk.open(FILE)
        try:
            text, _, rest = file.read(0, _SIZE_MAX).partition(b"\n")
        finally:
            file.close()
        if rest != f"crc32 {crc32(text):08x}\n".encode():
            return _UNKNOWN
        record = json.loads(text)
        return int(record["epoch"]) if record["incarnation"] == self._incarnation else 0

    def write(self, epoch: int) -> None:
        """Raise both to `epoch`, durably, the journal's first. Raises OSError."""
        record = {"version": 1, "epoch": epoch, "incarnation": self._incarnation}
        text = json.dumps(record, sort_keys=True).encode()
        data = text + b"\n" + f"crc32 {crc32(text):08x}\n".encode()
        for disk in self._disks:
            write_durably(disk, FILE, data)
        self.age = Age(epoch, epoch)

    def step(self) -> int:
        """Raise both by one; the epoch that both durably have. A full disk leaves it as it is. Raises OSError."""
        try:
            self.write(
                self.age.store + 1
            )  # the store's is the lower one, so the journal's gets one ahead at most
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
        tell: Callable[[int], None],
        is_connected: Callable[[], bool],
    ) -> None:
        """`written`: where the journal is; `tell` raises ZooKeeper's, or raises DaybookError; `is_connected`: ZooKeeper would hear."""
        self._disks = disks
        self._written = written
        self._tell = tell
        self._is_connected = is_connected
        self._seen = written()
        self._raised_ms = monotonic_ms()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="epoch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more; what was written since is told once more, so that an old copy is found even after an orderly stop."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
            self.look(at_last=True)

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_S):
            self.look()

    def look(self, *, at_last: bool = False) -> None:
        """Raise the epoch if it is due and ZooKeeper would hear of it; what fails is tried again."""
        written = self._written()
        is_due = (
            at_last or written.file_id != self._seen.file_id or monotonic_ms() - self._raised_ms >= RAISE_MS
        )
        if written == self._seen or not is_due or not self._is_connected():
            return
        try:
            self._tell(self._disks.step())
        except (OSError, DaybookError) as error:
            _LOG.warning("the epoch of the disks was not raised; it will be", reason=str(error))
        else:
            self._seen, self._raised_ms = written, monotonic_ms()
