"""The search for the best seating of bookies in an ensemble.

A constraint of placement holds per *write set*, the positions that share an entry, and with striping the write sets
overlap: what is good for one may spoil the next, so picking greedily can fail where a solution exists. This is a
branch-and-bound search: it finds the cheapest seating there is (fewest avoided bookies, then fewest domains missing,
the most important kind of domain first), tries the bookies in the order of preference that it is given, and is
bounded in steps, after which the best seating so far is the answer. Bookies in the same place are interchangeable, so
one of them is tried for all, which keeps the search small.

An unknown name counts for nothing: a bookie without a rack may stand in any rack, so it adds none to what is certain.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from daybook.core.ids import BookieId
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum, write_set_masks

SEARCH_STEPS_MAX: Final = 10_000
"""Seats tried before the best seating so far is taken; real clusters need about one step for each seat."""

Cost: TypeAlias = tuple[int, ...]
"""(avoided bookies used, domains missing in the first tier, in the second …); smaller is better, compared in order."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A kind of domain that the replicas of an entry must spread over: at least `minimum` of them per write set.

    `depth` is how much of (region, zone, rack) names a domain of this kind.
    """

    name: str
    depth: int
    minimum: int

    def wanted(self, quorum: Quorum) -> int:
        """The minimum for `quorum`: a write set cannot spread over more domains than it has positions."""
        return min(self.minimum, quorum.write_quorum)

    def is_named(self, info: BookieInfo) -> bool:
        """Whether the topology says anything about `info` at this depth."""
        return any(path_of(info)[: self.depth])


def path_of(info: BookieInfo) -> tuple[str, str, str]:
    """Where a bookie is, from the large to the small."""
    return info.region, info.zone, info.rack


def certain_domains(paths: Iterable[tuple[str, ...]]) -> int:
    """How many domains these paths certainly lie in.

    Two names under one parent are two domains; an unknown name may be any of the known ones, so it counts only where
    nothing is known. At least 1 for any path at all. Which paths there are decides, not how often each.
    """
    return _certain_domains(frozenset(paths))


@lru_cache(maxsize=4096)
def _certain_domains(paths: frozenset[tuple[str, ...]]) -> int:
    """A search asks this of the same few racks again and again."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        if not path:
            return 1
        groups.setdefault(path[0], []).append(path[1:])
    unknown = certain_domains(groups.pop("")) if "" in groups else 0
    return max(unknown, sum(certain_domains(group) for group in groups.values()))


@lru_cache(maxsize=1024)
def write_sets(quorum: Quorum) -> tuple[tuple[int, ...], ...]:
    """The distinct write sets, as rising positions."""
    masks = sorted(set(write_set_masks(quorum)))
    return tuple(tuple(p for p in range(quorum.ensemble_size) if mask >> p & 1) for mask in masks)


class EnsembleSearch:
    """Fills the empty seats of an ensemble; `find` is its one use.

    `seats` has an info for each position that is taken and None for the ones to fill; `candidates` come in the order
    of preference, without those already seated. With `enforce` a seating that misses a tier's minimum is none.
    """

    def __init__(
        self,
        quorum: Quorum,
        seats: Sequence[BookieInfo | None],
        candidates: Sequence[BookieInfo],
        tiers: Sequence[Tier],
        *,
        avoid: AbstractSet[BookieId] = frozenset(),
        enforce: bool = False,
    ) -> None:
        """Prepare; nothing is searched yet."""
        self._seats = list(seats)
        self._open = [position for position, info in enumerate(seats) if info is None]
        self._candidates = candidates
        self._avoid = avoid
        self._enforce = enforce
        self._wanted = [(tier.depth, tier.wanted(quorum)) for tier in tiers]
        affected = [members for members in write_sets(quorum) if any(seats[p] is None for p in members)]
        self._write_sets = affected
        self._sets_at = {p: [i for i, members in enumerate(affected) if p in members] for p in self._open}
        self._used: set[BookieId] = set()
        self._steps_left = SEARCH_STEPS_MAX
        self._best: list[BookieInfo] | None = None
        self._best_cost: Cost = ()

    def find(self) -> list[BookieInfo] | None:
        """The cheapest seating found, position by position; None if there is none."""
        missing = [self._missing(index) for index in range(len(self._write_sets))]
        self._floor = self._cheapest_thinkable()
        self._descend(0, 0, missing)
        return self._best

    def _cheapest_thinkable(self) -> Cost:
        """A lower bound: once a seating costs no more, the search ends."""
        good = sum(info.bookie not in self._avoid for info in self._candidates)
        everyone = [info for info in (*self._seats, *self._candidates) if info is not None]
        floor = [max(0, len(self._open) - good)]
        for depth, wanted in self._wanted:
            there_are = certain_domains(path_of(info)[:depth] for info in everyone)
            floor.append(max(0, wanted - there_are) * len(self._write_sets))
        return tuple(floor)

    def _missing(self, index: int) -> tuple[int, ...]:
        """How many domains write set `index` will miss in each tier, whoever takes its empty seats."""
        members = [self._seats[position] for position in self._write_sets[index]]
        paths = [path_of(info) for info in members if info is not None]
        empty = len(members) - len(paths)
        return tuple(
            max(0, wanted - empty - certain_domains(path[:depth] for path in paths))
            for depth, wanted in self._wanted
        )

    def _descend(self, depth: int, avoided: int, missing: list[tuple[int, ...]]) -> None:
        cost = (avoided, *map(sum, zip(*missing, strict=True)))
        if self._best is not None and cost >= self._best_cost:
            return
        if self._enforce and any(cost[1:]):
            return
        if depth == len(self._open):
            self._best = [info for info in self._seats if info is not None]
            self._best_cost = cost
            return
        position = self._open[depth]
        for info in self._tries(position):
            if self._steps_left == 0:
                return
            self._steps_left -= 1
            self._seats[position] = info
            self._used.add(info.bookie)
            changed = list(missing)
            for index in self._sets_at[position]:
                changed[index] = self._missing(index)
            self._descend(depth + 1, avoided + (info.bookie in self._avoid), changed)
            self._seats[position] = None
            self._used.remove(info.bookie)
            if self._best is not None and self._best_cost <= self._floor:
                return

    def _tries(self, position: int) -> Iterator[BookieInfo]:
        """Whom to try at `position`: one bookie of each place, the best first, none on a node that is taken."""
        sharers = [self._seats[p] for index in self._sets_at[position] for p in self._write_sets[index]]
        nodes = {info.node for info in sharers if info is not None and info.node}
        places: dict[tuple[object, ...], BookieInfo] = {}
        for info in self._candidates:
            if info.bookie not in self._used and info.node not in nodes:
                places.setdefault((info.bookie in self._avoid, path_of(info), info.node), info)
        if len(places) <= 1:
            return iter(places.values())
        neighbours = [
            [path_of(seat) for p in self._write_sets[index] if (seat := self._seats[p]) is not None]
            for index in self._sets_at[position]
        ]
        return iter(sorted(places.values(), key=lambda info: self._rank(info, neighbours)))

    def _rank(self, info: BookieInfo, neighbours: list[list[tuple[str, str, str]]]) -> tuple[int, ...]:
        """Smaller is tried first: not avoided, then the more domains it adds, beyond the minimum too.

        More than the minimum, because three replicas in three zones survive any one of them with an ack quorum of two;
        two and one do not.
        """
        path = path_of(info)
        gains = [
            -sum(certain_domains(p[:depth] for p in (*paths, path)) for paths in neighbours)
            for depth, _ in self._wanted
        ]
        return (info.bookie in self._avoid, *gains)
