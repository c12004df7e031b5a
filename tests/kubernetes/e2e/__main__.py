"""`make e2e`: build the images, bring three nodes up, run the steps, print how long each took, and clean up."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from daybook.runtime.signals import exit_on_sigterm
from tests.cluster.binaries import BinariesMissingError
from tests.cluster.control_plane import KubectlError
from tests.cluster.nodes import NodeCluster, NodesError, check_machine
from tests.cluster.sandbox import SandboxError
from tests.kubernetes.e2e.code import digests
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.steps import STEPS, Step
from tests.kubernetes.e2e.traces import Traces, left_behind, traces
from tests.kubernetes.e2e.world import CODE_FILE, NODES, World
from tests.kubernetes.images.build import TARGETS, CannotBuildError, build, snapshot

TAGS = ("e2e-1", "e2e-2")


@dataclass(slots=True)
class Outcome:
    """How a step ended, or what came before the steps."""

    what: str
    seconds: float = 0
    seen: str = ""
    jobs: str = ""
    checked: str = ""
    failed: bool = False
    missed: bool = False
    """Whether something took longer than is asked; the run goes on, and fails in the end."""


def main() -> int:
    """Run the steps that were asked for; 1 if one failed or something was lost."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    parser.add_argument("--steps", default="", help=f"only these, of {','.join(step.name for step in STEPS)}")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up, to be looked at")
    parser.add_argument("--again", action="store_true", help="use the cluster that is up")
    parser.add_argument("--stale", action="store_true", help="images as they were built last will do")
    parser.add_argument("--directory", type=Path, default=None, help="where the cluster lives")
    arguments = parser.parse_args()
    names = [name for name in arguments.steps.split(",") if name]
    if unknown := set(names) - {step.name for step in STEPS}:
        parser.error(f"no such step: {', '.join(sorted(unknown))}")
    steps = [step for step in STEPS if not names or step.name in names]
    exit_on_sigterm()
    cluster = NodeCluster(arguments.directory, say=say)
    began, before = time.monotonic(), traces(cluster.directory)
    outcomes: list[Outcome] = []
    ended = False
    try:
        if not arguments.again:
            check_machine()
            bring_up(cluster, outcomes, stale=arguments.stale)
        ended = run(World(cluster, TAGS), steps, outcomes)
    except (BinariesMissingError, CannotBuildError, NodesError, SandboxError) as error:
        say(f"make e2e: {error}")
    finally:
        if not arguments.keep:
            with timed(outcomes, "clean up") as cleaning:
                clean_up(cluster, before, cleaning, keep_logs=not ended)
        show(outcomes, time.monotonic() - began)
    return 0 if ended and not any(outcome.failed or outcome.missed for outcome in outcomes) else 1


@contextmanager
def timed(outcomes: list[Outcome], what: str) -> Iterator[Outcome]:
    """A row of the table, with the time that the block takes."""
    outcome = Outcome(what)
    outcomes.append(outcome)
    began = time.monotonic()
    try:
        yield outcome
    finally:
        outcome.seconds = time.monotonic() - began


def bring_up(cluster: NodeCluster, outcomes: list[Outcome], *, stale: bool) -> None:
    """Images of this tree on three nodes. The second bookie image is rolled out later."""
    with timed(outcomes, "build the images") as building, tempfile.TemporaryDirectory() as folder:
        tree = snapshot(Path(folder))
        code = digests(tree)
        first = build(TAGS[0], TARGETS, tree=tree, stale=stale)
        second = build(TAGS[1], ("bookie",), tree=tree, stale=stale)
        images = [*first.values(), *second.values()]
        building.seen = "as they were built last" if stale else "of this tree"
    with timed(outcomes, "start three nodes") as starting:
        cluster.up(NODES, images=images)
        starting.seen = f"{len(images)} images on each"
    if not stale:
        (cluster.directory / CODE_FILE).write_text(json.dumps(code), encoding="utf-8")


def run(world: World, steps: list[Step], outcomes: list[Outcome]) -> bool:
    """One step after the other, and a look at everything acknowledged after each; False at the first failure."""
    try:
        for step in steps:
            say(f"== {step.what}")
            with timed(outcomes, step.what) as outcome:
                if step.under_load:
                    world.load()
                world.by_jobs, world.missed = "", []
                try:
                    outcome.seen = step.act(world)
                    outcome.missed = bool(world.missed)
                except (StepError, KubectlError) as error:
                    outcome.seen, outcome.failed = str(error).splitlines()[0], True
                    say(f"FAILED: {error}")
                    return False
            outcome.jobs = world.by_jobs
            if not check(world, outcome):
                return False
            say(f"   {outcome.seconds:.0f} s; {outcome.seen}; {outcome.jobs}; {outcome.checked}")
            for missed in world.missed:
                say(f"   MISSED: {missed}")
        if world.topics is not None:
            say("== judge the topics")
            with timed(outcomes, "judge the topics") as outcome:
                return judge(world, outcome)
    finally:
        world.end()
    return True


def check(world: World, outcome: Outcome) -> bool:
    """Read back everything that was acknowledged, and publish to every topic."""
    try:
        outcome.checked = world.check()
        if world.topics is not None:
            outcome.checked += f"; topics take messages within {world.published():.1f} s"
    except StepError as error:
        outcome.checked, outcome.failed = str(error).splitlines()[0], True
        say(f"FAILED: {error}")
        return False
    return True


def judge(world: World, outcome: Outcome) -> bool:
    """End the producers, let the consumers have everything, read the topics back, and say what is wrong."""
    assert world.topics is not None
    verdict = world.topics.ask("judge")
    outcome.seen = f"{verdict['acknowledged']:,} acknowledged, {verdict['received']:,} received, {verdict['duplicates']} stored twice"
    outcome.checked = f"{len(verdict['violations'])} violations"
    outcome.failed = bool(verdict["violations"])
    for violation in verdict["violations"]:
        say(f"FAILED: {violation}")
    return not outcome.failed


def clean_up(cluster: NodeCluster, before: Traces, outcome: Outcome, *, keep_logs: bool) -> None:
    """Take everything down, and look whether anything but logs was left."""
    cluster.down(keep_logs=keep_logs)
    left = left_behind(before, traces(cluster.directory, files=not keep_logs))
    outcome.failed = bool(left)
    outcome.seen = "; ".join(left) or "no process, mount, network, firewall rule or cgroup is left"


def show(outcomes: list[Outcome], seconds: float) -> None:
    """The table of all steps."""
    table = Table("step", "seconds", "seen", "repaired by", "read back")
    for outcome in outcomes:
        colour = "red" if outcome.failed else "yellow" if outcome.missed else "green"
        table.add_row(
            f"[{colour}]{outcome.what}[/]",
            f"{outcome.seconds:.0f}",
            outcome.seen,
            outcome.jobs,
            outcome.checked,
        )
    table.add_section()
    table.add_row(
        "all, with reading back",
        f"{seconds:.0f}",
        f"load of the machine at the end: {os.getloadavg()[0]:.1f}",
        "",
        "",
    )
    Console(width=160).print(table)


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
