"""Placement among some of the bookies: for whoever keeps tenants, disks or nodes apart ledger by ledger.

The set bounds the first ensemble and every replacement by the same writer. Recovery and repair know nothing of it: where a
bookie is lost they use any other rather than none, as the cluster's own policy says.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId, check_bookie_id
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import Quorum


class AmongBookies(PlacementPolicy):
    """Another policy that chooses among `allowed` alone."""

    def __init__(self, allowed: Collection[BookieId], policy: PlacementPolicy) -> None:
        """Choose among `allowed` as `policy` does. Raises ValueError for no bookies and for what cannot be one."""
        if not allowed:
            msg = "no bookie is allowed, so none can be chosen: name some, or leave the set out"
            raise ValueError(msg)
        self._allowed = frozenset(map(check_bookie_id, allowed))
        self._policy = policy

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        """See `PlacementPolicy.choose`."""
        try:
            return self._policy.choose(
                quorum, bookies, rng, exclude=exclude | self._others(bookies), avoid=avoid
            )
        except NotEnoughBookiesError as error:
            raise self._explain(error) from error

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
        """See `PlacementPolicy.replace`."""
        excluded = exclude | self._others(bookies)
        try:
            return self._policy.replace(
                quorum, ensemble, positions, bookies, rng, exclude=excluded, avoid=avoid
            )
        except NotEnoughBookiesError as error:
            raise self._explain(error) from error

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> Iterable[str]:
        """See `PlacementPolicy.problems`."""
        yield from self._policy.problems(quorum, ensemble, bookies)
        for bookie in ensemble:
            if bookie not in self._allowed:
                yield f"{bookie} is not one of the bookies that are allowed"

    def _others(self, bookies: Mapping[BookieId, BookieInfo]) -> frozenset[BookieId]:
        return frozenset(bookies) - self._allowed

    def _explain(self, error: NotEnoughBookiesError) -> NotEnoughBookiesError:
        return NotEnoughBookiesError(f"{error}; only {len(self._allowed)} named bookies are allowed")
