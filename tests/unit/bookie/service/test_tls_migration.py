"""A bookie that gets TLS while its clients continue: plain, then both, then TLS alone; and no client with TLS connects without it by mistake."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

import daybook
from daybook.core.placement.policy import BookieInfo
from daybook.runtime.tls import client_credentials
from tests.unit.bookie.service.process_kit import LAYOUT, BookieProcess, format_cluster
from tests.unit.runtime.certificates import new_authority

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

Credentials = Callable[[], grpc.ChannelCredentials | None]


def test_a_bookie_gets_tls_while_its_clients_go_on(zookeeper: str, tmp_path: Path) -> None:
    format_cluster(zookeeper)
    authority = new_authority()
    files = authority.issue(tmp_path, "server")
    tls = {f"tls_{name}": str(getattr(files, name)) for name in ("certificate", "key", "ca")}
    secure: Credentials = client_credentials(authority.issue(tmp_path, "client"))

    def plain() -> None:
        return None

    def write(credentials: Credentials) -> int:
        async def work() -> int:
            async with daybook.connect(zookeeper, cluster=LAYOUT.cluster, credentials=credentials) as client:
                ledger = await client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
                await ledger.append_many([b"entry"] * 3)
                await ledger.close()
                return ledger.id

        return asyncio.run(work())

    def read(credentials: Credentials, ledgers: list[int]) -> int:
        async def work() -> int:
            async with daybook.connect(zookeeper, cluster=LAYOUT.cluster, credentials=credentials) as client:
                readers = [await client.open_ledger(each) for each in ledgers]
                return sum([len([e async for e in reader.read(0, 2)]) for reader in readers])

        return asyncio.run(work())

    def bookie(**settings: Any) -> BookieProcess:
        process = BookieProcess(tmp_path / "b0", zookeeper, **settings)
        process.start()
        return process

    first = bookie()
    ledgers = [write(plain)]
    assert first.end() == 0

    both = bookie(plain_address="127.0.0.1:0", **tls)
    ledgers += [write(plain), write(secure)]
    assert read(plain, ledgers) == read(secure, ledgers) == 9
    assert both.logged("serving without TLS as well")
    assert both.end() == 0

    last = bookie(**tls)
    ledgers.append(write(secure))
    assert read(secure, ledgers) == 12
    assert last.end() == 0


def test_a_client_with_tls_never_goes_where_there_is_none() -> None:
    both = BookieInfo("b0", address="b0:3181", tls_address="b0:3183")
    assert (both.address_for(secure=False), both.address_for(secure=True)) == ("b0:3181", "b0:3183")
    alone = BookieInfo("b0", address="b0:3181")
    assert alone.address_for(secure=True) == "b0:3181", "and it speaks TLS there, or not at all"
