"""How far a query is in each topic, and how far its next batch may go.

An offset has for each topic (a partitioned one has several) the position of the entry that is read next. Spark stores it as JSON
and gives it back after a restart, perhaps of a later release.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from daybook.core.errors import MetadataError
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position

FORMAT_VERSION: Final = 1
ENTRY_BYTES_GUESS: Final = 1024
"""Of a topic none of whose ledgers was closed yet."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The next position of each topic, by the topic's whole name."""

    following: Mapping[str, Position]

    def to_dict(self) -> dict[str, Any]:
        """What Spark stores."""
        return {
            "formatVersion": FORMAT_VERSION,
            "next": {name: str(self.following[name]) for name in sorted(self.following)},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Offset":
        """The inverse. Raises MetadataError."""
        try:
            if stored["formatVersion"] != FORMAT_VERSION:
                raise ValueError("format")
            return cls({name: Position.parse(text) for name, text in stored["next"].items()})
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            msg = (
                f"the checkpoint has an offset that this release cannot read: {json.dumps(stored)[:200]}; use the release that "
                "wrote it, or another checkpoint"
            )
            raise MetadataError(msg) from error


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batch may have, over all topics; None: no limit."""

    entries_max: int | None = None
    bytes_max: int | None = None


def backlog(extent: TopicExtent, start: Position) -> int:
    """How many entries there are from `start` on."""
    return extent.count(_before(start))


def entry_bytes(extent: TopicExtent) -> float:
    """How large an entry of the topic is on average, as far as its closed ledgers say."""
    closed = [each for each in extent.ledger_list.ledgers if each.entries]
    size_bytes = sum(each.size_bytes for each in closed)
    return max(1.0, size_bytes / sum(each.entries for each in closed)) if closed else ENTRY_BYTES_GUESS


def advance(extent: TopicExtent, start: Position, entries: int) -> Position:
    """The next position once so many entries from `start` on are read; `start` if there are none, also if the LAC seems lower."""
    last = extent.nth_after(_before(start), entries)
    if entries <= 0 or last < start:
        return start
    return max(start, extent.after(last))


def shares(
    extents: Mapping[str, TopicExtent], start: Mapping[str, Position], limits: Limits
) -> dict[str, int]:
    """How many entries of each topic a batch takes: all, or equal parts of the limit, at least one of each that has any.

    What a topic does not need of its part is left for the others.
    """
    waiting = {name: backlog(extents[name], start[name]) for name in extents}
    budget = _budget(extents, waiting, limits)
    if budget is None:
        return waiting
    taken: dict[str, int] = {}
    names = sorted((name for name in waiting if waiting[name]), key=lambda name: (waiting[name], name))
    for index, name in enumerate(names):
        taken[name] = max(1, min(waiting[name], budget // (len(names) - index)))
        budget = max(0, budget - taken[name])
    return {name: taken.get(name, 0) for name in waiting}


def _budget(extents: Mapping[str, TopicExtent], waiting: Mapping[str, int], limits: Limits) -> int | None:
    """The limits in entries."""
    budgets = list(_budgets(extents, waiting, limits))
    return min(budgets) if budgets else None


def _budgets(extents: Mapping[str, TopicExtent], waiting: Mapping[str, int], limits: Limits) -> Iterator[int]:
    if limits.entries_max is not None:
        yield limits.entries_max
    if limits.bytes_max is not None:
        sizes = [entry_bytes(extent) for name, extent in extents.items() if waiting[name]]
        yield max(1, int(limits.bytes_max / max(sizes, default=ENTRY_BYTES_GUESS)))


def _before(start: Position) -> Position:
    return start.before
