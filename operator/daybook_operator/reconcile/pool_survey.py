"""What all ledgers' metadata says about a pool: how many name each bookie, and which violate the placement policy.

The ledgers come from the link's index. A reconcile waits only briefly for it: while it is not whole, or not as recent as
a step needs, the survey says so, and that step waits for the next reconcile.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary

from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.among import in_pool
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.bookies import Location
from daybook_operator.clusters.ledger_index import Ensembles, LedgerIndex, bookies_in
from daybook_operator.plan.pool.observed import Survey

_SAMPLES_MAX: Final = 3
_AT_ONCE: Final = 200
"""Kinds of ensembles that are judged before other tasks run."""
_GROUPS_AT_ONCE: Final = 2_000


@dataclass(frozen=True, slots=True)
class Asker:
    """The pool: its own bookies, those whose ledgers are listed, and the placement policy."""

    mine: frozenset[BookieId]
    may_leave: frozenset[BookieId]
    placement: PlacementSettings
    pool: str = ""
    """As ledgers that stay in the pool name it."""


class Surveys:
    """Keeps verdicts on ensembles as long as no bookie's location changes."""

    def __init__(self) -> None:
        """Nothing is judged yet."""
        self._judges: WeakKeyDictionary[LedgerIndex, dict[PlacementSettings, _Judge]] = WeakKeyDictionary()

    async def of(
        self,
        index: LedgerIndex,
        asker: Asker,
        *,
        registered: Mapping[BookieId, BookieInfo],
        locations: Mapping[BookieId, Location],
        is_whole: bool,
    ) -> Survey:
        """The survey of the asker's pool. A bookie that is unavailable keeps its location."""
        judge = self._judge(index, asker.placement, _places(registered, locations))
        if not is_whole:
            return Survey(ledgers=len(index), is_whole=False, read_error=index.read_error)
        groups = [(ensembles, len(ids)) for ensembles, ids in index.groups.items()]
        ack_quorum_of: dict[BookieId, int] = {}
        misplaced: list[tuple[Ensembles, str]] = []
        write_quorums: set[int] = set()
        count = 0
        for number, (ensembles, ledgers) in enumerate(groups):
            if number % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            named = bookies_in(ensembles)
            ack_quorum = ensembles[0].ack_quorum
            for bookie in named:
                ack_quorum_of[bookie] = min(ack_quorum, ack_quorum_of.get(bookie, ack_quorum))
            if not named & asker.mine:
                continue
            write_quorums.add(ensembles[0].write_quorum)
            if why := await judge.problem(ensembles):
                count += ledgers
                misplaced.append((ensembles, why))
        largest, largest_ledger = _largest(index.groups)
        own = {each: ids for each, ids in index.groups.items() if each[2] and each[2] == asker.pool}
        own_largest, own_largest_ledger = _largest(own)
        return Survey(
            ledgers=len(index),
            ledgers_of={bookie: len(ids) for bookie, ids in index.of_bookie.items() if ids},
            naming={b: tuple(sorted(index.of_bookie.get(b, ()))) for b in sorted(asker.may_leave)},
            ack_quorum_of=ack_quorum_of,
            ensemble_max=largest,
            ensemble_max_ledger=largest_ledger,
            own_ensemble_max=own_largest,
            own_ensemble_max_ledger=own_largest_ledger,
            write_quorum_min=min(write_quorums, default=0),
            misplaced=_samples(index, misplaced),
            misplaced_count=count,
        )

    def _judge(
        self, index: LedgerIndex, placement: PlacementSettings, places: Mapping[BookieId, BookieInfo]
    ) -> "_Judge":
        judges = self._judges.setdefault(index, {})
        known = judges.get(placement)
        if known is None or known.places != places:
            known = judges[placement] = _Judge(placement, places)
        return known


def _places(
    registered: Mapping[BookieId, BookieInfo], locations: Mapping[BookieId, Location]
) -> dict[BookieId, BookieInfo]:
    """The locations of all bookies, without what changes often."""
    places = {
        bookie: BookieInfo(bookie, region=info.region, zone=info.zone, rack=info.rack, node=info.node)
        for bookie, info in registered.items()
    }
    for bookie, place in locations.items():
        places[bookie] = replace(places.get(bookie, BookieInfo(bookie)), **asdict(place))
    return places


def _largest(groups: Mapping[Ensembles, Collection[LedgerId]]) -> tuple[int, LedgerId]:
    """The largest ensemble of a ledger, and the first such ledger; 0 and −1 without one."""
    size = max((ensembles[0].ensemble_size for ensembles, ids in groups.items() if ids), default=0)
    first = [min(ids) for ensembles, ids in groups.items() if ids and ensembles[0].ensemble_size == size]
    return size, min(first, default=-1)


def _samples(index: LedgerIndex, misplaced: Collection[tuple[Ensembles, str]]) -> tuple[str, ...]:
    """The first ledgers of those that are misplaced, and why."""
    first = sorted((min(ids), why) for ensembles, why in misplaced if (ids := index.groups.get(ensembles)))
    return tuple(f"ledger {ledger_id}: {why}" for ledger_id, why in first[:_SAMPLES_MAX])


@dataclass(slots=True)
class _Judge:
    """Judges each kind of ensembles once."""

    placement: PlacementSettings
    places: Mapping[BookieId, BookieInfo]
    known: dict[Ensembles, str] = field(default_factory=dict)

    async def problem(self, ensembles: Ensembles) -> str:
        """What is wrong with one of them; "" if nothing is."""
        found = self.known.get(ensembles)
        if found is None:
            quorum, all_of_them, pool = ensembles
            policy = in_pool(pool, make_policy(self.placement))
            problems = [
                problem
                for ensemble in sorted(all_of_them)
                for problem in policy.problems(quorum, ensemble, self.places)
            ]
            found = self.known[ensembles] = problems[0] if problems else ""
            if len(self.known) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return found
