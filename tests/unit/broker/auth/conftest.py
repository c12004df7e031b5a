"""Brokers that ask who their clients are serve alone: one that others left running would answer for them, and let everybody in."""

import pytest


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    if "cluster" in request.fixturenames:
        request.getfixturevalue("no_brokers")
