"""Fixtures that every folder of tests may use."""

from hypothesis import settings

settings.register_profile(
    "daybook", deadline=None
)  # how long an example takes depends on what else the machine does
settings.load_profile("daybook")

pytest_plugins = ["tests.fixtures.zookeeper", "tests.fixtures.cluster"]
