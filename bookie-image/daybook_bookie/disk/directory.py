"""A bookie's directory belongs to one process, and what is in it to that process's user.

Entries are stored unencrypted, and the store has the hashes of ledgers' passwords. So files are created with mode 0600 and
directories with 0700, and each start closes what an older version, a restored backup or a mount left open. A directory
with the setgid bit is a volume whose group Kubernetes manages (`fsGroup`): its group keeps its rights, because the kubelet
would otherwise give that group all files at the next mount; the files in it are 0600 all the same, since the pod's user
owns them.
"""

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from daybook.runtime.logs import get_logger
from daybook_bookie.disk.errors import CookieError

_DIRECTORY_MODE: Final = 0o700
_GROUP: Final = 0o070
_NOT_THE_OWNERS: Final = 0o077

_LOG: Final = get_logger(__name__)


class DirectoryLock:
    """Keeps a second process of the same bookie out of its directories; ends with the process."""

    def __init__(self, *directories: Path) -> None:
        """Create the directories if they are missing, and lock them. Raises CookieError if another process holds one."""
        self._descriptors: list[int] = []
        for directory in dict.fromkeys(directories):
            try:
                directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
                descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                self.close()
                msg = f"{directory} cannot be used as a directory ({error.strerror}): check the path and its owner"
                raise CookieError(msg) from error
            self._descriptors.append(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self.close()
                msg = f"another process uses {directory}: does this bookie run already? Stop it first"
                raise CookieError(msg) from error
            make_private(directory)

    def close(self) -> None:
        """Release the locks."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def make_private(directory: Path) -> None:
    """Take all rights in `directory` and its files from group and others; log a warning where that is not allowed."""
    refused = [str(path) for path in (directory, *sorted(directory.iterdir())) if not _close(path)]
    if refused:
        _LOG.warning(
            "others may read this bookie's data, and this user may not change that: give it the files",
            paths=refused,
            uid=os.geteuid(),
        )


def _close(path: Path) -> bool:
    """Whether only the owner may use `path` now."""
    found = path.lstat().st_mode
    if stat.S_ISLNK(found):
        return True  # its own mode means nothing, and what it points to is not in this directory
    managed = stat.S_ISDIR(found) and found & stat.S_ISGID
    excess = found & (_NOT_THE_OWNERS & ~_GROUP if managed else _NOT_THE_OWNERS)
    if not excess:
        return True
    try:
        path.chmod(stat.S_IMODE(found) & ~excess)
    except OSError:
        return False
    return True
