"""A network of the run's own, in which bookies can be cut off: addresses of the loopback device, routed or not.

The program starts itself anew inside a network namespace, so that nothing else on the machine notices. A partition is a
rule of policy routing that drops packets to or from a bookie's address; the rule for local addresses, which is the first
of all by default, is moved behind it. It takes no firewall. Who is cut off still reaches ZooKeeper: clients see a bookie
that is registered and does not answer, which is the worse case.
"""

import os
import shutil
import subprocess
import sys
from typing import Final, NoReturn

_INSIDE: Final = "DAYBOOK_CHAOS_NETWORK"
_LOCAL_PRIORITY: Final = "1000"
_DROP_PRIORITY: Final = "10"
DIRECTIONS: Final = (("to", "from"), ("to",), ("from",))


def enter() -> str:
    """Go on in a namespace of our own: returns "" there, or the reason why it is not possible."""
    if os.environ.get(_INSIDE):
        return _set_up()
    for command in ("unshare", "ip"):
        if shutil.which(command) is None:
            return f"there is no `{command}` on this machine (it is part of util-linux and iproute2)"
    tried = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces are not permitted here ({tried.stderr.strip()}): run as root"
    os.environ[_INSIDE] = "1"
    return _start_anew()


def _start_anew() -> NoReturn:
    os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.orig_argv[1:]])


def _set_up() -> str:
    for command in (
        "link set lo up",
        f"rule add pref {_LOCAL_PRIORITY} lookup local",
        "rule del pref 0",
    ):
        failure = _ip(command)
        if failure:
            return f"`ip {command}` failed: {failure}"
    return ""


def address_of(number: int) -> str:
    """The address of a bookie by its number: each has its own, so that it can be cut off."""
    return f"127.0.1.{number + 1}"


def cut_off(address: str, directions: tuple[str, ...]) -> None:
    """Drop what goes "to" or comes "from" an address."""
    for direction in directions:
        _must(f"rule add pref {_DROP_PRIORITY} {direction} {address} blackhole")


def connect_again(address: str, directions: tuple[str, ...]) -> None:
    """Undo `cut_off`."""
    for direction in directions:
        _must(f"rule del pref {_DROP_PRIORITY} {direction} {address} blackhole")


def _must(command: str) -> None:
    failure = _ip(command)
    assert not failure, f"`ip {command}` failed: {failure}"


def _ip(command: str) -> str:
    done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
