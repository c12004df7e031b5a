"""The index of docs/protocol.md: for each rule the code that cites it, the tests named after it, and its mutants.

It rests on three conventions that tests keep: code cites "rule 45" literally (tests/test_tidy.py), a rule's test is called
`test_rule_45_…` (tests/model/mutants/test_rules.py), and a mutant names its rule when it registers itself.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.model.mutants.registry import LISTED, WAITING, load_catalog, registered
from tests.paths import ROOT

PAGE: Final = ROOT / "docs" / "protocol.md"
BEGIN: Final = "<!-- the index of rules: written by `make rules` -->"
END: Final = "<!-- the end of the index -->"

CODE: Final = ("daybook", "bookie-image", "broker-image", "operator", "spark-jobs")
"""The folders whose citations are listed. A test that cites a rule is listed only if it is named after it."""

_SHORT: Final[Mapping[str, str]] = {
    "daybook/": "",
    "bookie-image/daybook_bookie/": "bookie/",
    "broker-image/daybook_broker/": "broker/",
    "operator/daybook_operator/": "operator/",
    "spark-jobs/daybook_spark/": "spark/",
    "tests/": "",
}
"""What stands for a folder in the names of links."""

_CITED: Final = re.compile(r"\brule (\d{1,2})\b", re.IGNORECASE)
_TEST_OF_RULE: Final = re.compile(r"^\s*(?:async )?def test_rule_(\d\d)_|^TestRule(\d\d)\w* = ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Places:
    """Where one rule is kept, each list in alphabetical order."""

    code: tuple[Path, ...]
    tests: Mapping[Path, int]
    """How many tests of each file are named after the rule."""
    mutants: tuple[str, ...]


def citations() -> dict[int, tuple[Path, ...]]:
    """The files of the code that cite each rule."""
    found: defaultdict[int, set[Path]] = defaultdict(set)
    for path in _files(CODE):
        for match in _CITED.finditer(path.read_text(encoding="utf-8")):
            found[int(match[1])].add(path)
    return {rule: tuple(sorted(paths)) for rule, paths in found.items()}


def named_tests() -> dict[int, Counter[Path]]:
    """How many tests each file has that are named after each rule."""
    found: defaultdict[int, Counter[Path]] = defaultdict(Counter)
    for path in _files(("tests",)):
        if path.name.startswith("test_"):
            for match in _TEST_OF_RULE.finditer(path.read_text(encoding="utf-8")):
                found[int(match[1] or match[2])][path] += 1
    return dict(found)


def places() -> dict[int, Places]:
    """Where each listed rule is kept. Raises RuntimeError if a module of mutants cannot be imported."""
    failures = load_catalog()
    if failures:
        msg = f"the catalog of mutants cannot be imported: {failures}"
        raise RuntimeError(msg)
    code, tests = citations(), named_tests()
    mutants: defaultdict[int, list[str]] = defaultdict(list)
    for mutant in registered():
        mutants[mutant.rule].append(mutant.name)
    return {
        rule: Places(
            code.get(rule, ()),
            dict(sorted(tests.get(rule, Counter()).items())),
            tuple(sorted(mutants[rule])),
        )
        for rule in LISTED
    }


def with_index(text: str) -> str:
    """The page's text with its index replaced by a current one. Raises ValueError if the two marks are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        msg = f"{PAGE.name} has no place for the index: write the lines {BEGIN!r} and {END!r}"
        raise ValueError(msg)
    return f"{before}{BEGIN}\n\n{table(places())}\n{END}{after}"


def table(found: Mapping[int, Places]) -> str:
    """The index as a Markdown table, a line for each rule."""
    lines = ["| rule | code that cites it | tests | mutants |", "|---|---|---|---|"]
    for rule, at in found.items():
        if rule in WAITING:
            lines.append(f"| {rule} | {_links(at.code)} | waits: {WAITING[rule]} | |")
            continue
        tests = ", ".join(f"{_link(path)} {count}" for path, count in at.tests.items())
        mutants = ", ".join(f"`{name}`" for name in at.mutants)
        lines.append(f"| {rule} | {_links(at.code)} | {tests} | {mutants} |")
    return "\n".join(lines) + "\n"


def _files(folders: Iterable[str]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def _links(paths: Iterable[Path]) -> str:
    return ", ".join(_link(path) for path in paths)


def _link(path: Path) -> str:
    """A link from the page to the file, called by its path, shortened."""
    name = str(path.relative_to(ROOT).with_suffix(""))
    for prefix, short in _SHORT.items():
        if name.startswith(prefix):
            name = short + name.removeprefix(prefix)
            break
    return f"[{name}]({os.path.relpath(path, PAGE.parent)})"
