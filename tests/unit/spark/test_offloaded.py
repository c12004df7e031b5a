"""A query of a topic whose ledgers lie in files alone: an error that says so, never a gap (rule 70)."""

from typing import Any

import pytest
from daybook_spark.plan.batch import topic_ranges
from daybook_spark.plan.bounds import Bounds
from daybook_spark.plan.existing import TopicPart

from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName
from daybook.offload.errors import OffloadError
from tests.unit.core.topics.offload.kit import offload, offloaded_list

NAME = TopicName.parse("persistent://public/default/orders")


async def ranges(start: Position) -> Any:
    files = {3: offload(3, 10).without_replicas, 4: offload(4, 10).without_replicas, 5: offload(5, 10)}
    extent = TopicExtent(offloaded_list(files))
    nobody: Any = None
    return await topic_ranges(nobody, TopicPart(NAME, str(NAME)), extent, Bounds(start=start), 1_000)


async def test_rule_70_a_query_of_ledgers_without_replicas_fails_before_it_reads() -> None:
    with pytest.raises(OffloadError, match="like 3, and queries read bookies alone: begin behind ledger 4"):
        await ranges(Position(0, 0))


async def test_a_query_behind_them_asks_the_bookies() -> None:
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'ledgers'"):
        await ranges(Position(5, 0))
