"""ZooKeeper's request for one watch of a whole tree (`addWatch`, since 3.6), which kazoo lacks."""

from typing import Final

from kazoo.protocol.serialization import int_struct, write_string

_PERSISTENT_RECURSIVE: Final = 1
"""The mode: every change at or below the path is reported, until the connection ends."""


class AddWatch:
    """The request as kazoo's connection sends it. Its answer carries nothing."""

    type: Final = 106

    def __init__(self, path: str) -> None:
        self._path = path

    def serialize(self) -> bytes:
        """The bytes of the request, after its header."""
        return bytes(write_string(self._path)) + bytes(int_struct.pack(_PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> bool:
        """An answer without an error means that the watch is set."""
        return True
