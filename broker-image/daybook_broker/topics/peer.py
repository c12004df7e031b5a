"""What a topic needs of the connection of a client, so that topics know no sockets."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from daybook.core.format.frame import Buffer
from daybook.metadata.brokers import Urls


class BrokerUrls(NamedTuple):
    """Where clients reach a broker; an empty text where they do not."""

    service_url: str
    service_url_tls: str
    listeners: Mapping[str, Urls] = MappingProxyType({})
    """The same by the names of listeners, for clients that ask for one."""

    def of(self, listener: str | None) -> Urls | None:
        """Where a client that asks for `listener` reaches the broker, "" for none; None if the client has to look the topic up.

        `listener` is None for a client of which nobody knows what it asks for. It may be unable to reach the broker's own addresses, and
        a client waits long for an address that does not answer.
        """
        if listener is None and self.listeners:
            return None
        return self.listeners.get(listener) if listener else Urls(self.service_url, self.service_url_tls)


class Peer(Protocol):
    """The connection of a client."""

    address: str
    """Of the client, for people."""
    client_version: str
    """What the client calls itself, for people."""
    pending_bytes: int
    """Of the entries that the client sent and has no receipt for: what a topic answers it subtracts, before it sends the answer."""

    @property
    def is_writable(self) -> bool:
        """Whether the client takes what is sent; while it is False, do not send it messages."""

    def send(self, *parts: Buffer) -> None:
        """Send these bytes behind all others; what one turn of the loop sends leaves in one write. Dropped once the connection is lost."""

    def count_pending(self) -> None:
        """`pending_bytes` fell, and perhaps nothing is sent that says so."""

    def call_when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once, as soon as the client takes more."""

    def pause(self, reason: object) -> None:
        """Read no more from the client until `resume` was called for every reason."""

    def resume(self, reason: object) -> None:
        """`reason` is over."""

    async def is_alive(self) -> bool:
        """Whether the client still answers; asks it if it said nothing lately."""
