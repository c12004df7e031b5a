"""Addresses and ports: chosen at run time where nobody asked for one, refused with a clear error where one is taken."""

import errno
import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

_LOWEST: Final = 10_000
_FIRST_DYNAMIC: Final = 49_152
"""IANA's, where the kernel does not say."""
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortInUseError(OSError):
    """Another process listens on the port that was asked for."""


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """`host:port`, with brackets around an IPv6 host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port` or `[ipv6]:port`; port 0 asks for a free one. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != (host != bare) or not port.isdecimal() or int(port) > 65_535:
        msg = f"{text!r} is no address: write host:port (or [ipv6]:port) with a port from 0 to 65535"
        raise ValueError(msg)
    return Address(bare, int(port))


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """`count` different ports that are free now. Prefer port 0 where the server itself can choose.

    None that the kernel gives to connections: one of those could take it before the server does. Raises OSError if there
    are not so many.
    """
    first, after = _LOWEST, _first_of_connections()
    found: list[int] = []
    with ExitStack() as held:
        for port in SystemRandom().sample(range(first, after), after - first):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            found.append(port)
            if len(found) == count:
                return found
    msg = f"no {count} ports from {first} to {after - 1} of {host} are free: stop what listens there"
    raise OSError(errno.EADDRINUSE, msg)


def _first_of_connections() -> int:
    """The first port that the kernel gives to connections."""
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except OSError:  # no Linux
        first = _FIRST_DYNAMIC
    return max(first, _LOWEST + 1000)


def check_port_free(address: Address, purpose: str) -> None:
    """Raise PortInUseError if something listens on `address`; `purpose` names the setting to change.

    For servers that share ports silently (gRPC sets SO_REUSEPORT) or report the clash unclearly.
    """
    if address.port == 0:
        return
    family, kind, protocol, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            msg = f"{address} is in use by another process: stop that one, or set another {purpose}"
            raise PortInUseError(error.errno, msg) from error
