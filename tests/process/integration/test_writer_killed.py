"""Writers that are killed at any moment; others recover and close what they wrote."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from daybook.local.child import wait_for_exit
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to
from tests.process.integration.kit import PATIENCE_S, copies, eventually
from tests.process.integration.workload import read_back
from tests.process.integration.writer_process import parse

pytestmark = pytest.mark.integration

KILL_TIMEOUT_MS = 40_000


class Writer:
    """A writing process, and the file with its reports."""

    def __init__(self, zookeeper: str, said: Path) -> None:
        """Start it."""
        self._said = said
        with said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.integration.writer_process", zookeeper],
                stdin=subprocess.DEVNULL,
                stdout=out,
            )

    def said(self) -> str:
        """Everything it said so far."""
        return self._said.read_text(encoding="ascii")

    def kill(self) -> None:
        """SIGKILL; returns once it is gone."""
        self._process.kill()
        assert wait_for_exit(self._process.pid, KILL_TIMEOUT_MS)
        self._process.wait()


@pytest.fixture
def start_writer(cluster: LocalCluster, tmp_path: Path) -> Iterator[Callable[[str], Writer]]:
    """Starts writers that are killed at the end, if not before."""
    with ExitStack() as started:

        def start(name: str) -> Writer:
            writer = Writer(cluster.zookeeper.connect_string, tmp_path / name)
            started.callback(writer.kill)
            return writer

        yield start


async def test_writers_killed_at_random_moments_lose_nothing_acknowledged(
    cluster: LocalCluster, start_writer: Callable[[str], Writer]
) -> None:
    async def one(seed: int) -> int:
        rng = random.Random(seed)
        writer = start_writer(str(seed))
        acknowledgements = rng.randrange(1, 60)
        await eventually(lambda: writer.said().count("ack") >= acknowledgements, 2 * PATIENCE_S)
        writer.kill()
        history = parse(writer.said())
        assert history.acknowledged_entries > 0
        async with connect_to(cluster) as one, connect_to(cluster) as two:
            await asyncio.gather(read_back(one, history), read_back(two, history))
        assert history.judge() == []
        (ledger_id,) = history.ledgers
        return ledger_id

    for ledger_id in await asyncio.gather(*(one(seed) for seed in range(4))):
        found = await copies(cluster, ledger_id)
        assert not any(copy.damaged or copy.differing for copy in found.values())


def test_what_a_killed_writer_said_last_may_be_cut_off() -> None:
    history = parse("ledger 3\nsubmit 2\nsubmit 1\nack 0 1\nack 2")
    assert (len(history.ledgers[3].submitted), history.ledgers[3].acknowledged) == (3, [(0, 1)])
