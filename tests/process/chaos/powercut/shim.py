"""The preloaded library: built once into a cache, and put into the environment of the processes that are to be watched."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.fixtures.package_index import CannotFetchError, fetch, user_cache

SOURCE: Final = Path(__file__).with_name("shim.c")
ZIG_PACKAGE: Final = "ziglang==0.15.2"
"""Of the Python index, where the machine has no C compiler: fetched when it is needed, since it is large."""
_PRELOAD: Final = "LD_PRELOAD"
_DIRS: Final = "POWERCUT_DIRS"


class NoCompilerError(Exception):
    """The library cannot be built here; the message says what is missing."""


def build() -> Path:
    """The library for this source and this machine. Raises NoCompilerError."""
    text = SOURCE.read_bytes()
    library = user_cache() / "powercut" / f"shim-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = _compiler()
    library.parent.mkdir(parents=True, exist_ok=True)
    aside = library.with_suffix(f".{os.getpid()}.tmp")
    flags = ("-O2", "-Wall", "-shared", "-fPIC", "-o", str(aside), str(SOURCE), "-ldl", "-lpthread")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(user_cache() / "zig")}
    done = subprocess.run([*compiler, *flags], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        msg = f"{' '.join(compiler)} could not build {SOURCE}: it needs Linux, glibc and its headers\n{done.stderr}"
        raise NoCompilerError(msg)
    aside.replace(library)
    return library


def _compiler() -> tuple[str, ...]:
    """A C compiler of this machine, else Zig's, which brings a C library's headers. Raises NoCompilerError."""
    for name in (os.environ.get("CC", "cc"), "gcc", "clang"):
        if found := shutil.which(name):
            return (found,)
    try:
        return (str(fetch(ZIG_PACKAGE, "C compiler", _say) / "ziglang" / "zig"), "cc")
    except CannotFetchError as error:
        msg = (
            "power cuts need a C compiler for a library that is preloaded: install gcc or clang, or set CC; "
            f"{ZIG_PACKAGE}, which brings one, could not be installed:\n{error}"
        )
        raise NoCompilerError(msg) from error


def _say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


def variables(library: Path, directories: Sequence[Path]) -> dict[str, str]:
    """The environment of a process whose files in `directories` are watched."""
    return {_PRELOAD: str(library), _DIRS: ":".join(str(each) for each in directories)}


@contextmanager
def preloaded(library: Path, directories: Sequence[Path]) -> Iterator[None]:
    """Processes that start meanwhile are watched."""
    before = {name: os.environ.get(name) for name in (_PRELOAD, _DIRS)}
    os.environ.update(variables(library, directories))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
