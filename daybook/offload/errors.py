"""What goes wrong with the files of offloaded ledgers. None of it is the end of a ledger: readers wait, or fail (rule 70)."""

from daybook.core.errors import DaybookError


class OffloadError(DaybookError):
    """The object store, or a file in it, cannot be used now. Its text says which one and what to do."""


class OffloadFileError(OffloadError):
    """A file is missing, damaged, or not what the list of its topic says."""


class OffloadMissingError(OffloadError):
    """This process has no PyArrow."""

    def __init__(self) -> None:
        """Say what to install."""
        super().__init__(
            "offloaded ledgers need PyArrow, which is not installed: install the extra `offload` (`uv sync --inexact --extra offload` in a checkout)"
        )
