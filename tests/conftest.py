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
    "tests.fixtures.object_store",
]

SHRINKING_S = 420
"""Hypothesis takes up to 300 s to make a failing history short; a test that is ended before that tells none at all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test` has run the tests of the core when it runs all the others."""
    parser.addoption(
        "--properties-of",
        action="append",
        default=[],
        metavar="FOLDER",
        help="of the tests in this folder run the properties alone: they draw other examples each time",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave properties the time to say what they found; one that passes ends long before.

    Tests of Spark come first: pytest's processes begin with equal parts of the list and steal from each other's ends, so that
    one process alone starts Spark.
    """
    folders = [config.rootpath / each for each in config.getoption("--properties-of")]
    left_out = [
        item
        for item in items
        if any(item.path.is_relative_to(each) for each in folders)
        and not is_hypothesis_test(getattr(item, "obj", None))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))
    for item in items:
        function = getattr(item, "obj", None)
        if is_hypothesis_test(function) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
