"""The input of the demo: real text, line by line, by default the source of the running Python's standard library."""

import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from daybook.local.cluster_file import ClusterError

BATCH_LINES: Final = 200
NUMBER_BYTES: Final = 9
"""How long the number is with which a message begins."""
_SKIP: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})


def input_files(source: Path | None) -> list[Path]:
    """The files to write, in order: one file, all files below a directory, or the standard library's sources."""
    if source is None:
        library = Path(sysconfig.get_path("stdlib"))
        return sorted(path for path in library.rglob("*.py") if not _SKIP.intersection(path.parts))
    if source.is_file():
        return [source]
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else []
    if not files:
        msg = f"{source} is not a file, and not a directory with files: give the path of the text to write"
        raise ClusterError(msg)
    return files


def lines(files: list[Path]) -> Iterator[bytes]:
    """Every line of every file, with its line end; a line that is larger than an entry may be is cut."""
    for path in files:
        with path.open("rb") as file:
            while line := file.readline(1 << 20):
                yield line


def messages(source: Path | None, count: int) -> Iterator[tuple[str, bytes]]:
    """The first `count` lines as messages: the file's name as key, and the line behind its number."""
    number = 0
    for path in input_files(source):
        with path.open("rb") as file:
            while number < count and (line := file.readline(1 << 20)):
                yield path.name, b"%0*d %s" % (NUMBER_BYTES, number, line)
                number += 1


def batches(source: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Lines in lists of BATCH_LINES."""
    while batch := list(islice(source, BATCH_LINES)):
        yield batch
