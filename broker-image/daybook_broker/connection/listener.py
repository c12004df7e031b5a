"""The port of Pulsar's binary protocol, and the connections that are open."""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from daybook.core.errors import DaybookError
from daybook.runtime.ports import Address, check_port_free
from daybook_broker.connection.budget import PendingBudget
from daybook_broker.connection.connection import Connection, Handler
from daybook_broker.connection.host import Host
from daybook_broker.errors import TooManyError


class Connections:
    """The connections of a broker."""

    def __init__(self, broker: Host) -> None:
        self.broker = broker
        self.budget = PendingBudget(broker.settings.pending_bytes)
        self._open: set[Connection] = set()
        self._refusal: DaybookError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._open))

    def add(self, connection: Connection) -> DaybookError | None:
        """Count a new connection; why it is refused, if it is."""
        if self._refusal is not None:
            return self._refusal
        bound = self.broker.settings.connections_max
        if len(self._open) >= bound:
            return TooManyError(
                f"this broker has {bound} connections: close some, add a broker, or raise connections_max"
            )
        self._open.add(connection)
        return None

    def remove(self, connection: Connection) -> None:
        """A connection is lost."""
        self._open.discard(connection)

    def refuse(self, why: DaybookError | None) -> None:
        """End all connections, and refuse those that come, until this is called with None."""
        self._refusal = why
        if why is not None:
            self.close()

    def close(self) -> None:
        """End all connections."""
        for connection in self:
            connection.close()


class Listener:
    """One port: plain, or with TLS."""

    def __init__(self, connections: Connections, handlers: Mapping[int, Handler]) -> None:
        self._make: Callable[[], Connection] = partial(Connection, connections, handlers)
        self._server: asyncio.Server | None = None
        self.address = Address("", 0)

    async def start(self, address: Address, setting: str, tls: ssl.SSLContext | None) -> None:
        """Listen on `address` (port 0: a free one), which `setting` gives. Raises PortInUseError, OSError."""
        check_port_free(address, setting)
        self._server = await asyncio.get_running_loop().create_server(
            self._make, address.host, address.port, ssl=tls
        )
        self.address = Address(address.host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()
