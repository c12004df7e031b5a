"""Placement among some of the bookies: those of a pool, or those that a caller names.

A ledger's pool is part of its metadata, so every writer, recovery, audit and repair of the ledger obeys it (rule 69). Named bookies
are for whoever keeps tenants, disks or nodes apart by hand: they bound the first ensemble and every replacement by the same
writer; recovery and repair do not know them, and use any other bookie rather than none.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId, check_bookie_id, pool_of
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource, RatingPolicy
from daybook.core.quorum import Quorum


class Bound(Protocol):
    """Which bookies may be chosen."""

    def allows(self, bookie: BookieId) -> bool:
        """Whether `bookie` may be chosen."""

    def explain(self, bookies: Mapping[BookieId, BookieInfo]) -> str:
        """What to add to an error: `bookies` are registered, and too few of them may be chosen."""

    def objection(self, bookie: BookieId) -> str:
        """Why `bookie`, which may not be chosen, should not be in the ensemble."""


@dataclass(frozen=True, slots=True)
class NamedBookies:
    """The bookies that a caller names. Raises ValueError for none, and for what cannot be one."""

    allowed: frozenset[BookieId]

    def __post_init__(self) -> None:
        """Check the names."""
        if not self.allowed:
            msg = "no bookie is allowed, so none can be chosen: name some, or leave the set out"
            raise ValueError(msg)
        for bookie in sorted(self.allowed):
            check_bookie_id(bookie)

    def allows(self, bookie: BookieId) -> bool:
        """See `Bound`."""
        return bookie in self.allowed

    def explain(self, bookies: Mapping[BookieId, BookieInfo]) -> str:  # noqa: ARG002 - the names say it
        """See `Bound`."""
        return f"only {len(self.allowed)} named bookies are allowed"

    def objection(self, bookie: BookieId) -> str:
        """See `Bound`."""
        return f"{bookie} is not one of the bookies that are allowed"


@dataclass(frozen=True, slots=True)
class PoolBookies:
    """The bookies of one pool (rule 69)."""

    pool: str

    def allows(self, bookie: BookieId) -> bool:
        """See `Bound`."""
        return pool_of(bookie) == self.pool

    def explain(self, bookies: Mapping[BookieId, BookieInfo]) -> str:
        """See `Bound`."""
        found = sum(map(self.allows, bookies))
        return (
            f"the ledger stays in pool {self.pool}, which has {found} of the {len(bookies)} registered bookies: "
            "raise that pool's replicas, or restore its bookies"
        )

    def objection(self, bookie: BookieId) -> str:
        """See `Bound`."""
        return f"{bookie} is not of pool {self.pool}"


class AmongBookies(PlacementPolicy):
    """Another policy that chooses within a bound."""

    def __init__(self, bound: Bound, policy: PlacementPolicy) -> None:
        """Choose as `policy` does, but only what `bound` allows."""
        self._bound = bound
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
            return self._policy.choose(quorum, self._within(bookies), rng, exclude=exclude, avoid=avoid)
        except NotEnoughBookiesError as error:
            raise self._explained(error, bookies) from error

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
        """See `PlacementPolicy.replace`. A bookie outside the bound may stay, and its place counts."""
        seen = {**self._within(bookies), **{each: bookies[each] for each in ensemble if each in bookies}}
        try:
            return self._policy.replace(quorum, ensemble, positions, seen, rng, exclude=exclude, avoid=avoid)
        except NotEnoughBookiesError as error:
            raise self._explained(error, bookies) from error

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> list[str]:
        """See `PlacementPolicy.problems`."""
        found = list(self._policy.problems(quorum, ensemble, bookies))
        return found + [self._bound.objection(bookie) for bookie in self._outside(ensemble)]

    def _within(self, bookies: Mapping[BookieId, BookieInfo]) -> dict[BookieId, BookieInfo]:
        return {bookie: info for bookie, info in bookies.items() if self._bound.allows(bookie)}

    def _outside(self, ensemble: Sequence[BookieId]) -> list[BookieId]:
        return [bookie for bookie in ensemble if not self._bound.allows(bookie)]

    def _explained(
        self, error: NotEnoughBookiesError, bookies: Mapping[BookieId, BookieInfo]
    ) -> NotEnoughBookiesError:
        return NotEnoughBookiesError(f"{error}; {self._bound.explain(bookies)}")


class RatedAmongBookies(AmongBookies):
    """One that also compares ensembles: a bookie outside the bound is worse than any domain that is missing."""

    def __init__(self, bound: Bound, policy: RatingPolicy) -> None:
        """See `AmongBookies`."""
        super().__init__(bound, policy)
        self._rating = policy

    def misplacement(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> tuple[int, ...]:
        """See `RatingPolicy.misplacement`; how many bookies are outside the bound comes first."""
        return (
            len(self._outside(ensemble)),
            *self._rating.misplacement(quorum, ensemble, self._within(bookies)),
        )

    def least_misplacement(self, quorum: Quorum, bookies: Mapping[BookieId, BookieInfo]) -> tuple[int, ...]:
        """See `RatingPolicy.least_misplacement`."""
        return (0, *self._rating.least_misplacement(quorum, self._within(bookies)))


def among_named(allowed: Collection[BookieId], policy: PlacementPolicy) -> PlacementPolicy:
    """`policy` among `allowed` alone. Raises ValueError for no bookies and for what cannot be one."""
    return AmongBookies(NamedBookies(frozenset(allowed)), policy)


def in_pool(pool: str, policy: PlacementPolicy) -> PlacementPolicy:
    """`policy` among the bookies of `pool` alone; among all of them if there is no pool (rule 69)."""
    return AmongBookies(PoolBookies(pool), policy) if pool else policy


def rated_in_pool(pool: str, policy: RatingPolicy) -> RatingPolicy:
    """As `in_pool`, of a policy that also compares ensembles."""
    return RatedAmongBookies(PoolBookies(pool), policy) if pool else policy
