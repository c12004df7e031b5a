"""Addresses and ports: chosen at run time if none is configured, refused with a clear error if one is in use."""

import errno
import socket
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Final, NamedTuple, Self

_LOWEST: Final = 10_000
_FIRST_DYNAMIC: Final = 49_152
"""The first port of IANA's dynamic range, for systems whose kernel does not report its own."""
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortInUseError(OSError):
    """Another process listens on the requested port."""


class Address(NamedTuple):
    """The address on which a server listens."""

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
        msg = f"{text!r} is not an address: write host:port (or [ipv6]:port) with a port from 0 to 65535"
        raise ValueError(msg)
    return Address(bare, int(port))


def reachable(address: Address) -> str:
    """The address as another process of this machine can use it."""
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound
    return str(Address(wildcards.get(address.host, address.host), address.port))


class HeldPort:
    """A port that no other process can take before a server starts on it, while it serves, and while it is down.

    Linux permits a server to listen on a port that another socket has bound, if that socket does not listen and both have
    set SO_REUSEADDR, as servers do (gRPC's, Java's, Go's, Python's). For all other processes the port is in use, and the
    kernel gives it to no connection. So this class binds the port first and keeps it bound until `close`.
    """

    def __init__(self, host: str = "127.0.0.1", wanted: int = 0) -> None:
        """Hold `wanted` if it is free, else another free port. Raises OSError if no port is free."""
        found = _bind(host, wanted, again=True) if wanted else None
        self._sockets = found or _bind_any(host)
        self.address = Address(host, self._sockets[0].getsockname()[1])

    @property
    def port(self) -> int:
        """The port's number."""
        return self.address.port

    def close(self) -> None:
        """Release the port; a server that listens there continues."""
        for each in self._sockets:
            each.close()

    def __enter__(self) -> Self:
        """Return the port, which is held already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the port."""
        self.close()


def _bind_any(host: str) -> list[socket.socket]:
    """Bind a port below those that the kernel gives to connections: a connection could take such a port while its server is down."""
    first, after = _LOWEST, _first_of_connections()
    for port in SystemRandom().sample(range(first, after), after - first):
        if found := _bind(host, port):
            return found
    msg = f"no port from {first} to {after - 1} of {host} is free: stop the processes that listen there"
    raise OSError(errno.EADDRINUSE, msg)


def _bind(host: str, port: int, *, again: bool = False) -> list[socket.socket] | None:
    """Bind sockets to the port; None if it is in use. With `again`, connections of an earlier server do not count.

    The UDP socket excludes other instances of this class: two TCP sockets with SO_REUSEADDR could both bind the port.
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
    except OSError:  # not Linux
        first = _FIRST_DYNAMIC
    return max(first, _LOWEST + 1000)


def check_port_free(address: Address, purpose: str) -> None:
    """Raise PortInUseError if something listens on `address`; `purpose` names the setting to change.

    For servers that share ports silently (gRPC sets SO_REUSEPORT) or report the conflict unclearly.
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
