"""A ledger's place in the queue of repairs: what is stored for it, and when it is its turn.

A task says which ledger and why; never how, because a worker plans anew from what is true when it begins (rule 33).
A ledger that cannot be repaired now goes into a bucket with growing pauses, so that it blocks no other (rule 35).
"""

import json
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Self

from daybook.core.audit.judgement import LedgerAudit, OpenAction, Reason
from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId, EntryId, LedgerId, check_bookie_id, check_ledger_id

TASK_FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RepairTask:
    """A ledger that needs repair. `bookies` and `first_entries` (of fragments) say where; all rise, none twice.

    `lost` are those of `bookies` that had been away for longer than the delay.
    """

    ledger_id: LedgerId
    reasons: tuple[Reason, ...]
    bookies: tuple[BookieId, ...] = ()
    lost: tuple[BookieId, ...] = ()
    first_entries: tuple[EntryId, ...] = ()
    recover: bool = False
    """The ledger must be fenced and recovered before its last fragment can be repaired (rule 31)."""

    @classmethod
    def of(cls, audit: LedgerAudit) -> Self:
        """The task for what `audit` found."""
        return cls(
            audit.ledger_id,
            _sorted_reasons(problem.reason for problem in audit.problems),
            tuple(sorted({problem.bookie for problem in audit.problems if problem.bookie})),
            tuple(sorted({p.bookie for p in audit.problems if p.reason is Reason.LOST})),
            tuple(sorted({problem.first_entry for problem in audit.problems})),
            audit.open_action is OpenAction.RECOVER,
        )

    def merged(self, other: Self) -> Self:
        """Both tasks of one ledger as one."""
        assert other.ledger_id == self.ledger_id
        return type(self)(
            self.ledger_id,
            _sorted_reasons((*self.reasons, *other.reasons)),
            tuple(sorted({*self.bookies, *other.bookies})),
            tuple(sorted({*self.lost, *other.lost})),
            tuple(sorted({*self.first_entries, *other.first_entries})),
            self.recover or other.recover,
        )

    def still_lost(self, registered: AbstractSet[BookieId]) -> frozenset[BookieId]:
        """The bookies that are to be taken for lost: those the task was made for, unless they are back (rule 33).

        A bookie that is merely away now, and was not lost when the task was made, is not among them.
        """
        return frozenset(self.lost) - registered

    def to_json(self) -> bytes:
        """The record as it is stored."""
        record = {
            "formatVersion": TASK_FORMAT_VERSION,
            "ledgerId": self.ledger_id,
            "reasons": [reason.value for reason in self.reasons],
            "bookies": list(self.bookies),
            "lost": list(self.lost),
            "firstEntries": list(self.first_entries),
            "recover": self.recover,
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored task. Raises MetadataError for anything that `to_json` of this version cannot make."""
        try:
            record = json.loads(data)
            if record["formatVersion"] != TASK_FORMAT_VERSION:
                msg = f"a repair task has format {record['formatVersion']}, this release reads {TASK_FORMAT_VERSION}"
                raise MetadataError(msg)
            return cls(
                check_ledger_id(int(record["ledgerId"])),
                _sorted_reasons(map(Reason, record["reasons"])),
                tuple(sorted(map(check_bookie_id, record["bookies"]))),
                tuple(sorted(map(check_bookie_id, record["lost"]))),
                tuple(sorted(map(int, record["firstEntries"]))),
                bool(record["recover"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            msg = f"this is no repair task ({type(error).__name__}: {error}): {data[:200]!r}; delete it, the auditor makes it anew"
            raise MetadataError(msg) from error


def _sorted_reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(sorted(set(reasons), key=lambda reason: reason.value))


@dataclass(frozen=True, slots=True)
class Setback:
    """A ledger that could not be repaired: why, how often by now, and when it is tried again."""

    ledger_id: LedgerId
    why: str
    failures: int
    not_before_ms: int
    unrecoverable: bool


class RetryBucket:
    """The ledgers whose repair failed. Pauses double from `first_ms` to `max_ms`."""

    def __init__(self, first_ms: int = 5_000, max_ms: int = 3_600_000) -> None:
        """An empty bucket."""
        assert 0 < first_ms <= max_ms
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._setbacks: dict[LedgerId, Setback] = {}

    def failed(self, ledger_id: LedgerId, why: str, now_ms: int, *, unrecoverable: bool) -> Setback:
        """Its repair failed at `now_ms`."""
        before = self._setbacks.get(ledger_id)
        failures = before.failures + 1 if before else 1
        pause_ms = min(self._max_ms, self._first_ms * 2 ** min(failures - 1, 32))
        setback = Setback(ledger_id, why, failures, now_ms + pause_ms, unrecoverable)
        self._setbacks[ledger_id] = setback
        return setback

    def repaired(self, ledger_id: LedgerId) -> None:
        """It needs no repair any more, or is deleted."""
        self._setbacks.pop(ledger_id, None)

    def due(self, ledger_ids: Iterable[LedgerId], now_ms: int) -> list[LedgerId]:
        """Those of `ledger_ids` whose turn it is: never failed first, then the ones that wait longest."""
        ready = [ledger_id for ledger_id in ledger_ids if self._may_run(ledger_id, now_ms)]
        return sorted(ready, key=self._rank)

    def unrecoverable(self) -> list[Setback]:
        """The ledgers of which some entry is on no reachable bookie, by id: for the metric and for `daybook audit`."""
        found = (setback for setback in self._setbacks.values() if setback.unrecoverable)
        return sorted(found, key=lambda setback: setback.ledger_id)

    def _may_run(self, ledger_id: LedgerId, now_ms: int) -> bool:
        setback = self._setbacks.get(ledger_id)
        return setback is None or now_ms >= setback.not_before_ms

    def _rank(self, ledger_id: LedgerId) -> tuple[int, LedgerId]:
        setback = self._setbacks.get(ledger_id)
        return (-1 if setback is None else setback.not_before_ms, ledger_id)
