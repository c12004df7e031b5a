"""A placement without dice, for tests that follow a machine by hand."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo, RandomSource
from daybook.core.quorum import Quorum


class InOrder:
    """Placement that takes the first writable bookie by name, so that a test can foretell it."""

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        raise AssertionError("neither a writer nor a recovery chooses a whole ensemble")

    def replace(
        self,
        quorum: Quorum,
        ensemble: Sequence[BookieId],
        positions: AbstractSet[int],
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        free = [
            bookie
            for bookie, info in sorted(bookies.items())
            if info.writable and bookie not in ensemble and bookie not in exclude
        ]
        if len(free) < len(positions):
            msg = f"{len(positions)} bookies to replace, only {free} are free"
            raise NotEnoughBookiesError(msg)
        found = list(ensemble)
        for position, bookie in zip(sorted(positions), free, strict=False):
            found[position] = bookie
        return tuple(found)

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> Iterable[str]:
        return ()
