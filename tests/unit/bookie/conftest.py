"""Bookies for the tests of the server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bookie.server_kit import RunningBookie


@pytest.fixture
def over(request: pytest.FixtureRequest) -> str:
    """What append streams use; a module runs over both with OVER_BOTH (server_kit)."""
    return getattr(request, "param", "grpc")


@pytest.fixture
def start_bookie(tmp_path: Path, over: str) -> Iterator[Callable[..., RunningBookie]]:
    """Starts bookies that are stopped at the end; two share a directory only one after the other."""
    started: list[RunningBookie] = []

    def start(directory: str = "b0", **changes: Any) -> RunningBookie:
        running = RunningBookie(tmp_path / directory, **{"over": over, **changes})
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def bookie(start_bookie: Callable[..., RunningBookie]) -> RunningBookie:
    """A bookie that knows the open ledger 1."""
    running = start_bookie()
    running.create_ledger(1)
    return running
