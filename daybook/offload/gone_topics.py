"""The folders of topics below a place, and the note that the topic of one is gone (rule 73). daybook/core/topics/offload/gone.py decides."""

import re
from collections.abc import Iterator
from typing import Final

from daybook.core.errors import TopicNameError
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.gone import FoundFiles
from daybook.core.topics.offload.record import name_of
from daybook.offload.rows import topic_files
from daybook.offload.store import file_uri, open_uri, store_errors, topic_folder

_NOTE: Final = "_topic-is-gone"
"""Readers of Parquet leave out what begins with `_`."""
_ESCAPED: Final = re.compile(rb"_([0-9a-f]{2})")


def topics_below(place: str, cluster: str) -> Iterator[TopicName]:
    """The topics of a cluster that have a folder below the place, whole or with an error. Raises OffloadError.

    A folder whose name no topic has is nobody's, and left out.
    """
    root = file_uri(place, cluster)
    for tenant in _folders_in(root):
        for namespace in _folders_in(file_uri(root, tenant)):
            for local in _folders_in(file_uri(root, tenant, namespace)):
                try:
                    topic = TopicName(*map(_unescaped, (tenant, namespace, local)))
                except (TopicNameError, UnicodeDecodeError):
                    continue
                if topic_folder(place, cluster, topic) == file_uri(root, tenant, namespace, local):
                    yield topic


def place_of(file: str) -> str:
    """The place below which a file of a topic is: the inverse of `topic_folder`, and a file's name below it."""
    base, mark, query = file.partition("?")
    return base.rsplit("/", 5)[0] + mark + query


def found_in(folder: str, topic: TopicName) -> tuple[FoundFiles, dict[str, list[str]]]:
    """What is in a topic's folder, and the URIs of the files by their names. Raises OffloadError."""
    places: dict[str, list[str]] = {}
    for uri in topic_files(folder):
        places.setdefault(name_of(uri), []).append(uri)
    note = places.pop(_NOTE, None)
    return FoundFiles(topic, places.keys(), None if note is None else _changed_ms(note[0])), places


def note_uri(folder: str) -> str:
    """Where the note is."""
    return file_uri(folder, _NOTE)


def write_note(folder: str) -> None:
    """Note that the topic is gone; the store says since when. Raises OffloadError."""
    filesystem, path = open_uri(note_uri(folder))
    with store_errors(note_uri(folder)), filesystem.open_output_stream(path) as file:
        file.write(b"The retention job of Daybook found no topic for the files of this folder.\n")


def _folders_in(folder: str) -> list[str]:
    filesystem, path = open_uri(folder)
    from pyarrow import fs

    with store_errors(folder):
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type is fs.FileType.Directory)


def _changed_ms(uri: str) -> int:
    filesystem, path = open_uri(uri)
    from pyarrow import fs

    with store_errors(uri):
        info = filesystem.get_file_info(path)
        if info.type is not fs.FileType.File:
            raise FileNotFoundError(path)
        return int(info.mtime_ns) // 1_000_000


def _unescaped(folder: str) -> str:
    """The inverse of what makes a name of a topic a folder's name. Raises UnicodeDecodeError."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), folder.encode()).decode()
