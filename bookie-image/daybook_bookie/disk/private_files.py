"""What a bookie keeps is for its own user: entries lie unencrypted on the disk, and the store has the keys of ledgers.

Files are made with 0600 and directories with 0700. What an older version, a restored backup or a mount left open is
closed at each start. A directory with the setgid bit is a volume whose group Kubernetes manages (`fsGroup`): its group
keeps its rights, because the kubelet would give it all files at the next mount otherwise; the files in it are 0600 all
the same, since the pod's user owns them.
"""

import os
import stat
from pathlib import Path
from typing import Final

from daybook.runtime.logs import get_logger

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
_GROUP: Final = 0o070
_NOT_THE_OWNERS: Final = 0o077

_LOG: Final = get_logger(__name__)


def make_private(directory: Path) -> None:
    """Take from group and others what they may do with `directory` and the files in it; warn where that is refused."""
    refused = [str(path) for path in (directory, *sorted(directory.iterdir())) if not _close(path)]
    if refused:
        _LOG.warning(
            "others may read this bookie's data, and this user may not change that: give it the files",
            paths=refused,
            uid=os.geteuid(),
        )


def _close(path: Path) -> bool:
    """Whether nobody else may use `path` now."""
    found = path.lstat().st_mode
    if stat.S_ISLNK(found):
        return True  # its own mode says nothing, and what it points to is not this directory's
    managed = stat.S_ISDIR(found) and found & stat.S_ISGID
    excess = found & (_NOT_THE_OWNERS & ~_GROUP if managed else _NOT_THE_OWNERS)
    if not excess:
        return True
    try:
        path.chmod(stat.S_IMODE(found) & ~excess)
    except OSError:
        return False
    return True
