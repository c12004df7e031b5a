"""`make e2e`: build the images, bring three nodes up, run the steps, print how long each took, and clean up."""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.cluster.binaries import BinariesMissingError
from tests.cluster.control_plane import KubectlError
from tests.cluster.nodes import NodeCluster, NodesError, check_machine
from tests.cluster.sandbox import SandboxError
from tests.e2e.steps import STEPS, Step
from tests.e2e.world import NODES, StepError, World
from tests.images.build import CannotBuildError, build

TAGS = ("e2e-1", "e2e-2")


@dataclass(slots=True)
class Outcome:
    """How a step ended."""

    step: Step
    seconds: float
    seen: str
    checked: str = ""
    failed: bool = False


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
    cluster = NodeCluster(arguments.directory, say=say)
    outcomes: list[Outcome] = []
    try:
        if not arguments.again:
            check_machine()
            bring_up(cluster, stale=arguments.stale)
        run(World(cluster, TAGS), steps, outcomes)
    except (BinariesMissingError, CannotBuildError, NodesError, SandboxError) as error:
        say(f"make e2e: {error}")
        return 1
    finally:
        if not arguments.keep:
            cluster.down()
    show(outcomes)
    return 1 if any(outcome.failed for outcome in outcomes) or len(outcomes) < len(steps) else 0


def bring_up(cluster: NodeCluster, *, stale: bool) -> None:
    """Images on three nodes. The second bookie image is rolled out later."""
    first = build(TAGS[0], stale=stale)
    second = build(TAGS[1], ("bookie",), stale=stale)
    cluster.up(NODES, images=[*first.values(), *second.values()])


def run(world: World, steps: list[Step], outcomes: list[Outcome]) -> None:
    """One step after the other, and a look at everything acknowledged after each; the first failure ends it."""
    try:
        for step in steps:
            say(f"== {step.what}")
            began = time.monotonic()
            outcome = Outcome(step, 0, "")
            outcomes.append(outcome)
            try:
                if step.under_load:
                    world.load()
                outcome.seen = step.act(world)
                outcome.seconds = time.monotonic() - began
                if world.workload is not None:
                    told = world.workload.check()
                    outcome.checked = f"{told['acknowledged']:,} acknowledged, {told['lost']} lost"
            except (StepError, KubectlError) as error:
                outcome.seconds = time.monotonic() - began
                outcome.seen, outcome.failed = str(error).splitlines()[0], True
                say(f"FAILED after {outcome.seconds:.0f} s: {error}")
                return
            say(f"   {outcome.seconds:.0f} s; {outcome.seen}; {outcome.checked}")
    finally:
        if world.workload is not None:
            world.workload.end()
        say(f"{len(world.jobs_seen)} recovery Jobs were seen")


def show(outcomes: list[Outcome]) -> None:
    """The table of all steps."""
    table = Table("step", "seconds", "seen", "read back")
    for outcome in outcomes:
        colour = "red" if outcome.failed else "green"
        table.add_row(
            f"[{colour}]{outcome.step.what}[/]", f"{outcome.seconds:.0f}", outcome.seen, outcome.checked
        )
    Console(width=140).print(table)


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
