"""Bookies that ask for certificates: the driver plans and tasks read with the files that options name, and refuse to without."""

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daybook_spark.options import ReadOptions, parse_read
from daybook_spark.plan.batch import plan
from daybook_spark.plan.bounds import bounds_of
from daybook_spark.plan.entry_range import Range
from daybook_spark.read.rows import rows_of
from daybook_spark.rows.columns import default_schema

import daybook
from daybook.core.errors import NotEnoughReplicasError
from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.runtime.tls import client_credentials
from tests.fixtures.cluster import SETTINGS
from tests.unit.runtime.certificates import new_authority
from tests.unit.spark.test_failover import own_process_client

__all__ = ["own_process_client"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

AUTHORITY = new_authority()
VALUES = [b"%0100d" % number for number in range(100)]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two bookies that ask their clients for certificates."""
    files = AUTHORITY.issue(tmp_path, "server")
    settings = {f"tls_{name}": str(getattr(files, name)) for name in ("certificate", "key", "ca")}
    with LocalCluster(tmp_path / "cluster", bookies=2, settings={**SETTINGS, **settings}) as started:
        yield started


def read(options: ReadOptions, ranges: list[Range], columns: dict[str, str]) -> list[bytes]:
    """The payload of ranges, as a task reads them."""
    batches = [batch for each in ranges for batch in rows_of(options, each, default_schema(columns))]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


async def test_drivers_and_tasks_show_the_certificates_that_options_name(
    secure: LocalCluster, tmp_path: Path
) -> None:
    files = AUTHORITY.issue(tmp_path, "client")
    where: dict[str, Any] = {"zookeeper": secure.zookeeper.connect_string, "cluster": CLUSTER_NAME}
    connected = daybook.connect(
        where["zookeeper"], cluster=CLUSTER_NAME, credentials=client_credentials(files)
    )
    async with connected as client:
        ledger = await client.create_ledger(ensemble_size=2, write_quorum=2, ack_quorum=2)
        await ledger.append_many(VALUES)  # left open, so that the plan asks bookies as well
        columns = {**where, "ledger": str(ledger.id)}
        certificates = {"tlsCa": files.ca, "tlsCertificate": files.certificate, "tlsKey": files.key}
        options = parse_read({**columns, **{name: str(path) for name, path in certificates.items()}})
        ranges: list[Range] = []
        while [each.last for each in ranges] != [len(VALUES) - 1]:  # an idle ledger's LAC follows (rule 48)
            ranges = await asyncio.to_thread(plan, options, bounds_of(options))
        carried = pickle.loads(pickle.dumps(ranges))
        assert await asyncio.to_thread(read, options, carried, columns) == VALUES

        bare = parse_read(columns)
        with pytest.raises(NotEnoughReplicasError):
            await asyncio.to_thread(read, bare, carried, columns)
        await ledger.abandon()
