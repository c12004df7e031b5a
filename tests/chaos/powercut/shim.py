"""The preloaded library: built once into a cache, and put into the environment of the processes that are to be watched."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
_PRELOAD: Final = "LD_PRELOAD"
_DIRS: Final = "POWERCUT_DIRS"


class NoCompilerError(Exception):
    """The library cannot be built here; the message says what is missing."""


def build() -> Path:
    """The library for this source and this machine. Raises NoCompilerError."""
    text = SOURCE.read_bytes()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "daybook" / "powercut"
    library = base / f"shim-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if library.exists():
        return library
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        msg = "power cuts need a C compiler for a library that is preloaded: install gcc or clang, or set CC"
        raise NoCompilerError(msg)
    base.mkdir(parents=True, exist_ok=True)
    aside = library.with_suffix(f".{os.getpid()}.tmp")
    command = [
        compiler,
        "-O2",
        "-Wall",
        "-shared",
        "-fPIC",
        "-o",
        str(aside),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{compiler} could not build {SOURCE}: it needs Linux, glibc and its headers\n{done.stderr}"
        raise NoCompilerError(msg)
    aside.replace(library)
    return library


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
