"""Records in the metadata store: JSON objects with a `formatVersion`, read with one text for each way in which they can be wrong."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from daybook.core.errors import MetadataError

T = TypeVar("T")


def read_record(
    data: bytes,
    name: str,
    format_version: int,
    make: Callable[[dict[str, Any]], T],
    *,
    article: str = "a ",
    oldest_version: int | None = None,
) -> T:
    """What `make` makes of the fields of the record `data`, which its texts call `article` and `name`.

    `oldest_version` is the first format that `make` reads as well. Raises MetadataError for another format, and for whatever `make`
    raises because a field is missing or is not what it should be.
    """
    try:
        record = json.loads(data)
        version = record.pop("formatVersion")
        oldest = format_version if oldest_version is None else oldest_version
        if version not in range(oldest, format_version + 1):
            msg = (
                f"{article}{name} has format {version}, this release reads {format_version}: upgrade it first"
            )
            raise MetadataError(msg)
        return make(record)
    except MetadataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"this is no {name} ({type(error).__name__}: {str(error)[:200]}): {data[:200]!r}"
        raise MetadataError(msg) from error
