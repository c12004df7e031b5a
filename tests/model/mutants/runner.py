"""Runs mutants, each in a forked child, so that one costs a fraction of a second and none can touch another.

The parent imports pytest once; a child patches, collects one test and runs it. A mutant is caught only if its test
fails in its own body with the patch and passes without it: an import error or a failing fixture proves nothing, and neither does a mutant
whose own code fails, because what it uses has another name by now.
"""

import ast
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import pytest

from tests.model.mutants import plugin
from tests.model.mutants.registry import Mutant
from tests.paths import ROOT

TEST_SECONDS_MAX: Final = 120
_GRACE_SECONDS: Final = 30
_FORK: Final = multiprocessing.get_context("fork")


class Verdict(Enum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "survived"  # the test stayed green without the rule
    BROKEN = "broken"  # the run says nothing about the rule: the reason is beside it


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one mutant."""

    mutant: Mutant
    verdict: Verdict
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    """One pytest run in a child: its tests, and the mutant that is applied (empty: none)."""

    nodeids: tuple[str, ...]
    mutant: str = ""


@dataclass(frozen=True, slots=True)
class _Report:
    """What the plugin wrote down in a child."""

    seen: list[dict[str, str]]
    seconds: float
    tail: str
    """The end of the child's output, for when nothing was written."""


def has_test(nodeid: str, root: Path = ROOT) -> bool:
    """Whether the file of `nodeid` defines that test."""
    file, *names = nodeid.split("::")
    path = root / file
    if not path.is_file():
        return False
    body: Sequence[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for name in names:
        found = [
            node
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name
        ]
        if not found:
            # hypothesis state machines are collected from an assignment: TestX = X.TestCase
            return name == names[0] and any(
                isinstance(node, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
                for node in body
            )
        body = found[0].body
    return True


def run_mutants(mutants: Sequence[Mutant], jobs: int) -> Iterator[Outcome]:
    """Judge `mutants`, at most `jobs` at a time; outcomes come as they are ready."""
    present = [candidate for candidate in mutants if has_test(candidate.caught_by)]
    for absent in mutants:
        if absent not in present:
            yield Outcome(absent, Verdict.BROKEN, 0, f"no such test: {absent.caught_by}")
    by_file: defaultdict[str, set[str]] = defaultdict(set)
    for candidate in present:
        by_file[candidate.caught_by.split("::")[0]].add(candidate.caught_by)
    baseline: dict[str, str] = {}
    plain = [_Run(tuple(sorted(nodeids))) for nodeids in by_file.values()]
    for run, report in _run_all(plain, jobs):
        baseline |= {nodeid: _why_not_green(nodeid, report) for nodeid in run.nodeids}
    patched = {}
    for candidate in present:
        if baseline[candidate.caught_by]:
            reason = f"its test is not green without the mutant: {baseline[candidate.caught_by]}"
            yield Outcome(candidate, Verdict.BROKEN, 0, reason)
        else:
            patched[candidate.name] = candidate
    for run, report in _run_all([_Run((m.caught_by,), m.name) for m in patched.values()], jobs):
        yield _judge(patched[run.mutant], report)


def _judge(mutant: Mutant, report: _Report) -> Outcome:
    """The verdict that follows from what the mutated test did."""
    calls = [note for note in report.seen if note["when"] == "call"]
    for note in report.seen:
        if note["when"] == "mutant":
            return Outcome(mutant, Verdict.BROKEN, report.seconds, f"its own code fails: {note['text']}")
    if any(note["outcome"] == "failed" for note in calls):
        return Outcome(mutant, Verdict.CAUGHT, report.seconds)
    failures = [note for note in report.seen if note["outcome"] == "failed"]
    if failures:
        reason = f"failed in {failures[0]['when']}, not in the test: {failures[0]['text']}"
        return Outcome(mutant, Verdict.BROKEN, report.seconds, reason)
    if any(note["outcome"] == "passed" for note in calls):
        return Outcome(mutant, Verdict.SURVIVED, report.seconds, f"{mutant.caught_by} stays green")
    return Outcome(mutant, Verdict.BROKEN, report.seconds, f"the test did not run: {report.tail}")


def _why_not_green(nodeid: str, report: _Report) -> str:
    """Why the test did not simply pass; empty if it did."""
    notes = [
        n
        for n in report.seen
        if n["nodeid"] == nodeid or n["nodeid"].startswith((f"{nodeid}[", f"{nodeid}::"))
    ]
    for note in notes:
        if note["outcome"] != "passed":
            return f"{note['outcome']} in {note['when']}: {note['text']}"
    return "" if notes else f"it did not run: {report.tail}"


def _run_all(runs: Iterable[_Run], jobs: int) -> Iterator[tuple[_Run, _Report]]:
    """Run each in a child of its own; reports come as children end."""
    queue = list(runs)[::-1]
    running: dict[int, tuple[_Run, BaseProcess, Path, float]] = {}
    with tempfile.TemporaryDirectory(prefix="daybook-mutants-") as folder:
        while queue or running:
            while queue and len(running) < jobs:
                run = queue.pop()
                target = Path(folder) / str(len(queue))
                child: BaseProcess = _FORK.Process(target=_run_child, args=(run, target))
                child.start()
                running[child.sentinel] = (run, child, target, time.monotonic())
            wait(list(running), timeout=1)
            for sentinel, (run, child, target, started) in list(running.items()):
                seconds = time.monotonic() - started
                if child.is_alive() and seconds < TEST_SECONDS_MAX * len(run.nodeids) + _GRACE_SECONDS:
                    continue
                child.kill()
                child.join()
                del running[sentinel]
                yield run, _read_report(target, seconds)


def _read_report(target: Path, seconds: float) -> _Report:
    """What the child left behind."""
    output = target.with_suffix(".out")
    tail = output.read_text(encoding="utf-8", errors="replace")[-600:] if output.exists() else "no output"
    seen = json.loads(target.read_text(encoding="utf-8")) if target.exists() else []
    return _Report(seen, seconds, tail)


def _run_child(run: _Run, target: Path) -> None:
    """In the child: run pytest with its output in a file, then leave without the parent's clean-up."""
    gc.freeze()  # pytest collects garbage several times at its end, and would look through all that the parent has loaded
    os.chdir(ROOT)
    output = os.open(target.with_suffix(".out"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin.close()
    options = ["-q", "--no-header", "--tb=line", f"--timeout={TEST_SECONDS_MAX}"]
    # the parent imported pytest's plugins already, and hypothesis finds no reference to its random numbers among what is frozen
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += ["-W", "ignore:It looks like `register_random`:hypothesis.errors.HypothesisWarning"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:pytest_cov"]
    code = pytest.main(
        [*options, "--mutant", run.mutant, "--mutant-report", str(target), *run.nodeids], plugins=[plugin]
    )
    sys.stdout.flush()
    os._exit(int(code))
