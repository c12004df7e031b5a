"""The pytest side of a mutant run: applies one mutant before collection and writes down what each test did.

Before collection, because a test module that imports a patched name must get the patched one. Loaded only by
`tests.model.mutants.runner`, with `-p tests.model.mutants.plugin --mutant NAME --mutant-report FILE`.
"""

import json
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from tests.model.mutants.registry import find, load_catalog

_PATCH: Final = pytest.MonkeyPatch()
_SEEN: Final[list[dict[str, str]]] = []
_CUT: Final = 400
_SLIPS: Final = (AttributeError, NameError, TypeError)
"""What the code of a mutant raises once the code that it changes has changed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("mutants")
    group.addoption(
        "--mutant", default="", help="the mutant to apply; none for a run of the tests as they are"
    )
    group.addoption(
        "--mutant-report", required=False, default="", help="the file that gets the outcomes, as JSON"
    )


def pytest_configure() -> None:
    """Make property tests repeatable, and keep a mutant's counterexamples out of the developer's database."""
    hypothesis.settings.register_profile("mutants", database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Take the rule out."""
    name = session.config.getoption("--mutant")
    if not name:
        return
    load_catalog()
    try:
        find(name).apply(_PATCH)
    except Exception as error:
        _note(name, "patch", "failed", f"{type(error).__name__}: {error}")
        raise


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that cannot be imported: that is no test turning red."""
    if report.failed:
        _note(report.nodeid, "collect", report.outcome, str(report.longrepr))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of each phase of a test."""
    _note(report.nodeid, report.when, report.outcome, report.longreprtext)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note a failure that the mutant's own code causes."""
    name = item.config.getoption("--mutant")
    if name and call.excinfo is not None and isinstance(call.excinfo.value, _SLIPS):
        module = call.excinfo.traceback[-1].frame.f_globals["__name__"]
        if module == find(name).apply.__module__:
            _note(name, "mutant", "failed", f"{call.excinfo.typename}: {call.excinfo.value}")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Put the rule back and write the report."""
    _PATCH.undo()
    target = config.getoption("--mutant-report")
    if target:
        Path(target).write_text(json.dumps(_SEEN), encoding="utf-8")


def _note(nodeid: str, when: str, outcome: str, text: str) -> None:
    """Remember the end of `text`: that is where pytest puts the reason."""
    _SEEN.append({"nodeid": nodeid, "when": when, "outcome": outcome, "text": text[-_CUT:]})
