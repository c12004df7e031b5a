"""What a topic's list says of a ledger that was copied into a file of an object store (rule 70).

The list names the file in one change and gives the replicas up in a later one: in between both exist, and readers use the bookies. From
then on the file is the only copy, so its record stays as it is while the topic has the ledger, or until a job has restored it: then the list
names a copy on bookies in place of the file, in one change (rule 72).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from daybook.core.errors import MetadataError
from daybook.core.ids import MAX_ID, LedgerId, check_integer, check_ledger_id

PLACE_CHARS_MAX: Final = 1_000
"""Of a file's URI: the list of a topic is one node of ZooKeeper, with a row for each ledger."""


def name_of(place: str) -> str:
    """The name in a file's URI: its ledger, the run and the attempt that wrote it.

    Files of a topic are compared by it. One folder has several URIs: with other options, with other slashes, of another address of the store.
    """
    return place.partition("?")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Offload:
    """The file of a closed ledger. Times are ms since 1970 by the clocks of owners. Raises MetadataError for values that cannot be."""

    place: str
    """The file's URI, without credentials."""
    format_version: int
    """Of the file; readers refuse one that they do not know."""
    size_bytes: int
    """Of the file."""
    entries: int
    crc: int
    """CRC32C over the CRCs of all entries in order, each as four bytes, little-endian."""
    offloaded_at_ms: int
    """When the list named the file."""
    replicas_until_ms: int | None
    """From when on the replicas may go; None: they stay."""
    replicas_gone: bool = False
    """Whether the file is the only copy: the bookies have none, or lose theirs just now."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not 0 < len(self.place) <= PLACE_CHARS_MAX:
            _refuse(f"its place has {len(self.place)} characters of 1 to {PLACE_CHARS_MAX}")
        if not 1 <= self.entries <= MAX_ID or min(self.format_version, self.size_bytes) < 1:
            _refuse(
                f"format {self.format_version}, {self.size_bytes} bytes and {self.entries} entries are too little, or too much"
            )
        if not 0 <= self.crc < 1 << 32:
            _refuse(f"{self.crc} is no CRC of 32 bits")

    @property
    def without_replicas(self) -> "Offload":
        """The same once the replicas are given up."""
        return replace(self, replicas_gone=True)

    def to_record(self) -> dict[str, Any]:
        """The stored form; unknown fields that were read are written back."""
        return {
            **self.unknown_fields,
            "place": self.place,
            "formatVersion": self.format_version,
            "size": self.size_bytes,
            "entries": self.entries,
            "crc": self.crc,
            "offloadedAtMs": self.offloaded_at_ms,
            "replicasUntilMs": self.replicas_until_ms,
            "replicasGone": self.replicas_gone,
        }


def offload_of(item: dict[str, Any] | None) -> Offload | None:
    """The inverse of `to_record`. Raises MetadataError, and KeyError, TypeError or ValueError for what is no such record."""
    if item is None:
        return None
    until_ms = item.pop("replicasUntilMs")
    return Offload(
        place=str(item.pop("place")),
        format_version=check_integer(item.pop("formatVersion")),
        size_bytes=check_integer(item.pop("size")),
        entries=check_integer(item.pop("entries")),
        crc=check_integer(item.pop("crc")),
        offloaded_at_ms=check_integer(item.pop("offloadedAtMs")),
        replicas_until_ms=None if until_ms is None else check_integer(until_ms),
        replicas_gone=bool(item.pop("replicasGone")),
        unknown_fields=item,
    )


@dataclass(frozen=True, slots=True)
class Restored:
    """A ledger that was offloaded, and was on bookies alone again. Times are ms since 1970 by the clocks of owners."""

    stored_as: LedgerId | None
    """The ledger with the copy, entry for entry. None: the replicas had not been given up, and are in the ledger itself; or another file is
    the only copy by now, and this is left of the restore for the lag of the former one."""
    place: str
    """The URI of the file that the entries were in, without credentials."""
    file_until_ms: int
    """From when on jobs may delete that file, as one that nobody names."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds. Raises MetadataError."""
        if not 0 < len(self.place) <= PLACE_CHARS_MAX:
            _refuse(f"its former place has {len(self.place)} characters of 1 to {PLACE_CHARS_MAX}")

    def to_record(self) -> dict[str, Any]:
        """The stored form; unknown fields that were read are written back."""
        return {
            **self.unknown_fields,
            "storedAs": self.stored_as,
            "place": self.place,
            "fileUntilMs": self.file_until_ms,
        }


def restored_of(item: dict[str, Any] | None) -> Restored | None:
    """The inverse of `to_record`. Raises as `offload_of`."""
    if item is None:
        return None
    stored_as = item.pop("storedAs")
    return Restored(
        stored_as=None if stored_as is None else check_ledger_id(check_integer(stored_as)),
        place=str(item.pop("place")),
        file_until_ms=check_integer(item.pop("fileUntilMs")),
        unknown_fields=item,
    )


class Kept(NamedTuple):
    """What a list says of where the entries of a closed ledger are."""

    offload: Offload | None
    stored_as: LedgerId | None

    @property
    def is_in_file_alone(self) -> bool:
        """Whether bookies do not have it."""
        return self.offload is not None and self.offload.replicas_gone


def why_illegal(old: Kept, new: Kept) -> str | None:
    """Why an owner may not replace what the list says of one ledger; None if it may."""
    if new == old:
        return None
    if old.is_in_file_alone:
        if new.offload is None and new.stored_as is not None:
            return None
        return (
            "its file is the only copy, so its record stays until a copy on bookies takes its place (rule 72)"
        )
    if new.is_in_file_alone:
        if old.offload is not None and new == Kept(old.offload.without_replicas, None):
            return None
        return "its replicas are given up only once the list has named the file (rule 70)"
    if new.stored_as != old.stored_as:
        return "its replicas are in the ledger that it names, and in no other one (rule 72)"
    return None


def _refuse(why: str) -> None:
    msg = f"the record of an offload is not valid: {why}"
    raise MetadataError(msg)
