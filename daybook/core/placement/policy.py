"""Where the copies of an entry go.

A policy chooses the bookies of a new ensemble and the replacement for a failed one, from the bookies that are
registered now and the topology that the operator wrote: region, zone, rack and node of each. It is pure: the random
source is an argument, so that a simulation can repeat its choices. `placement_policies` has the implementations.

Two kinds of "not this one": `exclude` is never chosen (it failed, or is named already); `avoid` (quarantine) is chosen
only where too few others are left, because a slow bookie is better than no ledger.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId
from daybook.core.quorum import Quorum


class RandomSource(Protocol):
    """What a policy needs of `random.Random`."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""

    def randrange(self, stop: int, /) -> int:
        """A whole number from 0 up to, not including, `stop`."""


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A registered bookie as placement sees it. Empty topology names mean "not known".

    `tls_address` is where it serves with TLS while it serves without at `address` as well; empty: `address` is all there is.
    `lane_address` is where it serves append streams and reads without gRPC; empty: nowhere. `ip_address` is that of the host in
    `address`, with which a client needs no DNS to connect; empty: not known.
    """

    bookie: BookieId
    address: str = ""
    region: str = ""
    zone: str = ""
    rack: str = ""
    node: str = ""
    writable: bool = True
    free_bytes: int = 0
    capacity_bytes: int = 0
    boot_id: str = ""
    tls_address: str = ""
    lane_address: str = ""
    ip_address: str = ""

    def address_for(self, *, secure: bool) -> str:
        """Where a client goes that speaks TLS, or does not."""
        return self.tls_address if secure and self.tls_address else self.address


class PlacementPolicy(Protocol):
    """Chooses bookies. All methods are deterministic for the same arguments and the same state of `rng`."""

    def choose(
        self,
        quorum: Quorum,
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        *,
        exclude: AbstractSet[BookieId] = frozenset(),
        avoid: AbstractSet[BookieId] = frozenset(),
    ) -> tuple[BookieId, ...]:
        """E bookies for a new ensemble. Raises NotEnoughBookiesError, saying what is missing."""

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
        """The ensemble with other bookies at `positions`; none of the old ones there, none twice.

        Raises NotEnoughBookiesError when there are too few.
        """

    def problems(
        self,
        quorum: Quorum,
        ensemble: Sequence[BookieId],
        bookies: Mapping[BookieId, BookieInfo],
    ) -> Iterable[str]:
        """Why the ensemble does not keep the policy, in words; nothing if it does."""


def can_place(
    policy: PlacementPolicy,
    quorum: Quorum,
    bookies: Mapping[BookieId, BookieInfo],
    rng: RandomSource,
    avoid: AbstractSet[BookieId] = frozenset(),
) -> bool:
    """Whether `policy` finds bookies for a new ensemble."""
    try:
        policy.choose(quorum, bookies, rng, avoid=avoid)
    except NotEnoughBookiesError:
        return False
    return True


class RatingPolicy(PlacementPolicy, Protocol):
    """A placement policy that can also compare ensembles."""

    def misplacement(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> tuple[int, ...]:
        """How far from the policy the ensemble is; smaller is better, all zeros is good."""

    def least_misplacement(self, quorum: Quorum, bookies: Mapping[BookieId, BookieInfo]) -> tuple[int, ...]:
        """No ensemble of `bookies` is nearer to the policy."""
