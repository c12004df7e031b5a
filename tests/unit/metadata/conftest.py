"""Tests of this folder may be coroutines, each on an event loop of its own, and run on either store."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from daybook.metadata.store.store import MetadataStore
from tests.unit.metadata.harness import Opener, memory_opener, zookeeper_opener


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


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
