"""Fixtures that every folder of tests may use."""

pytest_plugins = ["tests.fixtures.zookeeper", "tests.fixtures.cluster"]
