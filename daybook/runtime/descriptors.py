"""How many file descriptors the process may have: as many as it is allowed, for every connection of a client takes one."""

import resource
from typing import Final

from daybook.runtime.logs import get_logger

_LOG: Final = get_logger(__name__)


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # the kernel may allow fewer than the hard limit says (fs.nr_open)
        _LOG.warning("the limit of open files cannot be raised", limit=soft, wanted=hard, reason=str(error))
        return soft
    return hard
