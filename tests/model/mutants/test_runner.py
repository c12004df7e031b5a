"""The runner calls a mutant caught only when that proves something."""

import json
import subprocess
import sys

from tests.model.mutants.runner import has_test
from tests.paths import ROOT

SCRIPT = """
import json, sys
from tests.model.mutants import samples
from tests.model.mutants.registry import mutant, registered
from tests.model.mutants.runner import run_mutants

def lower(monkeypatch):
    monkeypatch.setattr(samples, "limit", lambda: 2)

def misspelt(monkeypatch):
    monkeypatch.setattr(samples, "limits", lambda: 2)

def outdated(monkeypatch):
    monkeypatch.setattr(samples, "limit", lambda: samples.limits())

FILE = "tests/model/mutants/samples.py::"
for name, patch, test in [
    ("caught", lower, "test_pins_the_limit"),
    ("survivor", lower, "test_pins_nothing"),
    ("only_a_fixture", lower, "test_depends_on_a_fixture"),
    ("red_anyway", lower, "test_is_red_anyway"),
    ("misspelt", misspelt, "test_pins_the_limit"),
    ("outdated", outdated, "test_pins_the_limit"),
    ("no_such_test", lower, "test_was_renamed"),
]:
    twin = type(patch)(patch.__code__, globals(), name)
    mutant(rule=1, caught_by=FILE + test, why="sample")(twin)
outcomes = {o.mutant.name.split(".")[1]: [o.verdict.value, o.reason] for o in run_mutants(registered(), 2)}
json.dump(outcomes, sys.stdout)
"""


def test_each_kind_of_mutant_gets_its_verdict() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    outcomes = json.loads(done.stdout)
    verdicts = {name: verdict for name, (verdict, _) in outcomes.items()}
    assert verdicts == {
        "caught": "caught",
        "survivor": "survived",
        "only_a_fixture": "broken",
        "red_anyway": "broken",
        "misspelt": "broken",
        "outdated": "broken",
        "no_such_test": "broken",
    }
    assert "failed in setup" in outcomes["only_a_fixture"][1]
    assert "not green without the mutant" in outcomes["red_anyway"][1]
    assert "has no attribute" in outcomes["misspelt"][1]
    assert "its own code fails" in outcomes["outdated"][1]
    assert "no such test" in outcomes["no_such_test"][1]


def test_a_test_is_found_by_function_class_and_assignment() -> None:
    assert has_test("tests/model/mutants/test_runner.py::test_each_kind_of_mutant_gets_its_verdict")
    assert has_test("tests/model/mutants/test_runner.py::SCRIPT")
    assert not has_test("tests/model/mutants/test_runner.py::test_gone")
    assert not has_test("tests/model/mutants/test_gone.py::test_gone")
