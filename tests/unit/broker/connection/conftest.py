"""The broker that a connection leads to."""

from collections.abc import AsyncIterator

import pytest
from daybook_broker.broker import Broker

from daybook.local.cluster import LocalCluster
from tests.unit.broker.kit import running_broker


@pytest.fixture
async def broker(cluster: LocalCluster) -> AsyncIterator[Broker]:
    """A broker of the test's own."""
    async with running_broker(cluster) as started:
        yield started
