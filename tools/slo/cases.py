"""The matrix: for each (E, Qw, Qa) and each number of lost bookies, what a ledger survives.

Ten bookies, five of which are lost at once. A case's ensemble has `lost` of those five, next to each other from
position 0 on (the worst choice: entry 0 has as many of its copies there as can be), and its other members among those
that stay. So one loss shows all cases, and five bookies are left for those who may go on with others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from daybook.core.ids import BookieId

QUORUMS: Final = ((1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 5, 3), (5, 3, 2))
NAMES: Final = tuple(f"bookie-{number}" for number in range(10))
LOST: Final = NAMES[:5]
LATE: Final = NAMES[5:7]
"""Away while a case writes its newest entries, so that exactly Qa bookies have entry 0; back before the loss."""
STAYING: Final = NAMES[7:]


@dataclass(frozen=True, slots=True)
class Case:
    """An ensemble size, a write quorum, an ack quorum, and how many bookies of the ensemble are lost."""

    ensemble: int
    write: int
    ack: int
    lost: int

    def bookies(self) -> tuple[BookieId, ...]:
        """The ensemble of ledgers that have all their copies."""
        others = (*STAYING, *LATE)
        return (*LOST[: self.lost], *others[: self.ensemble - self.lost])

    def bookies_of_newest(self) -> tuple[BookieId, ...]:
        """The ensemble of ledgers whose entry 0 has Qa copies: as many as can be are lost, the others came late."""
        left = list(STAYING)
        late = list(LATE)
        chosen = list(LOST[: self.lost])
        while len(chosen) < self.ensemble:
            is_late = self.ack <= len(chosen) < self.write
            chosen.append((late if is_late else left).pop(0))
        return tuple(chosen)

    # What the quorums promise

    @property
    def can_write(self) -> bool:
        """With no other bookie: Qa of every write set are left."""
        return self.lost <= self.write - self.ack

    @property
    def can_read(self) -> bool:
        """All of what has all its copies: one of every write set is left."""
        return self.lost < self.write

    def keeps(self, entry_id: int) -> bool:
        """Whether a bookie of the entry's write set is left: Qw in a row, from position entry mod E on."""
        positions = {(entry_id + i) % self.ensemble for i in range(self.write)}
        return not positions <= set(range(self.lost))

    @property
    def can_recover(self) -> bool:
        """What was just acknowledged: one of the Qa that have it is left, and so Qw − Qa + 1 of every write set."""
        return self.lost < self.ack


def cases() -> Iterator[Case]:
    """Every case."""
    for ensemble, write, ack in QUORUMS:
        for lost in range(1, ensemble + 1):
            yield Case(ensemble, write, ack, lost)
