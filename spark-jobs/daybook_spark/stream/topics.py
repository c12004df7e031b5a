"""The topics that a query follows: a client that stays connected between batches, and what it asks for each of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias, TypeVar

import daybook
from daybook.client.loop_thread import LoopThread
from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import ListState, Position
from daybook.metadata.topics import TopicManager
from daybook.runtime.logs import get_logger
from daybook_spark.access import open_client
from daybook_spark.options import ReadOptions, Where
from daybook_spark.plan.batch import topic_ranges
from daybook_spark.plan.bounds import FIRST, Bounds
from daybook_spark.plan.entry_range import Range
from daybook_spark.plan.existing import TopicPart, extent_of, parts_of
from daybook_spark.plan.times import span_of
from daybook_spark.rows.topic_rows import TimeRange
from daybook_spark.stream.losses import came_later, why_topic_lost

log = get_logger(__name__)
T = TypeVar("T")
R = TypeVar("R")

AT_A_TIME: Final = 32
"""How many topics are asked about side by side."""

Check: TypeAlias = Callable[[daybook.Client, TopicPart, TopicExtent, Position | None], Awaitable[None]]
Lost: TypeAlias = Callable[[str], None]


class DataLossError(DaybookError):
    """Entries that a query has not read are gone."""


class FollowedTopics:
    """What exists of the topics that options name; every method is for the thread of the stream."""

    def __init__(self, options: ReadOptions) -> None:
        """Connect at the first question."""
        self._options = options
        self._loop: LoopThread | None = None
        self._client: daybook.Client | None = None

    @property
    def where(self) -> Where:
        """The cluster."""
        return self._options.where

    def close(self) -> None:
        """Disconnect."""
        if self._loop is not None:
            if self._client is not None:
                self._loop.run(self._client.close())
            self._loop.close()
            self._loop = self._client = None

    def ask(self, work: Callable[[daybook.Client], Awaitable[T]]) -> T:
        """The result of `work` with the client."""
        if self._loop is None:
            self._loop = LoopThread()

        async def run() -> T:
            if self._client is None:
                self._client = await open_client(self._options.where).__aenter__()
            return await work(self._client)

        return self._loop.run(run())

    def extents(self) -> dict[str, TopicExtent]:
        """The acknowledged entries of each topic, by its whole name. Raises NoSuchTopicError."""

        async def work(client: daybook.Client) -> dict[str, TopicExtent]:
            parts = await parts_of(client, self._options)
            found = await _each(parts, lambda part: extent_of(client, part))
            return {str(part.name): extent for part, extent in zip(parts, found, strict=True)}

        return self.ask(work)

    def starts(self, extents: Mapping[str, TopicExtent], *, is_from_latest: bool) -> dict[str, Position]:
        """Where a new query begins in each topic."""
        start_ms = self._options.start_time_ms

        async def work(client: daybook.Client) -> dict[str, Position]:
            spans = await _each(
                list(extents.values()), lambda extent: span_of(client, extent, TimeRange(start_ms))
            )
            return {name: first for name, (first, _) in zip(extents, spans, strict=True)}

        if start_ms is not None:
            return self.ask(work)
        return {name: extent.end if is_from_latest else extent.first for name, extent in extents.items()}

    def lasts(self, end: Mapping[str, Position]) -> dict[str, Position]:
        """The last entry before each position, of topics that have one."""

        async def of_part(client: daybook.Client, part: TopicPart) -> Position | None:
            beyond = end[str(part.name)]
            try:
                extent = await listed(client, part, beyond)
            except NoSuchTopicError:
                if part.partition is None:
                    raise
                return None  # nobody has used the partition yet
            return last_before(extent, beyond)

        async def work(client: daybook.Client) -> dict[str, Position]:
            parts = [part for part in await parts_of(client, self._options) if str(part.name) in end]
            found = await _each(parts, lambda part: of_part(client, part))
            return {str(part.name): last for part, last in zip(parts, found, strict=True) if last is not None}

        return self.ask(work)

    def ranges(
        self, start: Mapping[str, Position], end: Mapping[str, Position], *, checks: Check, lost: Lost
    ) -> list[Range]:
        """The entries from `start` up to and without `end`, which was found before: no bookie is asked for a LAC again.

        `checks(client, part, extent, start)` raises where entries are gone that it minds; `start` is None for a topic that came after the
        query began, which is read from its first entry. `lost(why)` raises, or the batch is without the entries of a topic that is gone.
        """

        async def of_part(client: daybook.Client, part: TopicPart) -> list[Range]:
            name = str(part.name)
            first, beyond = start.get(name, FIRST), end[name]
            if first >= beyond:
                return []
            try:
                extent = await listed(client, part, beyond)
            except NoSuchTopicError:
                lost(why_topic_lost(name, first))
                return []
            if name in start or came_later(part, start, self._options.namespaces):
                await checks(client, part, extent, start.get(name))
            bounds = Bounds(first, beyond)
            return await topic_ranges(client, part, extent, bounds, self._options.partition_bytes)

        async def work(client: daybook.Client) -> list[Range]:
            parts = {str(part.name): part for part in await parts_of(client, self._options)}
            for name in sorted(end.keys() - parts.keys()):
                if (first := start.get(name, FIRST)) < end[name]:
                    lost(why_topic_lost(name, first))
            wanted = [part for name, part in parts.items() if name in end]
            found = await _each(wanted, lambda part: of_part(client, part))
            return [each for ranges in found for each in ranges]

        return self.ask(work)


def last_before(extent: TopicExtent, end: Position) -> Position | None:
    """The last entry before `end`; None if none is left."""
    last = extent.before(end)
    return last if extent.contains(last) else None


async def listed(client: daybook.Client, part: TopicPart, end: Position) -> TopicExtent:
    """The entries of a topic by its list, and by `end`, which somebody has found to be acknowledged up to there."""
    ledger_list = (await TopicManager(client.store, client.layout).read(part.name, sync=True)).value
    extent = TopicExtent(ledger_list)
    is_open = ledger_list.state is ListState.OPEN and ledger_list.ledgers[-1].ledger_id == end.ledger_id
    if is_open and end.entry_id > 0:
        extent.confirm(end.before)
    return extent


async def _each(items: list[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results of `work` for all items, a few at a time."""
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    return await asyncio.gather(*map(one, items))
