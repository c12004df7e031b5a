"""The file of an export: lines of JSON in gzip, one for each node, so that neither side holds more than a line.

The first line says what the file is, and of which cluster; the last one how many nodes it has. Each line begins with
the CRC32C of all bytes of the file up to its end, so that a changed, missing, added or moved line is an error that names
the line, and so is a file that ends early. A file that was read to its last line is therefore whole.

A node of another encoding than UTF-8 is in base64. Paths are relative to the cluster's own node, so that a cluster can be
imported under another name.
"""

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

from crc32c import crc32c

from daybook.core.errors import MetadataError
from daybook.metadata.store.store import NODE_BYTES_MAX

FORMAT_VERSION: Final = 1
KIND: Final = "daybook-metadata"

LINE_BYTES_MAX: Final = 6 * NODE_BYTES_MAX + 100_000
"""JSON writes a byte of a node as six at most; a path is short beside that."""
_CHECKSUM_CHARACTERS: Final = 8
_PRIVATE: Final = 0o600
"""The file has the hashes of passwords."""


class BackupFileError(MetadataError):
    """The file is no whole export of metadata."""


@dataclass(frozen=True, slots=True)
class Header:
    """What an export is of. `exported_at_ms` is wall-clock time, for people."""

    cluster: str
    instance_id: str
    exported_at_ms: int


class ExportedNode(NamedTuple):
    """A node; `path` is relative to the cluster's own node."""

    path: str
    data: bytes


class ExportWriter:
    """Writes the lines of one file; `create` makes it."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._checksum = 0
        self._nodes = 0

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._write(
            {
                "kind": KIND,
                "formatVersion": FORMAT_VERSION,
                "cluster": header.cluster,
                "instanceId": header.instance_id,
                "exportedAtMs": header.exported_at_ms,
            }
        )

    def write(self, node: ExportedNode) -> None:
        """Write a node."""
        try:
            record = {"path": node.path, "text": node.data.decode()}
        except UnicodeDecodeError:
            record = {"path": node.path, "base64": base64.b64encode(node.data).decode()}
        self._write(record)
        self._nodes += 1

    def end(self) -> None:
        """Write the last line."""
        self._write({"nodes": self._nodes})

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")).encode()
        self._checksum = crc32c(line, self._checksum)
        self._file.write(b"%08x %s\n" % (self._checksum, line))


@contextmanager
def create(path: Path) -> Iterator[ExportWriter]:
    """Write the file at `path`; it gets its name once it is whole and on the disk, and never without being whole.

    Raises BackupFileError if a file of that name exists, OSError.
    """
    if path.exists():
        msg = f"{path} exists: choose another name, or remove it first"
        raise BackupFileError(msg)
    unfinished = path.with_name(f"{path.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                yield ExportWriter(packed)
            raw.flush()
            os.fsync(raw.fileno())
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


class ExportReader:
    """Reads the lines of one file; `open_export` makes it."""

    def __init__(self, path: Path, file: gzip.GzipFile) -> None:
        self._path = path
        self._file = file
        self._checksum = 0
        self._line = 0
        self.header = self._read_header()

    def nodes(self) -> Iterator[ExportedNode]:
        """The nodes, parents before their children. Raises BackupFileError, at the latest at the end if the file is not whole."""
        nodes = 0
        while "nodes" not in (record := self._next()):
            nodes += 1
            yield self._node(record)
        if record["nodes"] != nodes:
            self._refuse(f"it has {nodes} nodes, and its last line says {record['nodes']}")
        if self._read_line():
            self._refuse("something follows its last line")

    def _read_header(self) -> Header:
        try:
            record = self._next()
        except BackupFileError as error:
            msg = f"{self._path} is no export of metadata, or its beginning is damaged: {error}"
            raise BackupFileError(msg) from error
        if record.get("kind") != KIND:
            msg = f"{self._path} is no export of metadata: make one with `daybook metadata export`"
            raise BackupFileError(msg)
        if record.get("formatVersion") != FORMAT_VERSION:
            msg = (
                f"{self._path} has format {record.get('formatVersion')}, this release reads {FORMAT_VERSION}: "
                "import it with the release that wrote it"
            )
            raise BackupFileError(msg)
        try:
            return Header(str(record["cluster"]), str(record["instanceId"]), int(record["exportedAtMs"]))
        except (KeyError, TypeError, ValueError):
            self._refuse("its header lacks a field")

    def _node(self, record: dict[str, Any]) -> ExportedNode:
        try:
            data = (
                base64.b64decode(record["base64"], validate=True)
                if "base64" in record
                else record["text"].encode()
            )
            return ExportedNode(str(record["path"]), data)
        except (KeyError, ValueError, AttributeError, TypeError):
            self._refuse("this is no record of a node")

    def _next(self) -> dict[str, Any]:
        line = self._read_line()
        if not line.endswith(b"\n"):
            self._refuse(
                "the line is too long"
                if len(line) > LINE_BYTES_MAX
                else "the file ends early: it was cut short"
            )
        body = line[_CHECKSUM_CHARACTERS + 1 : -1]
        self._checksum = crc32c(body, self._checksum)
        if line[: _CHECKSUM_CHARACTERS + 1] != b"%08x " % self._checksum:
            self._refuse("its checksum does not match")
        try:
            record = json.loads(body)
        except ValueError:
            self._refuse("this is no JSON")
        if not isinstance(record, dict):
            self._refuse("this is no record")
        return record

    def _read_line(self) -> bytes:
        self._line += 1
        try:
            return self._file.readline(LINE_BYTES_MAX + 1)
        except EOFError:
            self._refuse("the file ends early: it was cut short")
        except (gzip.BadGzipFile, zlib.error) as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> NoReturn:
        msg = f"{self._path} is damaged at line {self._line}: {why}; copy it again, or use another export"
        raise BackupFileError(msg)


@contextmanager
def open_export(path: Path) -> Iterator[ExportReader]:
    """Read the file at `path`. Raises BackupFileError if it does not begin as an export does, OSError."""
    raw: BinaryIO
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw, mode="rb") as packed:
        yield ExportReader(path, packed)
