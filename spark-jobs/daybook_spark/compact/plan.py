"""In the driver: what a compaction reads, cut into parts that follow each other, each with one compacted ledger to be.

It reads what the former compaction left and then the topic's own entries behind the horizon of that, up to the last one that everybody may
read now. New ledgers are made as the topic's newest one is: of the same quorum, in the same pool (rule 69).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import daybook
from daybook.core.errors import CompactionError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.compaction.commit import FormerCompaction, former_of, planned_ledgers
from daybook.core.topics.ledger_list import NO_POSITION, Compaction, LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.metadata.policies import PolicyManager
from daybook_spark.compact.places import ENTRIES_MAX, PART_NUMBERS
from daybook_spark.plan.batch import ranges_of, topic_ranges
from daybook_spark.plan.bounds import FIRST, Bounds
from daybook_spark.plan.entry_range import EntryRange, Range
from daybook_spark.plan.existing import TopicPart, extent_of, metadata_of

PARTS_MAX: Final = 1000
"""The list names a ledger for each part, and so does the request to the owner: beyond so many, parts are larger."""
assert 2 * PARTS_MAX < PART_NUMBERS, "of two parts that follow each other at least one is half full"


class Run(NamedTuple):
    """Entries of one ledger."""

    entries: Range
    is_compacted: bool
    """Whether a former compaction wrote them."""


@dataclass(frozen=True)
class Part:
    """Entries that follow each other in the topic, for one task and one compacted ledger."""

    number: int
    runs: tuple[Run, ...]

    @property
    def entries(self) -> int:
        """How many entries it has."""
        return sum(run.entries.last - run.entries.first + 1 for run in self.runs)


@dataclass(frozen=True)
class JobPlan:
    """One compaction of one topic."""

    topic: TopicName
    former: FormerCompaction | None
    planned: tuple[PlannedLedger, ...]
    horizon: Position
    parts: tuple[Part, ...]
    size_bytes: int
    """About how much each of the two passes reads."""
    quorum: Quorum
    pool: str
    first_id: LedgerId
    """Ledgers of this job have larger ids, or this one."""
    keeps_keyless: bool
    """Whether messages without a key stay."""

    @property
    def entries(self) -> int:
        """How many entries each pass reads."""
        return sum(part.entries for part in self.parts)


async def plan_topic(
    client: daybook.Client, name: TopicName, part_bytes: int, keeps_keyless: bool | None
) -> JobPlan | None:
    """The next compaction of a topic; None if nothing came since the last one. Its policy says what is not asked for.

    Raises NoSuchTopicError, NoSuchLedgerError for a ledger that was trimmed meanwhile, NotEnoughReplicasError, CompactionError.
    """
    part = TopicPart(name, str(name))
    extent = await extent_of(client, part)
    ledger_list = extent.ledger_list
    compaction = ledger_list.compaction
    start = NO_POSITION if compaction is None else compaction.horizon
    if not extent.count(start):
        return None
    horizon = extent.before(extent.end)
    bounds = Bounds(start=max(FIRST, start.behind), end=horizon.behind)
    own = await topic_ranges(client, part, extent, bounds, part_bytes)
    former = [] if compaction is None else await _former_ranges(client, compaction, part_bytes)
    runs = [
        *(Run(each, is_compacted=True) for each in former),
        *(Run(each, is_compacted=False) for each in own),
    ]
    size_bytes = sum(map(_size_bytes, runs))
    newest = _newest_of_bookies(name, own)
    return JobPlan(
        name,
        former_of(compaction),
        _planned(ledger_list, start, horizon),
        horizon,
        tuple(parts_of(runs, max(part_bytes, size_bytes // PARTS_MAX + 1))),
        size_bytes,
        newest.quorum,
        newest.pool,
        await client.ledgers.next_id(),
        await _policy_keeps_keyless(client, name) if keeps_keyless is None else keeps_keyless,
    )


async def _policy_keeps_keyless(client: daybook.Client, name: TopicName) -> bool:
    terms = (await PolicyManager(client.store, client.layout).topic(name)).value.compaction
    return terms is None or terms.keeps_keyless


def _newest_of_bookies(name: TopicName, own: Iterable[Range]) -> LedgerMetadata:
    """Raises CompactionError where the topic's own entries lie in files alone."""
    of_bookies = [each.metadata for each in own if isinstance(each, EntryRange)]
    if not of_bookies:
        msg = (
            f"all that came to {name} since its last compaction is offloaded, and no ledger says how new ones are made: "
            "compact it again once something was published"
        )
        raise CompactionError(msg)
    return of_bookies[-1]


async def _former_ranges(client: daybook.Client, former: Compaction, part_bytes: int) -> list[EntryRange]:
    metadata = await metadata_of(client, [ledger.ledger_id for ledger in former.ledgers])
    return [
        each
        for ledger in former.ledgers
        for each in ranges_of(client, metadata[ledger.ledger_id], 0, ledger.entries - 1, part_bytes)
    ]


def _planned(ledger_list: LedgerList, start: Position, horizon: Position) -> tuple[PlannedLedger, ...]:
    return tuple(
        PlannedLedger(ledger.ledger_id, ledger.entries, ledger.size_bytes)
        for ledger in planned_ledgers(ledger_list, start, horizon)
    )


def parts_of(runs: Iterable[Run], part_bytes: int) -> Iterator[Part]:
    """The runs, those that follow each other together: a topic of many short ledgers is not compacted into as many.

    Raises CompactionError for a part of more entries than places can tell apart.
    """
    for number, together in enumerate(_together(runs, part_bytes)):
        part = Part(number, tuple(together))
        if part.entries > ENTRIES_MAX:
            msg = (
                f"a part of {part.entries} entries: at most {ENTRIES_MAX} are possible; ask for smaller parts"
            )
            raise CompactionError(msg)
        yield part


def _together(runs: Iterable[Run], part_bytes: int) -> Iterator[list[Run]]:
    together, size_bytes = list[Run](), 0
    for run in runs:
        run_bytes = _size_bytes(run)
        if together and size_bytes + run_bytes > part_bytes:
            yield together
            together, size_bytes = [], 0
        together.append(run)
        size_bytes += run_bytes
    if together:
        yield together


def _size_bytes(run: Run) -> int:
    entries = run.entries
    return int(entries.entry_bytes * (entries.last - entries.first + 1))
