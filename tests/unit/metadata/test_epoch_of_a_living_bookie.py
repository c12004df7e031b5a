"""A running bookie registers again, whatever happened to the node of its epoch meanwhile (rule 57, rule 58)."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.claim import SupersededError
from daybook.metadata.registration import Registration
from daybook.metadata.store.store import MetadataStore
from tests.unit.metadata.harness import LAYOUT, claim_of, following, formatted, memory_opener, soon, stores

OWN = BookieInfo("b0", boot_id="own")
PATH = LAYOUT.epoch("b0")

Change: TypeAlias = Callable[[MetadataStore], Awaitable[None]]


def written(boot_id: str, epoch: int) -> bytes:
    """The record that a process of the same directories writes."""
    record = {"formatVersion": 1, "incarnation": "incarnation-1", "epoch": epoch, "bootId": boot_id}
    return json.dumps(record).encode()


async def is_gone(store: MetadataStore) -> None:
    """ZooKeeper is restored to a time before the release with such nodes."""
    await store.delete(PATH)


async def is_of_an_earlier_process(store: MetadataStore) -> None:
    """ZooKeeper is restored to a time before this process's start."""
    await store.delete(PATH)
    await store.create(PATH, written("of-before", 3))


async def is_an_earlier_one_of_its_own(store: MetadataStore) -> None:
    """ZooKeeper is restored to a time after this process's start."""
    await store.delete(PATH)
    await store.create(PATH, written("own", 6))


@pytest.mark.parametrize("went_back", [is_gone, is_of_an_earlier_process, is_an_earlier_one_of_its_own])
async def test_rule_58_a_zookeeper_that_went_back_under_a_living_bookie_does_no_harm(
    went_back: Change,
) -> None:
    server, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        superseded: list[SupersededError] = []
        claim = await claim_of(one, OWN)
        await Registration.register(one, LAYOUT, OWN, claim, on_superseded=superseded.append)
        for epoch in (6, 7):
            await claim.raise_epoch(epoch)
        await went_back(two)
        server.expire(one.session.session_id)
        seen: list[object] = []
        watching = BookieDirectory(two, LAYOUT).watch_bookies()
        await soon(following(watching, seen, lambda: {} in seen and seen[-1] == {"b0": OWN}))
        await claim.raise_epoch(8)
        assert json.loads((await two.get(PATH)).value)["epoch"] == 8
        assert superseded == []


async def test_rule_57_a_registration_whose_answer_was_lost_is_not_the_last_one() -> None:
    """Its session ended as well, so only the epoch is left of what it wrote."""
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        claim = await claim_of(one, OWN)
        await two.create(PATH, written("own", 1), parents=True)
        await soon(Registration.register(one, LAYOUT, OWN, claim, on_superseded=lambda _: None), 5.0)
        await claim.raise_epoch(2)
        assert json.loads((await two.get(PATH)).value)["epoch"] == 2


async def test_rule_58_a_raise_that_came_late_is_raised_over() -> None:
    _, opener = memory_opener()
    async with stores(opener, 2) as (one, two):
        await formatted(one)
        claim = await claim_of(one, OWN)
        await Registration.register(one, LAYOUT, OWN, claim, on_superseded=lambda _: None)
        await two.put(PATH, written("own", 4), None)
        await claim.raise_epoch(5)
        assert json.loads((await two.get(PATH)).value)["epoch"] == 5
