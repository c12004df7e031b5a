"""What can be wrong with the bytes of a Pulsar client or of a stored entry.

A broker answers each kind with another error of the protocol, so each has a class of its own.
"""

from daybook.core.errors import DaybookError


class PulsarError(DaybookError):
    """Base of the errors of this package."""


class PulsarFrameError(PulsarError):
    """Bytes that are no frame or no command. Where the next frame begins is unknown: the connection has to end."""


class UnknownCommandError(PulsarError):
    """A command of a later version of the protocol. The frame around it is sound, so the connection continues."""

    def __init__(self, number: int) -> None:
        """Name the command's number, which its type's number in BaseCommand is."""
        super().__init__(
            f"command {number} is not one of this release's: use a client of an earlier version, or switch its feature off"
        )
        self.number = number


class EntryError(PulsarError):
    """An entry whose parts do not fit into it, or whose metadata cannot be read."""


class EntryChecksumError(EntryError):
    """An entry whose CRC32C is not that of its bytes: the producer has to send it again (ServerError.ChecksumError)."""


class CodecMissingError(PulsarError):
    """This process has no PyArrow, so it cannot undo LZ4, ZSTD and SNAPPY."""

    def __init__(self) -> None:
        """Say what to install."""
        super().__init__(
            "payloads in LZ4, ZSTD or SNAPPY need PyArrow, which is not installed: install the extra `offload` (`uv sync --inexact --extra offload` in a checkout)"
        )


class BatchError(EntryError):
    """An entry whose payload is not the batch that its metadata describes."""
