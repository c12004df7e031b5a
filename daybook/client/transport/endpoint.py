"""Where a connection to a bookie goes: to the IP address that it registered, else to a host that DNS must find.

A node that dies may take a DNS server with it, and until Kubernetes notices, a query that goes to that server is lost, with each of its
retries. A topic's new owner, which fences ledgers on bookies that it never talked to, would wait for such a query. And after a restart, DNS still
has a pod's former address for its time to live. So a bookie registers the address that it has now, and the name says only whose certificate
is expected.
"""

from typing import NamedTuple

from daybook.core.placement.policy import BookieInfo
from daybook.runtime.ports import Address, parse_address


class Endpoint(NamedTuple):
    """What to connect to (host:port), and the name in the server's certificate; None: the host's."""

    address: str
    server_name: str | None = None


def endpoint(info: BookieInfo, address: str) -> Endpoint:
    """How to reach `address`, one of those of the bookie that `info` describes.

    A registered IP address is that of the host in `info.address`; another host, such as a gateway before the lane, is found by its name.
    """
    if not info.ip_address:
        return Endpoint(address)
    host, port = parse_address(address)
    if host != parse_address(info.address).host:
        return Endpoint(address)
    return Endpoint(str(Address(info.ip_address, port)), host)
