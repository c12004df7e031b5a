"""Every rule of docs/protocol.md has a test named after it and a mutant that the test notices."""

import re
import subprocess
import sys

import pytest

from tests.model.mutants.registry import LISTED, RULES, WAITING, load_catalog, registered
from tests.model.mutants.runner import has_test
from tests.paths import ROOT
from tools.rule_index.index import named_tests


def test_catalog_can_be_imported_and_names_tests_that_exist() -> None:
    assert load_catalog() == {}
    assert [m.caught_by for m in registered() if m.caught_by and not has_test(m.caught_by)] == []


def test_every_rule_has_a_test_and_a_mutant() -> None:
    load_catalog()
    mutated = {
        m.rule
        for m in registered()
        if re.search(rf"::test_rule_{m.rule:02d}_|::TestRule{m.rule:02d}", m.caught_by)
    }
    tested = named_tests().keys()
    complete = tested & mutated
    missing = {
        rule: [what for what, have in (("test", tested), ("mutant", mutated)) if rule not in have]
        for rule in sorted(RULES - complete)
    }
    assert missing == {}, "write them, or say in WAITING what they wait for"


def test_a_rule_that_waits_has_no_mutant_and_says_for_what() -> None:
    load_catalog()
    assert sorted(WAITING.keys() & {m.rule for m in registered()}) == [], "these have an object now"
    assert WAITING.keys() <= set(LISTED)
    assert all(WAITING.values())


@pytest.mark.timeout(1200)
def test_quick_mutants_are_caught() -> None:
    """Those whose tests start no processes; `make mutants` runs all. Most of a run is waiting, so several run at once."""
    load_catalog()
    if all(m.slow or not m.caught_by for m in registered()):
        pytest.fail("the catalog holds no quick mutant")
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.mutants", "--net", "tests", "--quick", "--jobs", "4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_docs_list_all_rules_in_order() -> None:
    assert len(LISTED) >= 56
    assert list(LISTED) == sorted(set(LISTED))
