"""An object store by its URI: `file:///folder`, or `s3://bucket/prefix?region=…&endpoint_override=…&scheme=…`.

Credentials come from the environment and from the files of AWS's tools alone: a URI is stored in topics' lists and appears in logs, so one
with a user or a key in it is refused. A file's URI has the options of its store's, so that whoever reads the list finds the file.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from daybook.core.topics.name import TopicName
from daybook.offload.errors import OffloadError, OffloadFileError, OffloadMissingError

_OPTIONS: Final = {
    "file": frozenset[str](),
    "s3": frozenset({"region", "endpoint_override", "scheme", "force_virtual_addressing"}),
}
_HOW: Final = "use file:///folder or s3://bucket/prefix?region=…&endpoint_override=…"
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9.-]")
_ADVICE: Final = (
    (re.compile("NO_SUCH_BUCKET"), "create the bucket, or correct its name in the URI"),
    (
        re.compile(
            "ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|EXPIRED|UNRECOGNIZED_CLIENT"
        ),
        "the store refuses this process: correct the credentials in its environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or its role, which has to allow listing, reading, writing and deleting below this place",
    ),
    (
        re.compile("NETWORK_CONNECTION"),
        "nothing answers there: correct `endpoint_override`, `scheme` and `region` in the URI, or let this process through to the store",
    ),
)
"""What to do about an error of S3, by the name that AWS's library gives it."""


class Opened(NamedTuple):
    """A place in a file system of PyArrow's."""

    filesystem: Any
    """A `pyarrow.fs.FileSystem`."""
    path: str


def check_uri(uri: str) -> None:
    """Raise OffloadError for what is no URI of an object store, or has credentials in it."""
    try:
        parts = urlsplit(uri)
        options = {
            name
            for name, _ in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        }
        has_credentials = parts.username is not None or parts.password is not None
    except ValueError as error:
        msg = f"{uri[:200]!r} is no URI ({error}): {_HOW}"
        raise OffloadError(msg) from error
    if has_credentials:
        msg = f"the URI {parts.scheme}://…@{(parts.hostname or '')[:200]} has credentials in it: put them into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or into ~/.aws/credentials"
        raise OffloadError(msg)
    if parts.scheme not in _OPTIONS or parts.fragment:
        msg = f"{uri[:200]!r} is no place for offloaded ledgers: {_HOW}"
        raise OffloadError(msg)
    if (parts.scheme == "file") != (not parts.netloc) or not (parts.netloc or len(parts.path) > 1):
        msg = f"{uri[:200]!r} names no folder: {_HOW}"
        raise OffloadError(msg)
    unknown = sorted(options - _OPTIONS[parts.scheme])
    if unknown:
        msg = f"the URI {uri[:200]!r} has the unknown option {unknown[0][:50]!r}: {_HOW}"
        raise OffloadError(msg)


def open_uri(uri: str) -> Opened:
    """The file system and the path of a URI. Nothing is asked of the store yet. Raises OffloadError, OffloadMissingError."""
    check_uri(uri)
    try:
        from pyarrow import fs
    except ImportError as error:
        raise OffloadMissingError from error
    with store_errors(uri):
        return Opened(*fs.FileSystem.from_uri(uri))


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turn PyArrow's errors into OffloadError, and those of a file into OffloadFileError."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError as error:
        msg = f"{uri} does not exist: bring it back from a backup or a former version of the bucket, at this place"
        raise OffloadFileError(msg) from error
    except OSError as error:
        msg = f"{uri} cannot be used ({str(error)[:300]}): {_advice(str(error))}"
        raise OffloadError(msg) from error
    except (ArrowException, ValueError) as error:
        msg = f"{uri} is damaged ({str(error)[:300]}): bring it back from a backup or a former version of the bucket"
        raise OffloadFileError(msg) from error


def _advice(problem: str) -> str:
    known = (advice for pattern, advice in _ADVICE if pattern.search(problem))
    return next(known, "check the place, the network, and the credentials in the environment")


def file_uri(uri: str, *below: str) -> str:
    """The URI of what is below the folder `uri`, with its options."""
    base, mark, query = uri.partition("?")
    return "/".join((base.rstrip("/"), *below)) + mark + query


def split_uri(uri: str) -> tuple[str, str]:
    """The folder of a file, with the options of its store, and its name."""
    base, mark, query = uri.partition("?")
    folder, _, name = base.rpartition("/")
    return folder + mark + query, name


def topic_folder(uri: str, cluster: str, topic: TopicName) -> str:
    """Where the files of a topic are, below the place `uri`; `cluster` is the identity of the cluster, since others may use the place."""
    return file_uri(uri, _safe(cluster), _safe(topic.tenant), _safe(topic.namespace), _safe(topic.local))


def _safe(name: str) -> str:
    """One folder's name for each name, without what a URI or a store would read as something else."""
    text = _UNSAFE.sub(lambda found: b"_%02x" % found.group()[0], name.encode()).decode()
    return f"_2e{text[1:]}" if text.startswith(".") else text


def files_in(folder: str) -> list[str]:
    """The URIs of the files in a folder; none if it does not exist. Raises OffloadError."""
    filesystem, path = open_uri(folder)
    from pyarrow import fs

    with store_errors(folder):
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(file_uri(folder, info.base_name) for info in found if info.type is fs.FileType.File)


def size_of(uri: str) -> int:
    """The size of a file in bytes. Raises OffloadFileError if it does not exist, OffloadError."""
    filesystem, path = open_uri(uri)
    from pyarrow import fs

    with store_errors(uri):
        info = filesystem.get_file_info(path)
        if info.type is not fs.FileType.File:
            raise FileNotFoundError(path)
        return int(info.size)


def delete_file(uri: str) -> None:
    """Delete a file; nothing happens if it does not exist. Raises OffloadError."""
    filesystem, path = open_uri(uri)
    try:
        with store_errors(uri):
            filesystem.delete_file(path)
    except OffloadFileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise


def move_file(uri: str, to: str) -> None:
    """Move a file to another place in its store, where it is whole at once; nothing happens if it does not exist. Raises OffloadError."""
    filesystem, path = open_uri(uri)
    from pyarrow import fs

    try:
        with store_errors(uri):
            filesystem.move(path, open_uri(to).path)
    except OffloadError:
        with store_errors(uri):
            info = filesystem.get_file_info(path)
        if info.type is not fs.FileType.NotFound:
            raise


def make_folder(uri: str) -> None:
    """Make a folder of a local directory; S3 has none. Raises OffloadError."""
    filesystem, path = open_uri(uri)
    if filesystem.type_name == "local":
        with store_errors(uri):
            filesystem.create_dir(path, recursive=True)


def make_durable(uri: str) -> None:
    """Sync a file that was written and closed: PyArrow does not sync local files. Raises OffloadError."""
    filesystem, path = open_uri(uri)
    if filesystem.type_name != "local":
        return
    with store_errors(uri):
        for each in (Path(path), *Path(path).parents):
            opened = os.open(each, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
