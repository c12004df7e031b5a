"""A round that fails tells one error, and leaves no other behind that nobody heard."""

import asyncio
import gc
from typing import Any

import pytest

from daybook.autorecovery.cycles import AuditCycles
from daybook.core.errors import MetadataUnavailableError
from daybook.core.ids import LedgerId
from tests.unit.autorecovery.kit import SETTINGS, FakeCluster


async def test_of_several_ledgers_that_fail_at_once_no_error_is_left_unheard(cluster: FakeCluster) -> None:
    unheard: list[dict[str, Any]] = []
    for _ in range(5):
        await cluster.ledger("b1", "b2", "b3")
    asked: list[LedgerId] = []

    async def refuse(ledger_id: LedgerId) -> None:
        asked.append(ledger_id)
        raise MetadataUnavailableError("ZooKeeper is away")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    cluster.ledgers.read = refuse  # type: ignore[method-assign, assignment] # a store that goes during the round
    with pytest.raises(MetadataUnavailableError):
        await AuditCycles(cluster, SETTINGS).cycle(full=True)
    assert len(asked) == 5
    gc.collect()
    gc.collect()
    assert not unheard, unheard
