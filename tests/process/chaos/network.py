"""A network of the run's own, in which any road can be cut: addresses of the loopback device, reachable or not.

The program starts itself anew inside a network namespace, so that nothing else on the machine notices; an ordinary user's
comes with a user namespace, where the kernel allows one. Every road has an address of its own: a bookie serves on one, and
ZooKeeper, which listens on all of them, is reached by each bookie and by each client on another. So a bookie can be cut off
from its clients and keep its session (it is registered and does not answer), or lose its session and go on to serve; and a
client can lose ZooKeeper alone. A cut is a rule of nftables that drops what arrives, in silence; where the kernel has no
nftables, it is a rule of policy routing that drops what is sent. Both are made by netlink, so that no program is needed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NoReturn

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nftsocket import NFPROTO_IPV4
from pyroute2.nftables.expressions import ipv4addr, verdict
from pyroute2.nftables.main import NFTables

_INSIDE: Final = "DAYBOOK_CHAOS_NETWORK"
_LOOPBACK: Final = 1
_LOCAL_TABLE: Final = 255
_LOCAL_PRIORITY: Final = 1000
_DROP_PRIORITY: Final = 10
_TABLE: Final = "daybook"
_ACCEPT: Final = 1
_DROP: Final = 0
"""What a chain or a rule says of a packet."""
DIRECTIONS: Final = (("to", "from"), ("to",), ("from",))
_END: Final = {"to": "dst", "from": "src"}


def enter() -> str:
    """Go on in a namespace of our own: returns "" there, or the reason why it is not possible."""
    if os.environ.get(_INSIDE):
        return _set_up()
    if shutil.which("unshare") is None:
        return "there is no `unshare` on this machine (it is part of util-linux)"
    command = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--user", "--map-root-user"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this kernel allows this user no network namespace ({tried.stderr.strip()}): run as root"
    os.environ[_INSIDE] = "1"
    return _start_anew(command)


def _start_anew(command: list[str]) -> NoReturn:
    os.execvp(command[0], [*command, sys.executable, *sys.orig_argv[1:]])


def _set_up() -> str:
    """The loopback device; the rule for local addresses, which is the first of all, goes behind those that drop."""
    try:
        with IPRoute() as kernel:
            kernel.link("set", index=_LOOPBACK, state="up")
            kernel.rule("add", priority=_LOCAL_PRIORITY, table=_LOCAL_TABLE)
            kernel.rule("del", priority=0, table=_LOCAL_TABLE)
    except NetlinkError as error:
        return f"this network namespace cannot be set up: {error}"
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
    _change("add", address, directions)


def connect_again(address: str, directions: tuple[str, ...]) -> None:
    """Undo `cut_off`."""
    _change("del", address, directions)


@cache
def has_nftables() -> bool:
    """Whether packets are dropped by nftables, which not every kernel has or lets this user have."""
    try:
        with _filters() as filters:
            filters.table("add", name=_TABLE)
            filters.commit()
    except (NetlinkError, OSError):
        return False
    return True


def _change(what: str, address: str, directions: tuple[str, ...]) -> None:
    for direction in directions:
        if has_nftables():
            _filter(what, address, direction)
        else:
            end = _END[direction]
            road = {end: address, f"{end}_len": 32}
            with IPRoute() as kernel:
                kernel.rule(what, priority=_DROP_PRIORITY, action="FR_ACT_BLACKHOLE", **road)


def _filter(what: str, address: str, direction: str) -> None:
    """Add or delete a chain that drops what arrives; rules are deleted by numbers, chains by the names that we give."""
    chain = {"table": _TABLE, "name": f"{direction}-{address}"}
    with _filters() as filters:
        if what == "del":
            filters.chain("del", **chain)
        else:
            filters.chain("add", **chain, hook="input", type="filter", policy=_ACCEPT)
            drop = (ipv4addr(**{_END[direction]: address}), verdict(code=_DROP))
            filters.rule("add", table=_TABLE, chain=chain["name"], expressions=drop)
        filters.commit()


@contextmanager
def _filters() -> Iterator[Any]:
    """One transaction on the rules of IPv4; nothing is done without `commit()`."""
    with NFTables(nfgen_family=NFPROTO_IPV4) as filters:
        filters.begin()
        yield filters
