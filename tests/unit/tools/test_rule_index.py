"""The index of docs/protocol.md says where each rule is kept, and is current."""

from tests.model.mutants.registry import LISTED
from tests.paths import ROOT
from tools.rule_index.index import BEGIN, PAGE, citations, places, table, with_index


def test_the_index_is_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_index(text), "run make rules"


def test_only_rules_that_exist_are_cited() -> None:
    unknown = {
        rule: [str(path.relative_to(ROOT)) for path in paths]
        for rule, paths in citations().items()
        if rule not in LISTED
    }
    assert unknown == {}


def test_a_rule_shows_its_code_its_tests_and_its_mutants() -> None:
    found = places()
    assert ROOT / "daybook/core/quorum.py" in found[1].code
    assert sum(found[29].tests.values()) > 20
    assert all(name.count(".") == 1 for name in found[29].mutants)
    lines = table(found).splitlines()
    assert len(lines) == 2 + len(LISTED)
    assert "brokers do not remove duplicates yet" in lines[1 + 39]


def test_what_stands_around_the_index_is_kept() -> None:
    written = with_index(PAGE.read_text(encoding="utf-8").replace("| 1 |", "| 99 |"))
    assert written.split(BEGIN)[0] == PAGE.read_text(encoding="utf-8").split(BEGIN)[0]
    assert "| 99 |" not in written
