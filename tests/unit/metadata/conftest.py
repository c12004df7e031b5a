"""Tests of this folder run on either store."""

from collections.abc import Iterator

import pytest

from daybook.metadata.store.store import MetadataStore
from tests.unit.metadata.harness import Opener, memory_opener, zookeeper_opener


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.integration)])
def opener(request: pytest.FixtureRequest) -> Iterator[Opener]:
    if request.param == "zookeeper":
        yield zookeeper_opener(request.getfixturevalue("zookeeper"))
        return
    shared: list[Opener] = []

    async def open_memory() -> MetadataStore:
        if not shared:
            shared.append(memory_opener()[1])
        return await shared[0]()

    yield open_memory
