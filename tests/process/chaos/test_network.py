"""Partitions cut off exactly the address that they name, and end when they are undone."""

import subprocess
import sys

import pytest

from tests.paths import ROOT

PROGRAM = """
import socket
import sys
from tests.process.chaos import network

reason = network.enter()
if reason:
    print(reason)
    sys.exit(77)
if sys.argv[1] == "routing":
    network.has_nftables = lambda: False
elif not network.has_nftables():
    print("this kernel has no nftables, or not for this user")
    sys.exit(77)

def reached():
    return [_reaches(road, servers[min(n, 2)]) for n, road in enumerate(roads)]

def _reaches(road, server):
    try:
        with socket.create_connection(road, timeout=0.3):
            server.accept()[0].close()
            return True
    except OSError:
        return False

servers = [socket.create_server((network.bookie_address(number), 0)) for number in (0, 1)]
servers.append(socket.create_server(("0.0.0.0", 0)))
roads = [server.getsockname() for server in servers[:2]]
port = servers[2].getsockname()[1]
roads += [(network.zookeeper_for_bookie(0), port), (network.zookeeper_for_client(0), port)]
for directions in network.DIRECTIONS:
    for number, road in enumerate(roads):
        assert reached() == [True] * 4
        network.cut_off(road[0], directions)
        assert reached() == [n != number for n in range(4)], (road, directions)
        network.connect_again(road[0], directions)
assert reached() == [True] * 4
"""


@pytest.mark.parametrize("means", ["nftables", "routing"])
def test_who_is_cut_off_is_not_reached_and_others_are(means: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, means],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
