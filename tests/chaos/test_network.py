"""Partitions cut off exactly the address that they name, and end when they are undone."""

import subprocess
import sys

import pytest

from tests.chaos.records import ROOT

PROGRAM = """
import socket
import sys
from tests.chaos import network

reason = network.enter()
if reason:
    print(reason)
    sys.exit(77)

def reaches(server):
    try:
        with socket.create_connection(server.getsockname(), timeout=0.3):
            server.accept()[0].close()
            return True
    except OSError:
        return False

servers = [socket.create_server((network.address_of(number), 0)) for number in (0, 1)]
for directions in (("to", "from"), ("to",), ("from",)):
    assert [reaches(server) for server in servers] == [True, True]
    network.cut_off(network.address_of(0), directions)
    assert [reaches(server) for server in servers] == [False, True], directions
    network.connect_again(network.address_of(0), directions)
assert [reaches(server) for server in servers] == [True, True]
"""


def test_who_is_cut_off_is_not_reached_and_others_are() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
