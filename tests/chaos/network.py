"""A network of the run's own, in which any road can be cut: addresses of the loopback device, reachable or not.

The program starts itself anew inside a network namespace, so that nothing else on the machine notices. Every road has an
address of its own: a bookie serves on one, and ZooKeeper, which listens on all of them, is reached by each bookie and by
each client on another. So a bookie can be cut off from its clients and keep its session (it is registered and does not
answer), or lose its session and go on to serve; and a client can lose ZooKeeper alone. A cut is a rule of iptables that
drops what arrives, in silence; where there is no iptables, it is a rule of policy routing that drops what is sent.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from typing import Final, NoReturn

_INSIDE: Final = "DAYBOOK_CHAOS_NETWORK"
_LOCAL_PRIORITY: Final = "1000"
_DROP_PRIORITY: Final = "10"
DIRECTIONS: Final = (("to", "from"), ("to",), ("from",))
_END: Final = {"to": "--destination", "from": "--source"}


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
    """The loopback device; the rule for local addresses, which is the first of all, goes behind those that drop."""
    for command in (
        "ip link set lo up",
        f"ip rule add pref {_LOCAL_PRIORITY} lookup local",
        "ip rule del pref 0",
    ):
        failure = _run(command)
        if failure:
            return f"`{command}` failed: {failure}"
    return ""


def bookie_address(number: int) -> str:
    """Where a bookie serves, by its number."""
    return f"127.0.1.{number + 1}"


def zookeeper_for_bookie(number: int) -> str:
    """Where this bookie, and nobody else, reaches ZooKeeper."""
    return f"127.0.2.{number + 1}"


def zookeeper_for_client(number: int) -> str:
    """Where this client, and nobody else, reaches ZooKeeper."""
    return f"127.0.3.{number + 1}"


def cut_off(address: str, directions: tuple[str, ...]) -> None:
    """Drop what goes "to" or comes "from" an address."""
    for direction in directions:
        _must(_rule(address, direction, add=True))


def connect_again(address: str, directions: tuple[str, ...]) -> None:
    """Undo `cut_off`."""
    for direction in directions:
        _must(_rule(address, direction, add=False))


@cache
def has_iptables() -> bool:
    """Whether packets are dropped by iptables; it may be there and not permitted, or without its kernel modules."""
    return shutil.which("iptables") is not None and not _run("iptables -w -S INPUT")


def _rule(address: str, direction: str, *, add: bool) -> str:
    if has_iptables():
        return f"iptables -w {'-I' if add else '-D'} INPUT {_END[direction]} {address} -j DROP"
    return f"ip rule {'add' if add else 'del'} pref {_DROP_PRIORITY} {direction} {address} blackhole"


def _must(command: str) -> None:
    failure = _run(command)
    assert not failure, f"`{command}` failed: {failure}"


def _run(command: str) -> str:
    """Why a command failed; empty if it did not."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
