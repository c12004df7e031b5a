"""Where a client connects: to a bookie's registered IP address, with no DNS between, while the name stays that of its certificate."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from daybook.client.transport.channels import ChannelPool
from daybook.client.transport.endpoint import Endpoint, endpoint
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.ports import parse_address
from daybook.runtime.tls import TlsContexts, client_credentials, server_credentials
from tests.unit.bookie.server_kit import RunningBookie
from tests.unit.client.test_lane import append
from tests.unit.runtime.certificates import new_authority

HOST: Final = "bk-0.bk.data.invalid"
"""No DNS server knows a name below .invalid (RFC 6761, section 6.4)."""
PLAIN: Final = BookieInfo("b0", f"{HOST}:3181", tls_address=f"{HOST}:3183", ip_address="10.1.2.3")


@pytest.mark.parametrize(
    ("info", "address", "expected"),
    [
        (BookieInfo("b0", f"{HOST}:3181"), f"{HOST}:3181", Endpoint(f"{HOST}:3181")),
        (PLAIN, f"{HOST}:3181", Endpoint("10.1.2.3:3181", HOST)),
        (PLAIN, f"{HOST}:3183", Endpoint("10.1.2.3:3183", HOST)),
        (PLAIN, "gateway.example:3184", Endpoint("gateway.example:3184")),
        (
            BookieInfo("b0", f"{HOST}:3181", ip_address="fd00::3"),
            f"{HOST}:3181",
            Endpoint("[fd00::3]:3181", HOST),
        ),
    ],
)
def test_the_ip_address_stands_for_the_host_that_the_bookie_registered(
    info: BookieInfo, address: str, expected: Endpoint
) -> None:
    assert endpoint(info, address) == expected


@pytest.mark.parametrize("has_lane", [False, True], ids=["gRPC", "lane"])
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
async def test_a_name_that_dns_does_not_know_is_reached_by_its_ip_address(
    tmp_path: Path, *, has_lane: bool, is_secure: bool
) -> None:
    authority = new_authority()
    files = authority.issue(tmp_path, "server", host=HOST)
    bookie = RunningBookie(
        tmp_path / "b0",
        credentials=server_credentials(files) if is_secure else None,
        tls_context=TlsContexts(files, server_side=True).current() if is_secure else None,
    )
    bookie.create_ledger(1)
    assert bookie.server.lane_address is not None
    info = BookieInfo(
        "b0",
        f"{HOST}:{parse_address(bookie.address).port}",
        lane_address=f"{HOST}:{bookie.server.lane_address.port}" if has_lane else "",
        ip_address="127.0.0.1",
    )
    client = client_credentials(authority.issue(tmp_path, "client"))
    pool = ChannelPool("test", client if is_secure else lambda: None)
    pool.bookies_changed({"b0": info})
    assert await append(pool, 0) == (0, bookie.bookie.boot_id)
    await pool.close()
    await asyncio.to_thread(bookie.stop)
