"""The command line of a cluster of nodes: `python -m tests.cluster COMMAND`.

up node-a:zone-1 node-b:zone-2 node-c:zone-3/rack-9   start it; a node is NODE:ZONE or NODE:ZONE/RACK
run COMMAND ...             in the cluster's network, as its administrator: kubectl, helm, pytest
stop|start|cut|join NODE    power a node off and on; cut its network and give it back
import FILE ...             import image archives on every node
volumes COUNT               local volumes on every node, of the storage class `local`
down                        end everything and leave no trace
with NODE ... -- COMMAND    up, the command, down
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.binaries import BinariesMissingError
from tests.cluster.control_plane import KubectlError
from tests.cluster.nodes import NodeCluster, NodesError
from tests.cluster.process import ProcessError
from tests.cluster.sandbox import SandboxError


def main(words: list[str]) -> int:
    """Carry out one command; return its exit code."""
    cluster = NodeCluster(say=_say)
    match words:
        case ["up", _, *_]:
            cluster.up(words[1:])
        case ["down"]:
            cluster.down()
        case ["run", _, *_]:
            return _run(cluster, words[1:])
        case ["with", *rest] if "--" in rest[1:-1]:
            middle = rest.index("--")
            cluster.up(rest[:middle])
            try:
                return _run(cluster, rest[middle + 1 :])
            finally:
                cluster.down()
        case [("stop" | "start" | "cut" | "join") as act, node]:
            {"stop": cluster.stop, "start": cluster.start, "cut": cluster.cut, "join": cluster.join}[act](
                node
            )
        case ["import", _, *_]:
            cluster.import_images(map(Path, words[1:]))
        case ["volumes", count] if count.isdecimal():
            cluster.create_volumes(int(count))
        case _:
            _say(
                f"usage: python -m tests.cluster COMMAND\n\n{(__doc__ or '').partition(chr(10))[2].strip(chr(10))}"
            )
            return 2
    return 0


def _run(cluster: NodeCluster, command: list[str]) -> int:
    environment = {**os.environ, **cluster.environment()}
    return subprocess.run(cluster.command(*command), env=environment, check=False).returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BinariesMissingError, KubectlError, NodesError, ProcessError, SandboxError) as error:
        _say(f"error: {error}")
        sys.exit(1)
