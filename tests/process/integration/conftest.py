"""Tests of this folder harm a cluster that is theirs: it is whole again before each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.client.transport import frame_sender
from daybook.local.cluster import LocalCluster
from tests.process.integration.kit import PATIENCE_S, OwnCluster


@pytest.fixture(scope="package")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """The cluster of this pytest process that tests of this folder harm; it ends with them, because idle bookies use the CPU."""
    owner = OwnCluster(lambda: tmp_path_factory.mktemp("battered", numbered=True))
    yield owner
    owner.stop()


@pytest.fixture
def cluster(own_cluster: OwnCluster) -> LocalCluster:
    """ZooKeeper and the bookies 0 to 3, all running and registered; do to them whatever you like."""
    return own_cluster.whole()


@pytest.fixture
def nobody_stalls_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie fails because of what a test does to it, not because the machine is slow. For modules that measure nothing."""
    monkeypatch.setattr(frame_sender, "STALL_TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A directory for what is no bookie's."""
    return tmp_path
