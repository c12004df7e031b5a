"""The step of `make e2e` that types docs/tutorial.md on the empty cluster, and leaves it empty.

Three things differ from the page: the images are those of this tree, pods ask for less of the machine, and the node's power is the test's to take.
"""

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from tests.fixtures.tutorial import Command, commands
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import BROKER, NAMESPACE, NODES, World
from tests.kubernetes.images.build import image_name
from tests.paths import ROOT

REGISTRY: Final = "--set image.registry=registry.example.org/team"
CLIENT: Final = "examples/client.yaml"
DIES: Final = "seq 1001 2000"
"""The beginning of the command in part 4 before which the node dies."""
COMES_BACK: Final = 6
"""The part that begins with the node's return."""
COMMAND_S: Final = 900.0
LONGEST: Final = 4
"""How many of the commands the table names with their seconds, each by its first NAMED_CHARS characters."""
NAMED_CHARS: Final = 40


def type_tutorial(world: World, values: Path) -> str:
    """Type each command; the namespace and the volumes are gone afterwards."""
    client = world.cluster.directory / "client.yaml"
    example = yaml.safe_load((ROOT / CLIENT).read_text(encoding="utf-8"))
    example["spec"]["containers"][0]["image"] = image_name("broker", world.tags[0])
    client.write_text(yaml.safe_dump(example), encoding="utf-8")
    took_s: list[tuple[float, str]] = []
    node = ""
    for command in commands():
        if command.line.startswith(DIES):
            node = _node_that_dies(world)
            world.cluster.stop(node)
        if command.part == COMES_BACK and node:
            world.cluster.start(node)
            node = ""
        began = time.monotonic()
        line = command.line.replace(REGISTRY, f"-f {values}").replace(CLIENT, str(client))
        if command.part == COMES_BACK:  # the page says that it takes some time until all is well
            world.until(command.line, partial(_type, world, line, command), COMMAND_S)
        else:
            _type(world, line, command)
        took_s.append((time.monotonic() - began, command.line))
    _empty(world)
    longest = "; ".join(
        f"{seconds:.0f} s: {line[:NAMED_CHARS]}" for seconds, line in sorted(took_s, reverse=True)[:LONGEST]
    )
    return f"{len(took_s)} commands; the longest: {longest}"


def _type(world: World, line: str, command: Command) -> bool:
    """Run it in a shell that finds kubectl, its plugin and Helm; True. Raises StepError if it fails, or prints something else than the page says."""
    environment = {**os.environ, **world.cluster.environment()}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        world.cluster.command("bash", "-o", "pipefail", "-c", line),
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode or (command.output.strip() and done.stdout.split() != command.output.split()):
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise StepError(
            f"`{command.line}` ended with {done.returncode}; it said\n{said}\nand the page\n{command.output}"
        )
    return True


def _node_that_dies(world: World) -> str:
    """One with a bookie and a broker, and without the pod `client`."""
    brokers = {world.node_of(f"{BROKER}-{number}") for number in range(2)}
    fit = [node for node in brokers - {world.node_of("client")} if world.pods_on(node)]
    if not fit:
        raise StepError(f"no node has a broker and a bookie and not the client: brokers run on {brokers}")
    return min(fit)


def _empty(world: World) -> None:
    """The page keeps volumes; the steps that follow begin with new ones."""
    world.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=300s")
    world.cluster.kubectl("delete", "persistentvolume", "--all", "--timeout=120s")
    for node in NODES:
        folder = world.cluster.volume_folder(f"{node.partition(':')[0]}-0").parent
        shutil.rmtree(folder)
