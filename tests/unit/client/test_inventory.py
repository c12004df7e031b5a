"""What bookies have beside what the metadata names."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from daybook.client.inventory import Unnamed, unnamed_ledgers
from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.store.store import Versioned
from daybook.wire import bookie_pb2 as pb
from tests.unit.metadata.harness import ledger

NAMED = {1, 2, 5, 9}
"""On b1, b2 and b3."""


class FakeClient:
    """Metadata of some ledgers; `late` begin after the listing."""

    def __init__(self, *late: int) -> None:
        self.ledgers = self
        self._late = set(late)

    async def list_ledgers(self) -> AsyncIterator[Versioned[LedgerMetadata]]:
        for ledger_id in sorted(NAMED):
            yield Versioned(ledger(ledger_id), 0)

    async def read(self, ledger_id: int, *, sync: bool) -> Versioned[LedgerMetadata]:
        assert sync
        if ledger_id not in NAMED | self._late:
            raise NoSuchLedgerError(str(ledger_id))
        return Versioned(ledger(ledger_id), 0)


class FakeBookies:
    """Bookies with the entries 0 to 4 of some ledgers, and fences of others, listed in pages of two."""

    def __init__(self, held: dict[str, list[int]], fenced: dict[str, list[int]] | None = None) -> None:
        self._held = held
        self._fenced = fenced or {}

    async def list_ledgers(self, bookie: str, request: pb.ListLedgersRequest) -> pb.ListLedgersResponse:
        if bookie not in self._held:
            raise DaybookError(f"{bookie} does not answer")
        known = sorted(self._held[bookie] + self._fenced.get(bookie, []))
        left = [ledger_id for ledger_id in known if ledger_id > request.after_ledger]
        return pb.ListLedgersResponse(ledger_ids=left[:2], more=len(left) > 2)

    async def intervals(self, bookie: str, request: pb.EntryIntervalsRequest) -> pb.EntryIntervalsResponse:
        has = request.ledger_id in self._held[bookie]
        interval = pb.EntryInterval(first_entry=0, last_entry=4)
        return pb.EntryIntervalsResponse(intervals=[interval] if has else [], last_add_confirmed=3)


async def unnamed(client: Any, bookies: FakeBookies, *asked: str) -> list[Unnamed]:
    """All that is found."""
    return [each async for each in unnamed_ledgers(client, bookies, asked)]


async def test_ledgers_that_the_metadata_lacks_and_copies_that_lie_elsewhere_are_found_in_order() -> None:
    bookies = FakeBookies(
        {"b1": [1, 2, 3, 5, 12], "b2": [1, 3, 9, 10, 11, 12], "b4": [2, 12]}, fenced={"b4": [1, 5, 10]}
    )
    assert await unnamed(FakeClient(11), bookies, "b4", "b2", "b1") == [
        Unnamed(2, is_in_metadata=True, first_entry=0, last_entry=4, bookies=("b4",)),
        Unnamed(3, is_in_metadata=False, first_entry=0, last_entry=4, bookies=("b1", "b2")),
        Unnamed(10, is_in_metadata=False, first_entry=0, last_entry=4, bookies=("b2",)),
        Unnamed(12, is_in_metadata=False, first_entry=0, last_entry=4, bookies=("b1", "b2", "b4")),
    ]


async def test_a_bookie_that_does_not_answer_makes_no_shorter_list() -> None:
    with pytest.raises(DaybookError, match="b2 does not answer"):
        await unnamed(FakeClient(), FakeBookies({"b1": [1]}), "b1", "b2")
