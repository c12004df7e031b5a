"""Fixtures that every folder of tests may use."""

import pytest
from hypothesis import is_hypothesis_test, settings

settings.register_profile(
    "daybook", deadline=None
)  # how long an example takes depends on what else the machine does
settings.load_profile("daybook")

pytest_plugins = [
    "tests.fixtures.zookeeper",
    "tests.fixtures.cluster",
    "tests.fixtures.brokers",
    "tests.fixtures.spark",
]

SHRINKING_S = 420
"""Hypothesis takes up to 300 s to make a failing history short; a test that is ended before that tells none at all."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave properties the time to say what they found; one that passes ends long before.

    Tests of Spark come first: pytest's processes begin with equal parts of the list and steal from each other's ends, so that
    one process alone starts Spark.
    """
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))
    for item in items:
        function = getattr(item, "obj", None)
        if is_hypothesis_test(function) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
