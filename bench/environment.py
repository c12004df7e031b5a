"""`python -m bench.environment UV FOLDER`: make the environment in which benches run, on a Python built with optimisation.

That is the newest one on this machine for which everything installs. Where there is none, benches run on the Python that runs this,
and a warning says so.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
OLDEST: Final = (3, 11)
COMPILED: Final = (
    "crc32c",
    "grpcio",
    "lmdb",
    "matplotlib",
    "numpy",
    "pandas",
    "protobuf",
    "pulsar-client",
    "pyarrow",
    "pydantic-core",
)
"""A Python for which these have no wheel is not supported by them: to compile them takes minutes, or fails."""
PARTS: Final = ("--extra=local", "--extra=demo", "--extra=spark", "--group=bench")
"""Beside the default group, dev: `make growth` runs the operator on the control plane of the tests."""


def main() -> int:
    """0 when there is an environment."""
    uv, folder = sys.argv[1:]
    return 0 if make(uv, folder, PARTS) else 1


def make(uv: str, folder: str, parts: Sequence[str]) -> str | None:
    """Make the environment of `parts`; the interpreter it is on, None if something does not install even for the one that runs this."""
    for python in candidates(uv):
        build = about(python)
        if build is None or not build["is_optimised"]:
            continue
        synced = sync(uv, folder, python, parts)
        if not synced.returncode:
            print(f"benches run on {build['build']}")
            return python
        print(f"{python} is left out, because something does not install for it:\n{synced.stderr}")
    synced = sync(uv, folder, sys.executable, parts)
    found = about(sys.executable)
    print(
        f"{synced.stderr}WARNING: this machine has no Python {'.'.join(map(str, OLDEST))} or newer that was built"
    )
    print(
        "with optimisation (--enable-optimizations) and that all dependencies support: all figures will be too low."
    )
    print(f"benches run on {found and found['build']}")
    return None if synced.returncode else sys.executable


def candidates(uv: str) -> list[str]:
    """The interpreters of this machine, the newest first."""
    command = [uv, "python", "list", "--only-installed", "--output-format", "json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    usable = [
        each
        for each in json.loads(listed)
        if each["implementation"] == "cpython" and each["variant"] == "default"
    ]
    found = {each["path"]: tuple(each["version_parts"].values()) for each in usable}
    return sorted(
        (path for path, parts in found.items() if parts >= OLDEST), key=lambda path: found[path], reverse=True
    )


def about(python: str) -> dict[str, Any] | None:
    """What an interpreter says of itself; None if it does not run."""
    command = [python, "-m", "bench.interpreter"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return None if said.returncode else dict(json.loads(said.stdout))


def sync(uv: str, folder: str, python: str, parts: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Make the environment, or bring it up to date."""
    wheels = [f"--no-build-package={name}" for name in COMPILED]
    command = [uv, "sync", "--quiet", "--frozen", *parts, *wheels]
    environment = {**os.environ, "UV_PYTHON": python, "UV_PROJECT_ENVIRONMENT": folder}
    return subprocess.run(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)


if __name__ == "__main__":
    sys.exit(main())
