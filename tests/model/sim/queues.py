"""Every queue of the machines, with its limit: asserted after each step of a machine (nothing may grow without end).

A limit is what follows from the protocol and from the machine's own policy: so many bookies, so many requests to each,
so many entries in a window. `QUEUES` must name every container that the machines hold; `unlisted` finds the others.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter, gt
from typing import Final, NamedTuple, TypeAlias

from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import ENSEMBLE_SIZE_MAX
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.deletions import TOGETHER_MAX

BOOKIES_MAX: Final = 16
"""No simulated cluster has more."""
APPENDS_MAX: Final = 200
"""No simulated writer has more appends under way."""
FRAGMENTS_MAX: Final = 128
"""No simulated ledger changes its ensemble more often."""

TOPIC_LEDGERS_MAX: Final = 100
"""No simulated topic has more ledgers."""

_ENTRIES_MAX: Final = 5 * APPENDS_MAX
_POSITIONS_MAX: Final = BOOKIES_MAX
assert _POSITIONS_MAX <= ENSEMBLE_SIZE_MAX

Path: TypeAlias = tuple[str, str]
"""A class and one of its attributes."""

QUEUES: Final[dict[Path, int]] = {
    # the writer
    ("AppendQueue", "_payloads"): _ENTRIES_MAX,
    ("ExplicitQueue", "_queued"): APPENDS_MAX,
    ("ExplicitQueue", "_pending"): APPENDS_MAX,
    ("WriterState", "appends"): APPENDS_MAX,
    ("WriterState", "bookies"): BOOKIES_MAX,
    ("WriterState", "out"): 20 * APPENDS_MAX,
    ("BatchWindow", "members"): _POSITIONS_MAX,
    ("BatchWindow", "by_bookie"): _POSITIONS_MAX,
    ("BatchWindow", "uncompleted"): APPENDS_MAX,
    ("BatchWindow", "lagging"): APPENDS_MAX,
    ("Member", "outstanding"): APPENDS_MAX,
    ("Quarantine", "_terms"): BOOKIES_MAX,
    ("Forcing", "waiting"): APPENDS_MAX,
    ("Forcing", "_boots"): _POSITIONS_MAX,
    ("PendingForce", "owing"): _POSITIONS_MAX,
    ("Closing", "tokens"): 2,
    # the recovery
    ("LedgerRecovery", "_out"): 100,
    ("Fencing", "refusals"): BOOKIES_MAX,
    ("Fencing", "_pending"): _POSITIONS_MAX,
    ("Fencing", "_lac_answers"): _POSITIONS_MAX + 1,
    ("Replay", "_out"): 100,
    ("Replay", "refusals"): BOOKIES_MAX,
    ("Replay", "_reads"): 2 * _POSITIONS_MAX,
    ("EvidenceWindow", "failed"): _POSITIONS_MAX,
    ("EvidenceWindow", "_found"): 16,
    ("EvidenceWindow", "_testimony"): _POSITIONS_MAX,
    ("Spares", "unfit"): BOOKIES_MAX,
    ("WriteBack", "changes"): BOOKIES_MAX,
    ("WriteBack", "failures"): BOOKIES_MAX,
    ("WriteBack", "_batches"): _ENTRIES_MAX,
    ("WriteBack", "_sent"): _ENTRIES_MAX,
    ("WriteBack", "_unanswered_bytes"): _POSITIONS_MAX,
    ("_Batch", "frames"): _POSITIONS_MAX,
    ("Spares", "bookies"): BOOKIES_MAX,
    # readers
    ("LacReader", "_pending"): BOOKIES_MAX,
    ("LacReader", "_refusals"): BOOKIES_MAX,
    ("LacTail", "_out"): 100,
    ("Piece", "_answers"): _POSITIONS_MAX,
    ("Piece", "_asked"): _POSITIONS_MAX,
    ("Piece", "ready"): _ENTRIES_MAX,
    ("Piece", "reasons"): _POSITIONS_MAX,
    ("Suspects", "_known"): BOOKIES_MAX,
    ("LedgerReader", "_out"): _ENTRIES_MAX,
    ("LedgerReader", "_requests"): _ENTRIES_MAX,
    ("LedgerReader", "_pieces"): _ENTRIES_MAX,
    # repair
    ("LedgerRepair", "_fragments"): FRAGMENTS_MAX,
    ("RepairState", "refilled"): FRAGMENTS_MAX,
    ("_Attempt", "copies"): _POSITIONS_MAX,
    ("_Attempt", "unverified"): _POSITIONS_MAX,
    ("PositionCopy", "boot_ids"): 8,
    ("PositionCopy", "_window"): _ENTRIES_MAX,
    ("PositionCopy", "_found"): _ENTRIES_MAX,
    ("PositionCopy", "_tried"): _ENTRIES_MAX,
    ("PositionCopy", "_slow"): BOOKIES_MAX,
    ("PositionCopy", "_in_flight"): _ENTRIES_MAX,
    ("LedgerWork", "_setbacks"): 2 * FRAGMENTS_MAX,
    ("LedgerWork", "_tries"): 2 * FRAGMENTS_MAX,
    # topics
    ("PendingPublishes", "_waiting"): APPENDS_MAX,
    ("PendingPublishes", "_sent"): APPENDS_MAX,
    ("Deletions", "_waiting"): TOPIC_LEDGERS_MAX,
    ("Deletions", "_asked"): TOGETHER_MAX,
    ("Deletions", "_again"): TOPIC_LEDGERS_MAX,
    ("ListOrders", "_offloads"): 0,  # no simulated topic is offloaded
    ("LedgerList", "unknown_fields"): 0,
    ("ListedLedger", "unknown_fields"): 0,
    ("TopicExtent", "_ids"): TOPIC_LEDGERS_MAX,
    ("TopicExtent", "_counts"): TOPIC_LEDGERS_MAX,
    ("TopicExtent", "_before"): TOPIC_LEDGERS_MAX,
    ("AckState", "_batches"): APPENDS_MAX,
    ("AckState", "_deferred"): 0,  # no simulated topic is compacted
    ("AckState", "_early"): 0,
    ("AckState", "_ranges"): TOPIC_LEDGERS_MAX,
    ("AckState", "_unknown_fields"): 1,
    ("AckState", "properties"): 0,
    ("EntryRanges", "_blocks"): 8,
    ("EntryRanges", "_firsts"): 8,
    ("CursorRecord", "properties"): 0,
    ("CursorRecord", "unknown_fields"): 1,
    # streams
    ("StreamWindow", "_sent"): 16,
    ("StreamAnswers", "_undecided"): 16,
    ("StreamAnswers", "_failures"): APPENDS_MAX,
}
"""Containers by class and attribute, with the most that each may hold."""


PARTS: Final[dict[str, tuple[str, ...]]] = {
    "LedgerWriter": ("_state", "_queue", "_window", "_ensemble", "_forcing", "_closing"),
    "BatchWindow": ("members",),
    "Ensemble": ("quarantine",),
    "Forcing": ("active",),
    "WriteBack": ("_batches",),
    "LedgerRecovery": ("_fences", "_replay", "_spares"),
    "Replay": ("_window", "write_back"),
    "LedgerRepair": ("_work",),
    "FragmentWork": ("_under_way",),
    "_Attempt": ("copies",),
    "LedgerReader": ("_pieces", "_suspects"),
    "ManagedLedger": ("_pending", "_deletions"),
    "Cursor": ("_acks", "_deletions"),
}
"""The parts that a machine consists of, by class: where its other containers are."""


class Limits(NamedTuple):
    """The containers of one class: their names, how to get them (at least two, so that it is a tuple), their limits."""

    names: tuple[str, ...]
    containers: Callable[[object], tuple[object, ...]]
    most: tuple[int, ...]


def limits_of(most: Mapping[str, int]) -> Limits:
    """The limits of a class, by attribute."""
    names = tuple(most)
    return Limits(names, attrgetter(*names, names[0]), tuple(most.values()))


LIMITS: Final = {
    owner: limits_of({name: limit for (cls, name), limit in QUEUES.items() if cls == owner})
    for owner, _ in QUEUES
}


def over_limit(part: object) -> str | None:
    """The first container of `part`, or of its parts, that holds more than it may; None if none does."""
    owner = type(part).__name__
    limits = LIMITS.get(owner)
    if limits is not None and any(map(gt, map(len, limits.containers(part)), limits.most)):  # type: ignore[arg-type] # containers have a length
        for name, limit in zip(limits.names, limits.most, strict=True):
            if len(getattr(part, name)) > limit:
                return f"{owner}.{name} holds {len(getattr(part, name))}, at most {limit} are allowed"
    for name in PARTS.get(owner, ()):
        value = getattr(part, name)
        if value is None:
            continue
        for item in value if isinstance(value, list | deque) else (value,):
            for inner in item if isinstance(item, tuple) else (item,):
                found = over_limit(inner)
                if found:
                    return found
    return None


def unlisted(machine: object) -> set[Path]:
    """The containers of the core's objects that `machine` holds, however deep, and that have no limit in `QUEUES`.

    Slow: for a test, not for every step.
    """
    found: set[Path] = set()
    seen: set[int] = set()
    left: list[object] = [machine]
    while left:
        part = left.pop()
        if id(part) in seen or isinstance(part, IntervalSet | LedgerMetadata):
            continue
        seen.add(id(part))
        if isinstance(part, list | set | deque | tuple | dict):
            left += [*part.values(), *part] if isinstance(part, dict) else part
        elif type(part).__module__.startswith("daybook.core"):
            for name, value in _attributes(part):
                if isinstance(value, list | set | deque | dict) and (type(part).__name__, name) not in QUEUES:
                    found.add((type(part).__name__, name))
                left.append(value)
    return found


def _attributes(part: object) -> Iterator[tuple[str, object]]:
    names = {name for cls in type(part).__mro__ for name in getattr(cls, "__slots__", ())}
    for name in sorted(names | vars(part).keys() if hasattr(part, "__dict__") else names):
        if hasattr(part, name):
            yield name, getattr(part, name)
