"""A ledger on four bookies as the checkers see it, for histories that are made up by hand."""

from dataclasses import dataclass, field

import pytest

from daybook.core import events as ev
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from tests.model.sim.checkers import Checkers
from tests.model.sim.world import ViolationError, World

OPEN = LedgerMetadata(
    0, Quorum(3, 3, 2), (Fragment(0, 0, ("b0", "b1", "b2")),), password_hash="key", writer_token="t"
)
LATER = OPEN.with_ensemble(2, 2, ("b0", "b1", "b3"))
RECOVERING = LATER.in_recovery()
CLOSED = RECOVERING.closed(3, 4)
TICK = ev.Tick(1)


@dataclass
class FakeDisk:
    """A bookie as the checkers see it."""

    held: dict[LedgerId, set[EntryId]] = field(default_factory=dict)
    limbo: bool = False
    fenced: bool = False
    replaced: bool = False

    def holds_durably(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return entry_id in self.held.get(ledger_id, ())

    def holds(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return self.holds_durably(ledger_id, entry_id)

    def vouches(self, ledger_id: LedgerId) -> bool:
        return not self.limbo

    def is_in_limbo(self, ledger_id: LedgerId) -> bool:
        return self.limbo

    def is_fenced_durably(self, ledger_id: LedgerId) -> bool:
        return self.fenced

    def everything_held(self) -> dict[LedgerId, set[EntryId]]:
        return self.held


@dataclass
class Scene:
    """Checkers over four bookies, and one ledger of three one-byte entries that three of them hold."""

    checkers: Checkers = field(default_factory=lambda: Checkers(World(0)))
    disks: dict[BookieId, FakeDisk] = field(default_factory=lambda: {f"b{i}": FakeDisk() for i in range(4)})

    def __post_init__(self) -> None:
        self.checkers.bookies = self.disks
        self.checkers.ledger_created(OPEN)
        for entry in range(3):
            self.checkers.appended(0, entry, b"x")
        for name in ("b0", "b1", "b2"):
            self.disks[name].held[0] = {0, 1, 2}
            self.checkers.became_durable(name, 0, range(3))

    def close(self, last: EntryId = 2) -> LedgerMetadata:
        """A recovery closes the ledger."""
        closed = OPEN.in_recovery().closed(last, last + 1)
        self.checkers.metadata_changed(OPEN.in_recovery(), closed)
        return closed


def violated(name: str) -> "pytest.RaisesExc[ViolationError]":
    """Expect the violation of the check `name`."""
    return pytest.raises(ViolationError, match=f"^{name}: ")
