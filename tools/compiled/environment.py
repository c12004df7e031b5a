"""`python -m tools.compiled.environment UV FOLDER`: make an environment whose `daybook` and bookie are compiled wheels, as in the images.

It is on the same Python as the benches' environment, and has what tests and benches need. Tests, benches and tools themselves come from
this tree, behind the installed packages; PYTHONSAFEPATH keeps the tree's own `daybook` from being found first.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.environment import ROOT, make

PARTS: Final = (
    "--no-install-workspace",
    "--inexact",
    "--extra=local",
    "--extra=demo",
    "--extra=spark",
    "--extra=offload",
    "--group=bench",
    "--group=compiled",
)
PACKAGES: Final = {
    "daybook": "daybook",
    "daybook-bookie": "bookie-image",
    "daybook-broker": "broker-image",
    "daybook-operator": "operator",
    "daybook-spark": "spark-jobs",
}
"""The distributions, and where their sources are."""


def main() -> int:
    """0 when there is an environment."""
    uv, folder = sys.argv[1:]
    if make(uv, folder, PARTS) is None:
        return 1
    place = ROOT / folder
    stamp = place / "compiled-from"
    key = _key()
    if stamp.exists() and stamp.read_text() == key:
        return 0
    stamp.unlink(missing_ok=True)
    python, wheels = place / "bin" / "python", place / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    print("compiling (minutes, whenever a source changed)", flush=True)
    for package in PACKAGES:
        _run(uv, "build", "--quiet", "--wheel", "--package", package, "--out-dir", wheels)
    _run(python, "-m", "tools.compiled", wheels)
    _run(
        uv, "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", python, *wheels.glob("*.whl")
    )
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "tree.pth").write_text(f"{ROOT}\n")
    stamp.write_text(key)
    return 0


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True, cwd=ROOT)


def _key() -> str:
    """A key of everything that goes into the wheels."""
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources() -> Iterator[Path]:
    for name in ("pyproject.toml", "uv.lock", "tools/compiled", *PACKAGES.values()):
        path = ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (each for each in files if each.is_file() and "__pycache__" not in each.parts)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
