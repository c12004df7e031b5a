"""A fresh cluster for each test of auditors and workers, and a limit on tests that would wait for ever."""

from pathlib import Path
from typing import Final

import pytest

from tests.unit.autorecovery.kit import FakeCluster, small_cluster

_HERE: Final = Path(__file__).parent
_LIMIT_S: Final = 80


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A worker that waits for what never comes fails its test sooner than the project's limit."""
    for item in items:
        if item.path.parent == _HERE and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(_LIMIT_S))


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    """Five bookies, or as many as the test's indirect parameter says."""
    return await small_cluster(getattr(request, "param", 5))
