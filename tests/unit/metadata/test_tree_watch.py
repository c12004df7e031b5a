"""A watched tree over a real ZooKeeper whose connection is lost."""

import asyncio

import pytest

from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.store.tree_watch import WatchLostError
from tests.unit.metadata.harness import stores, zookeeper_opener


@pytest.mark.integration
async def test_a_watched_tree_is_lost_with_the_connection_and_can_be_watched_anew(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    """Nobody knows what changed until the next connection."""
    async with stores(zookeeper_opener(own_zookeeper.connect_string), 1) as (store,):
        await store.create("/a")
        watch = await store.watch_tree("/a")
        await asyncio.to_thread(own_zookeeper.kill)
        await asyncio.to_thread(own_zookeeper.start)
        await store.sync()
        with pytest.raises(WatchLostError, match="run the command again"):
            watch.take()
        store.forget_tree(watch)
        again = await store.watch_tree("/a")
        await store.create("/a/b")
        await store.sync()
        assert "/a/b" in again.take()
