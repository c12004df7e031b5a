"""Addresses and ports: chosen at run time where nobody asked for one, refused with a clear error where one is taken."""

import errno
import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Final, NamedTuple, Self

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


class HeldPort:
    """A port that nobody else gets while a server is to be started on it, serves, or is down for a moment.

    Linux lets a server listen on a port that another socket has bound, if that one does not listen and both have set
    SO_REUSEADDR, as servers do (gRPC's, Java's, Go's, Python's). To everybody else the port is taken, and the kernel gives
    it to no connection. So it is bound here before anybody is told of it, for as long as this object is open.
    """

    def __init__(self, host: str = "127.0.0.1", wanted: int = 0) -> None:
        """Hold `wanted` if nobody has it, else one that is free. Raises OSError if none is."""
        found = _bind(host, wanted, again=True) if wanted else None
        self._sockets = found or _bind_any(host)
        self.address = Address(host, self._sockets[0].getsockname()[1])

    @property
    def port(self) -> int:
        """Its number."""
        return self.address.port

    def close(self) -> None:
        """Let go of it; a server that listens there goes on."""
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Self:
        """It is held already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it."""
        self.close()


def _bind_any(host: str) -> list[socket.socket]:
    """None that the kernel gives to connections: one of those could take it after its server has ended."""
    first, after = _LOWEST, _first_of_connections()
    for port in SystemRandom().sample(range(first, after), after - first):
        if found := _bind(host, port):
            return found
    msg = f"no port from {first} to {after - 1} of {host} is free: stop what listens there"
    raise OSError(errno.EADDRINUSE, msg)


def _bind(host: str, port: int, *, again: bool = False) -> list[socket.socket] | None:
    """Sockets on the port, None if it is taken; with `again` connections of an earlier server do not count.

    UDP's is for nobody but others that hold ports: two sockets of TCP that set SO_REUSEADDR would both get the port.
    """
    with ExitStack() as made:
        guard = made.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        held = made.enter_context(socket.socket())
        try:
            guard.bind((host, port))
            if again:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.pop_all()
        return [held, guard]


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
