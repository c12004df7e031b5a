"""Whether what runs in the pods is the code of this tree: a digest of the installed packages, and of their sources.

Images are kept under a key of all that goes into them, wheels and layers under keys of their own; one mistake there, and
a run says something about code that nobody has any more. So the pods themselves are asked.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.paths import ROOT

PACKAGES: Final[Mapping[str, Path]] = {
    "daybook": Path("daybook"),
    "daybook_bookie": Path("bookie-image/daybook_bookie"),
    "daybook_broker": Path("broker-image/daybook_broker"),
    "daybook_operator": Path("operator/daybook_operator"),
    "daybook_spark": Path("spark-jobs/daybook_spark"),
}
IN_POD: Final = """
import hashlib, importlib.util, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec(sys.argv[1]).origin).parent
digest = hashlib.sha256()
for file in sorted(folder.rglob("*.py")):
    digest.update(f"{file.relative_to(folder)}\\0".encode() + file.read_bytes())
print(digest.hexdigest())
"""
"""The digest of an installed package, the same as `digest_of` of its sources."""


def digest_of(package: str, tree: Path = ROOT) -> str:
    """A digest of the package's sources in `tree`."""
    folder, digest = tree / PACKAGES[package], hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def digests(tree: Path) -> dict[str, str]:
    """Of all packages."""
    return {package: digest_of(package, tree) for package in PACKAGES}
