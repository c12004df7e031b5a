"""Addresses and ports: chosen at run time where nobody asked for one, refused with a clear error where one is taken."""

import errno
import socket
from contextlib import ExitStack
from typing import NamedTuple


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
    """`count` different ports that are free now. Prefer port 0 where the server itself can choose."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [int(each.getsockname()[1]) for each in sockets]


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
