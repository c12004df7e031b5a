"""A placement that does as the test says: which bookies an ensemble has, and whether there is any other to go on with."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import Quorum


class Pinned:
    """Ensembles are `ensemble`, in this order; the failed are replaced as usual, or, without `spares`, by nobody.

    To a writer a cluster where nobody can replace a bookie is one that has no other.
    """

    def __init__(self, ensemble: Sequence[BookieId], *, spares: bool) -> None:
        self._ensemble = tuple(ensemble)
        self._others: PlacementPolicy | None = make_policy() if spares else None

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        """The ensemble, whether its bookies run or not."""
        assert len(self._ensemble) == quorum.ensemble_size
        return self._ensemble

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
        """What the default policy does, or NotEnoughBookiesError."""
        if self._others is None:
            msg = "this placement has no other bookies: give it spares"
            raise NotEnoughBookiesError(msg)
        return self._others.replace(quorum, ensemble, positions, bookies, rng, exclude=exclude, avoid=avoid)

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> Iterable[str]:
        """None: the test wants it so."""
        return ()
