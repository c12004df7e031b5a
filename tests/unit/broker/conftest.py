"""Brokers of a test serve alone: others that earlier tests left running would lead, own its topics, and let everybody in."""

from collections.abc import Iterator

import pytest

from tests.fixtures.brokers import Brokers, write_settings

LONG_SESSION_MS = 10_000
"""As long as the tests' ZooKeeper lets a session be."""


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    if "cluster" in request.fixturenames and "brokers" not in request.fixturenames:
        request.getfixturevalue("no_brokers")


@pytest.fixture
def patient_brokers(brokers: Brokers) -> Iterator[Brokers]:
    """Both brokers, running, which keep their sessions over a pause that a slow machine makes long."""
    brokers.none()
    write_settings(brokers.cluster, brokers.ids, session_timeout_ms=LONG_SESSION_MS)
    brokers.whole()
    yield brokers
    brokers.none()
    write_settings(brokers.cluster, brokers.ids)
