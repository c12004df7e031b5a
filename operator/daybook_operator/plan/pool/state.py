"""What a pool's status remembers between two plans, because no fact shows it: how far a drain and a roll are, and which
bookies were registered. Everything else in the status is for people, and never read back.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import from_iso, iso


class Stage(StrEnum):
    """How far the drain of one bookie is; `drain` has the table."""

    READ_ONLY = "ReadOnly"
    """It gets no new ledgers."""
    REPLICATING = "Replicating"
    """Its entries are being copied to other bookies."""
    VERIFYING = "Verifying"
    """No ledger names it; a full audit that began since must find everything replicated."""
    COOKIE_REMOVED = "CookieRemoved"
    """The cluster has forgotten it: it can never come back under its name and be trusted."""
    LOWERED = "Lowered"
    """Its pod is not wanted any more."""
    CANCELLING = "Cancelling"
    """It stays, and becomes writable again."""

    @property
    def is_final(self) -> bool:
        """Whether the bookie is forgotten, so that the drain cannot be cancelled."""
        return self in {Stage.COOKIE_REMOVED, Stage.LOWERED}


@dataclass(frozen=True, slots=True)
class Drain:
    """The drain of one bookie. `remaining` ledgers named it when they were last counted; −1: not counted yet."""

    bookie: BookieId
    ordinal: int
    stage: Stage
    started_ms: int
    stage_since_ms: int
    progress_ms: int
    remaining: int = -1

    def record(self, message: str) -> dict[str, Any]:
        """As the status has it."""
        return {
            "bookie": self.bookie,
            "ordinal": self.ordinal,
            "stage": self.stage.value,
            "ledgersRemaining": self.remaining if self.remaining >= 0 else None,
            "startedAt": iso_after(self.started_ms),
            "stageSince": iso_after(self.stage_since_ms),
            "lastProgressAt": iso_after(self.progress_ms),
            "message": message,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> "Drain | None":
        """None for anything else than what `record` makes: the drain then begins again, which costs only time."""
        try:
            return (
                None
                if not record
                else cls(
                    str(record["bookie"]),
                    int(record["ordinal"]),
                    Stage(record["stage"]),
                    from_iso(record["startedAt"]),
                    from_iso(record["stageSince"]),
                    from_iso(record["lastProgressAt"]),
                    int(record.get("ledgersRemaining", -1)),
                )
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Roll:
    """A roll under way. `bookie` was stopped last; a time is 0 if that has not happened."""

    revision: str
    started_ms: int
    bookie: BookieId = ""
    stopped_ms: int = 0
    returned_ms: int = 0

    @property
    def since_ms(self) -> int:
        """The next step needs an audit that began after this."""
        return self.returned_ms or self.stopped_ms or self.started_ms

    def record(self, stage: str, message: str) -> dict[str, Any]:
        """As the status has it."""
        return {
            "revision": self.revision,
            "bookie": self.bookie or None,
            "stage": stage,
            "startedAt": iso_after(self.started_ms),
            "bookieStoppedAt": iso_after(self.stopped_ms) if self.stopped_ms else None,
            "bookieReturnedAt": iso_after(self.returned_ms) if self.returned_ms else None,
            "message": message,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> "Roll | None":
        """None for anything else than what `record` makes: only times are lost."""
        try:
            return (
                None
                if not record
                else cls(
                    str(record["revision"]),
                    from_iso(record["startedAt"]),
                    str(record.get("bookie", "")),
                    from_iso(record["bookieStoppedAt"]) if "bookieStoppedAt" in record else 0,
                    from_iso(record["bookieReturnedAt"]) if "bookieReturnedAt" in record else 0,
                )
            )
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A digest of the registered bookies, and when that list last changed.

    A full audit proves that a bookie holds what it owes only if it began after that bookie came back. `audited` has a
    digest of each bookie's boot, of when everything was last known to be replicated: a bookie with another boot may have
    missed entries since.
    """

    bookies_digest: str = ""
    changed_ms: int = 0
    audited: Mapping[BookieId, str] = field(default_factory=dict)
    replaced: frozenset[BookieId] = frozenset()
    """Bookies whose replacement was authorised since then."""

    def record(self) -> dict[str, Any]:
        """As the status has it."""
        return {
            "bookiesDigest": self.bookies_digest or None,
            "bookiesChangedAt": iso_after(self.changed_ms) if self.changed_ms else None,
            "auditedBookies": dict(self.audited) or None,
            "replacedBookies": sorted(self.replaced) or None,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> "Recovery":
        """Empty for anything else than what `record` makes: the list counts as just changed."""
        try:
            if not record:
                return cls()
            audited = {str(bookie): str(boot) for bookie, boot in record.get("auditedBookies", {}).items()}
            replaced = frozenset(map(str, record.get("replacedBookies", ())))
            return cls(str(record["bookiesDigest"]), from_iso(record["bookiesChangedAt"]), audited, replaced)
        except (AttributeError, KeyError, TypeError, ValueError):
            return cls()


def digest_of(boots: Mapping[BookieId, str]) -> str:
    """A digest of the registered bookies and their processes."""
    text = "\n".join(f"{bookie} {boot_id}" for bookie, boot_id in sorted(boots.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def whole(at_ms: int) -> int:
    """The first whole second that is not before `at_ms`: an event is never remembered as earlier than it was."""
    return -(-at_ms // 1000) * 1000


def iso_after(at_ms: int) -> str:
    """`whole`, as the status has it."""
    return iso(whole(at_ms))
