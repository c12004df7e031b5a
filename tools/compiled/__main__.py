"""`python -m tools.compiled DIRECTORY`: replace the pure wheels there by compiled ones, of the same names and contents beside that.

A compiled wheel has the sources too: tracebacks quote them, and a Python of another release falls back on them. The wheels of one run
belong together. Needs mypy's compiler and setuptools (uv's group `compiled`), a C compiler, and the headers of the Python that runs this.
"""

import base64
import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.compiled import MODULES, names
from tools.compiled.suspensions import suspensions_in_handlers

CONFIGURATION: Final = """
[mypy]
# `make check` judges the types, with the stubs of all dependencies; here none are needed, and only what is compiled has to be right
ignore_missing_imports = True
ignore_errors = True

[mypy-{compiled}]
ignore_errors = False
"""
_BUILD: Final = """
import json, sys
from mypyc.build import mypycify
from setuptools import setup
groups = [(files, name) for name, files in json.loads(sys.argv[1]).items()]
paths = [path for files, _ in groups for path in files]
extensions = mypycify(["--config-file=mypy.ini", *paths], opt_level="2", debug_level="0", separate=groups, target_dir="c")
setup(name="compiled", packages=[], ext_modules=extensions, script_args=["-q", "build_ext", "--build-lib", "built"])
"""
"""Runs in the folder of the unpacked wheels: modules are found by the folder in which the compiler runs."""
_HIDDEN: Final = "-fvisibility=hidden"
"""Functions of a library call each other directly, not through the linker's table."""
_APART: Final = "--param=builtin-expect-probability=100"
"""What mypyc says is unlikely, the handling of errors, goes to a part of the library of its own. GCC alone knows this."""
_GCC: Final = "Free Software Foundation"
"""GCC says so when it is asked for its version."""


class CannotCompileError(Exception):
    """The wheels cannot be compiled here; the message says why."""


def main() -> int:
    """Compile; 1 if that is not possible here."""
    (directory,) = map(Path, sys.argv[1:])
    try:
        for wheel in compile_wheels(directory, MODULES):
            print(wheel)
    except CannotCompileError as error:
        print(f"tools.compiled: {error}", file=sys.stderr)
        return 1
    return 0


def compile_wheels(directory: Path, modules: Mapping[str, tuple[str, ...]]) -> list[Path]:
    """Replace the wheel of each distribution in `modules`; the new ones. Raises CannotCompileError."""
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        pure = {name: _pure_wheel(directory, name) for name in modules}
        for wheel in pure.values():
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(tree)
        _refuse_suspensions(tree, modules)
        _build(tree, modules)
        compiled = [
            _repack(pure[name], _libraries(tree / "built", name, files)) for name, files in modules.items()
        ]
    for wheel in pure.values():
        wheel.unlink()
    return compiled


def _refuse_suspensions(tree: Path, modules: Mapping[str, tuple[str, ...]]) -> None:
    for files in modules.values():
        for file in files:
            lines = suspensions_in_handlers((tree / file).read_text(encoding="utf-8"))
            if lines:
                msg = (
                    f"{file} waits while it handles an exception, in lines {lines}: compiled, it would exchange"
                    " its exception for another task's; take it off the list of tools/compiled"
                )
                raise CannotCompileError(msg)


def _pure_wheel(directory: Path, name: str) -> Path:
    found = list(directory.glob(f"{name}-*-py3-none-any.whl"))
    if len(found) != 1:
        msg = (
            f"{directory} has {len(found)} pure wheels of {name}, one is needed: `uv build --wheel` makes it"
        )
        raise CannotCompileError(msg)
    return found[0]


def _build(tree: Path, modules: Mapping[str, tuple[str, ...]]) -> None:
    compiled = ",".join(name for files in modules.values() for name in names(files))
    (tree / "mypy.ini").write_text(CONFIGURATION.format(compiled=compiled), encoding="utf-8")
    command = [sys.executable, "-c", _BUILD, json.dumps(modules)]
    # mypyc finds the sources in the folder, and no other copy of Daybook; the libraries keep no path of this machine's Python
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    compiler = environment.setdefault("CC", "cc")
    flags = f"{environment.get('CFLAGS', '')} {flags_for(compiler)}"
    environment |= {"CFLAGS": flags, "LDSHARED": f"{compiler} -shared", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        msg = (
            "mypyc or the C compiler failed (gcc, libc's headers and those of Python are needed: on Debian gcc and "
            f"python3-dev):\n{(done.stdout + done.stderr)[-4000:]}"
        )
        raise CannotCompileError(msg)


def flags_for(compiler: str) -> str:
    """What keeps the code that runs close together, for the processors' caches."""
    try:
        done = subprocess.run(
            [*shlex.split(compiler), "--version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return _HIDDEN  # the build says what is missing
    return f"{_HIDDEN} {_APART}" if _GCC in done.stdout else _HIDDEN


def _libraries(built: Path, name: str, files: tuple[str, ...]) -> dict[str, bytes]:
    """What was built for a distribution: a library for all its modules, and one for each, which leads there."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    paths = [f"{name}__mypyc{suffix}", *(f"{file.removesuffix('.py')}{suffix}" for file in files)]
    return {path: (built / path).read_bytes() for path in paths}


def _repack(wheel: Path, added: Mapping[str, bytes]) -> Path:
    """A wheel with `added`, for the Python and the platform that run this, beside the one without."""
    name, version, *_ = wheel.stem.split("-")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        contents = {each.filename: archive.read(each) for each in archive.infolist() if not each.is_dir()}
    contents |= added
    lines = contents[f"{info}/WHEEL"].decode().splitlines()
    kept = [line for line in lines if line and not line.startswith(("Root-Is-Purelib:", "Tag:"))]
    contents[f"{info}/WHEEL"] = "\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {tag}", ""]).encode()
    record = f"{info}/RECORD"
    del contents[record]
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in contents.items()]
    contents[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    made = wheel.with_name(f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return made


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    sys.exit(main())
