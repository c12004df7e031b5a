"""docs/admin.md lists what the admin port serves, and nothing else."""

import re

from daybook_broker.admin.server import ROUTES

from tests.paths import ROOT


def test_the_page_lists_every_path_with_its_methods() -> None:
    text = (ROOT / "docs/admin.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z, ]+) \| `(/[^`]*)` \|", text, re.MULTILINE)
    listed = sorted((method, path) for methods, path in rows for method in methods.split(", "))
    assert listed == sorted((method, path.replace(":.+}", "}")) for method, path, _ in ROUTES)
