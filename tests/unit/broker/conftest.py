"""Brokers of a test serve alone: others that earlier tests left running would lead, own its topics, and let everybody in."""

import pytest


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    if "cluster" in request.fixturenames and "brokers" not in request.fixturenames:
        request.getfixturevalue("no_brokers")
