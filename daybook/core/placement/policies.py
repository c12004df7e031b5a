"""The placement policies: random, rack-, zone- and region-aware, each with or without weighing by free space.

They are one class with more or fewer tiers: a *tier* says over how many racks (zones, regions) the replicas of an
entry must at least spread. A minimum is enforced (no ensemble rather than a bad one) or best effort, and then
`problems` reports what is missed, so that the auditor repairs it once the racks are back (rule 36). Where the topology
names nodes, two replicas of an entry never share one: a node that dies takes a single replica with it.

A cluster that says nothing of its topology works: a tier that no registered bookie names asks for nothing, unless it
is enforced.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, TypeAlias

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.placement.search import EnsembleSearch, Tier, certain_domains, path_of, write_sets
from daybook.core.quorum import Quorum

PolicyName: TypeAlias = Literal["random", "rack", "zone", "region"]

_NAMED_IN_ERROR_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """What an operator may choose. `policy` names the largest domain that replicas must spread over.

    "rack" asks for `min_racks` racks per write quorum, "zone" for `min_zones` zones and then racks, "region" for
    `min_regions` regions, then zones, then racks; "random" for none. `enforce` turns a wish into a condition.
    `weigh_by_free_space` makes a bookie with twice the free space twice as likely, up to `weight_max` times the
    median (otherwise a new and empty bookie would get every ledger). Raises ValueError for a value without sense.
    """

    policy: PolicyName = "rack"
    min_racks: int = 2
    min_zones: int = 2
    min_regions: int = 2
    enforce: bool = False
    weigh_by_free_space: bool = False
    weight_max: float = 3.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.policy not in _TIERS_OF:
            msg = f"placement policy {self.policy!r} is not known: choose one of {', '.join(_TIERS_OF)}"
            raise ValueError(msg)
        for name in ("min_racks", "min_zones", "min_regions"):
            if getattr(self, name) < 1:
                msg = f"{name}={getattr(self, name)}: an entry lies in at least 1; 1 turns the constraint off"
                raise ValueError(msg)
        if self.weight_max < 1:
            msg = f"weight_max={self.weight_max}: use 1 or more (1 weighs all bookies alike)"
            raise ValueError(msg)


_TIERS_OF: Final[dict[str, tuple[str, ...]]] = {
    "random": (),
    "rack": ("rack",),
    "zone": ("zone", "rack"),
    "region": ("region", "zone", "rack"),
}
_DEPTHS: Final = {"region": 1, "zone": 2, "rack": 3}


def make_policy(settings: PlacementSettings | None = None) -> "SpreadPolicy":
    """The policy that `settings` describe; without them the default: two racks per write quorum, best effort."""
    chosen = PlacementSettings() if settings is None else settings
    minimum = {"region": chosen.min_regions, "zone": chosen.min_zones, "rack": chosen.min_racks}
    tiers = tuple(Tier(name, _DEPTHS[name], minimum[name]) for name in _TIERS_OF[chosen.policy])
    return SpreadPolicy(
        tiers, enforce=chosen.enforce, weight_max=chosen.weight_max if chosen.weigh_by_free_space else None
    )


class SpreadPolicy(PlacementPolicy):
    """Spreads the replicas of every entry over the domains of its tiers, the most important tier first.

    `weight_max` None: all bookies are equally likely.
    """

    def __init__(self, tiers: Sequence[Tier], *, enforce: bool, weight_max: float | None) -> None:
        """See `make_policy`."""
        self._tiers = tuple(tiers)
        self._enforce = enforce
        self._weight_max = weight_max

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
        return self._fill(quorum, [None] * quorum.ensemble_size, bookies, rng, exclude, avoid)

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
        assert len(ensemble) == quorum.ensemble_size
        seats = [
            None if position in positions else bookies.get(bookie, BookieInfo(bookie))
            for position, bookie in enumerate(ensemble)
        ]
        return self._fill(quorum, seats, bookies, rng, exclude | frozenset(ensemble), avoid)

    def problems(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> list[str]:
        """See `PlacementPolicy.problems`; a bookie that is not in `bookies` adds no domain."""
        seats = [bookies.get(bookie, BookieInfo(bookie)) for bookie in ensemble]
        tiers = self._applicable(bookies)
        found: dict[str, None] = {}
        for members in write_sets(quorum):
            infos = [seats[position] for position in members]
            names = ", ".join(info.bookie for info in infos)
            for node in sorted({info.node for info in infos if info.node}):
                on_node = [info.bookie for info in infos if info.node == node]
                if len(on_node) > 1:
                    found[f"{' and '.join(on_node)} hold the same entries on one node, {node}"] = None
            for tier in tiers:
                there_are = certain_domains(path_of(info)[: tier.depth] for info in infos)
                if there_are < tier.wanted(quorum):
                    found[f"{names}: {there_are} {tier.name}(s) known, {tier.wanted(quorum)} wanted"] = None
        return list(found)

    def misplacement(
        self, quorum: Quorum, ensemble: Sequence[BookieId], bookies: Mapping[BookieId, BookieInfo]
    ) -> tuple[int, ...]:
        """How far the ensemble is from the policy: (replicas sharing a node, domains missing per tier); zeros are good.

        Tuples compare: a smaller one is a better ensemble, even where `problems` has as much to say.
        """
        seats = [bookies.get(bookie, BookieInfo(bookie)) for bookie in ensemble]
        tiers = self._applicable(bookies)
        total = [0] * (1 + len(tiers))
        for members in write_sets(quorum):
            nodes = [seats[position].node for position in members if seats[position].node]
            total[0] += len(nodes) - len(set(nodes))
            for at, tier in enumerate(tiers, 1):
                there_are = certain_domains(path_of(seats[position])[: tier.depth] for position in members)
                total[at] += max(0, tier.wanted(quorum) - there_are)
        return tuple(total)

    def least_misplacement(self, quorum: Quorum, bookies: Mapping[BookieId, BookieInfo]) -> tuple[int, ...]:
        """No ensemble of `bookies` is nearer to the policy than this: some racks may be missing for all of them."""
        paths = [path_of(info) for info in bookies.values()]
        domains = [
            (tier.wanted(quorum), certain_domains(path[: tier.depth] for path in paths))
            for tier in self._applicable(bookies)
        ]
        return (0, *(max(0, wanted - there_are) * len(write_sets(quorum)) for wanted, there_are in domains))

    def _applicable(self, bookies: Mapping[BookieId, BookieInfo]) -> list[Tier]:
        """The tiers that the topology says something about; all of them if they are enforced."""
        return [tier for tier in self._tiers if self._enforce or any(map(tier.is_named, bookies.values()))]

    def _fill(
        self,
        quorum: Quorum,
        seats: Sequence[BookieInfo | None],
        bookies: Mapping[BookieId, BookieInfo],
        rng: RandomSource,
        exclude: AbstractSet[BookieId],
        avoid: AbstractSet[BookieId],
    ) -> tuple[BookieId, ...]:
        usable = [bookies[b] for b in sorted(bookies) if bookies[b].writable and b not in exclude]
        needed = seats.count(None)
        if len(usable) < needed:
            _refuse_count(needed, usable, bookies, exclude)
        ordered = self._shuffled(usable, rng)
        search = EnsembleSearch(
            quorum, seats, ordered, self._applicable(bookies), avoid=avoid, enforce=self._enforce
        )
        found = search.find()
        if found is None:
            self._refuse_topology(quorum, needed, usable)
        return tuple(info.bookie for info in found)

    def _shuffled(self, infos: Sequence[BookieInfo], rng: RandomSource) -> list[BookieInfo]:
        """In random order, the likelier ones first (Efraimidis and Spirakis: the largest of u^(1/weight))."""
        weights = [1.0] * len(infos) if self._weight_max is None else _weights(infos, self._weight_max)
        keyed = [
            (rng.random() ** (1 / weight) if weight else -1.0, info)
            for weight, info in zip(weights, infos, strict=True)
        ]
        return [info for _, info in sorted(keyed, key=lambda pair: -pair[0])]

    def _refuse_topology(self, quorum: Quorum, needed: int, usable: Sequence[BookieInfo]) -> NoReturn:
        """Raise NotEnoughBookiesError for want of racks or nodes, saying what there is."""
        wishes = [f"{tier.wanted(quorum)} {tier.name}s" for tier in self._tiers if self._enforce]
        wishes.append("a node for each replica where nodes are named")
        shown = ", ".join(
            f"{info.bookie} at {'/'.join(part or '?' for part in (*path_of(info), info.node))}"
            for info in usable[:_NAMED_IN_ERROR_MAX]
        )
        more = len(usable) - _NAMED_IN_ERROR_MAX
        msg = (
            f"no {needed} of the {len(usable)} writable bookies give every entry {' and '.join(wishes)} "
            f"(region/zone/rack/node: {shown}{f' and {more} more' if more > 0 else ''}): "
            "start bookies elsewhere, name their place in the topology"
            + (", or turn enforcement off" if self._enforce else "")
        )
        raise NotEnoughBookiesError(msg)


def _weights(infos: Sequence[BookieInfo], weight_max: float) -> list[float]:
    """Free space in units of its median, capped; 1 where a bookie has not reported its capacity."""
    known = sorted(info.free_bytes for info in infos if info.capacity_bytes)
    median = known[len(known) // 2] if known else 0
    if not median:
        return [1.0] * len(infos)
    return [min(weight_max, info.free_bytes / median) if info.capacity_bytes else 1.0 for info in infos]


def _refuse_count(
    needed: int,
    usable: Sequence[BookieInfo],
    bookies: Mapping[BookieId, BookieInfo],
    exclude: AbstractSet[BookieId],
) -> NoReturn:
    """Raise NotEnoughBookiesError for want of bookies, saying why each of the others does not count."""
    why = [
        f"{bookie} is read-only"
        if not bookies[bookie].writable
        else f"{bookie} failed or is in the ensemble already"
        for bookie in sorted(bookies)
        if bookie in exclude or not bookies[bookie].writable
    ]
    shown = ", ".join(why[:_NAMED_IN_ERROR_MAX])
    more = f" and {len(why) - _NAMED_IN_ERROR_MAX} more" if len(why) > _NAMED_IN_ERROR_MAX else ""
    msg = (
        f"{needed} writable bookie(s) needed, {len(usable)} available of {len(bookies)} registered"
        + (f" ({shown}{more})" if why else "")
        + ": start more bookies, or ask for a smaller ensemble"
    )
    raise NotEnoughBookiesError(msg)


__all__ = ["PlacementSettings", "PolicyName", "SpreadPolicy", "make_policy"]
