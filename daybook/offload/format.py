"""The file of an offloaded ledger: Parquet with the columns ledger, entry, crc and data, a row for each entry, in order from entry 0 on.

`crc` is the entry's own, which its writer computed (over ledger id, entry id and payload), so each entry is verified from end to end
whenever it is read. Row groups are what a reader fetches at once: about 4 MiB, and more only by one last entry, which has 8 MiB at most.
"""

from typing import Any, Final

FORMAT_VERSION: Final = 1
ROW_GROUP_BYTES: Final = 4 * 1024 * 1024
"""A row group ends once it has so many bytes of payload,"""
ROW_GROUP_ENTRIES: Final = 16_384
"""or so many entries."""
ROW_GROUP_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a row group's columns before compression: nothing that claims more is decoded."""
COLUMNS: Final = ("ledger", "entry", "crc", "data")
_VERSION_KEY: Final = b"daybook.formatVersion"


def schema() -> Any:
    """The `pyarrow.Schema` of a file."""
    import pyarrow as pa

    types = (pa.int64(), pa.int64(), pa.uint32(), pa.binary())
    fields = [pa.field(name, kind, nullable=False) for name, kind in zip(COLUMNS, types, strict=True)]
    return pa.schema(fields, {_VERSION_KEY: str(FORMAT_VERSION).encode()})


def check_schema(found: Any) -> None:
    """Raise ValueError unless a file with the `pyarrow.Schema` `found` is one that this release reads."""
    version = (found.metadata or {}).get(_VERSION_KEY)
    if version != str(FORMAT_VERSION).encode():
        msg = f"it has format {version!r}, and this release reads {FORMAT_VERSION}"
        raise ValueError(msg)
    if not found.equals(schema()):
        msg = f"it has the columns {found.names[:10]}, and not {list(COLUMNS)}"
        raise ValueError(msg)
