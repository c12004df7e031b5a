"""What all ledgers of a cluster say of its bookies: who is named by which, and which lie against the placement.

By listing all metadata after a `sync`, as a drain must (rule 29), because nothing else is certain. Reads are pipelined
in bounded numbers (rule 37), and a listing serves all pools of the cluster as long as it is young enough for what it is
asked for.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement import BookieInfo
from daybook.core.placement_policies import PlacementSettings, SpreadPolicy, make_policy
from daybook.core.quorum import Quorum
from daybook.metadata.bookies import Location
from daybook.runtime.clock import monotonic_ms
from daybook_operator.clusters import ClusterLink
from daybook_operator.plan.pool_world import Survey

_SAMPLES_MAX: Final = 3
Ensembles: TypeAlias = tuple[Quorum, frozenset[tuple[BookieId, ...]]]


@dataclass(frozen=True, slots=True)
class Listing:
    """The ensembles of every ledger, and when the reading began."""

    began_ms: int
    ledgers: Mapping[LedgerId, Ensembles]


class Listings:
    """The last listing of each cluster."""

    def __init__(self) -> None:
        """None yet."""
        self._last: WeakKeyDictionary[ClusterLink, Listing] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[ClusterLink, asyncio.Lock] = WeakKeyDictionary()

    async def of(self, link: ClusterLink, *, age_ms: int) -> Listing:
        """A listing that began at most `age_ms` ago. Raises MetadataError, MetadataUnavailableError."""
        asked_ms = monotonic_ms()
        async with self._turns.setdefault(link, asyncio.Lock()):
            last = self._last.get(link)
            if last is None or last.began_ms < asked_ms - age_ms:
                last = await _read(link)
                self._last[link] = last
            return last


async def _read(link: ClusterLink) -> Listing:
    began_ms = monotonic_ms()
    await link.client.store.sync(link.client.layout.ledgers)
    known: dict[Ensembles, Ensembles] = {}  # most ledgers share few ensembles
    ledgers: dict[LedgerId, Ensembles] = {}
    async for found in link.client.ledgers.read_all():
        ensembles = (found.value.quorum, frozenset(each.bookies for each in found.value.fragments))
        ledgers[found.value.ledger_id] = known.setdefault(ensembles, ensembles)
    return Listing(began_ms, dict(sorted(ledgers.items())))


def survey_of(
    listing: Listing,
    *,
    mine: Collection[BookieId],
    may_leave: Collection[BookieId],
    registered: Mapping[BookieId, BookieInfo],
    locations: Mapping[BookieId, Location],
    placement: PlacementSettings,
) -> Survey:
    """What concerns a pool whose bookies are `mine`; `may_leave` are those whose ledgers are listed by name.

    A bookie that is away still stands where it stood.
    """
    infos = {
        bookie: replace(registered.get(bookie, BookieInfo(bookie)), **asdict(place))
        for bookie, place in locations.items()
    }
    judge = _Judge(make_policy(placement), {**registered, **infos})
    counts: Counter[BookieId] = Counter()
    ack_quorum_of: dict[BookieId, int] = {}
    naming: dict[BookieId, list[LedgerId]] = {bookie: [] for bookie in may_leave}
    largest, largest_of = 0, -1
    misplaced = 0
    samples: list[str] = []
    mine = frozenset(mine)
    for ledger_id, (quorum, ensembles) in listing.ledgers.items():
        named = frozenset(bookie for ensemble in ensembles for bookie in ensemble)
        counts.update(named)
        for bookie in named:
            ack_quorum_of[bookie] = min(quorum.ack_quorum, ack_quorum_of.get(bookie, quorum.ack_quorum))
        for bookie in named & naming.keys():
            naming[bookie].append(ledger_id)
        if quorum.ensemble_size > largest:
            largest, largest_of = quorum.ensemble_size, ledger_id
        if named & mine and (why := judge.problem(quorum, ensembles)):
            misplaced += 1
            if len(samples) < _SAMPLES_MAX:
                samples.append(f"ledger {ledger_id}: {why}")
    return Survey(
        ledgers=len(listing.ledgers),
        ledgers_of=dict(counts),
        naming={bookie: tuple(ledgers) for bookie, ledgers in naming.items()},
        ack_quorum_of=ack_quorum_of,
        ensemble_max=largest,
        ensemble_max_ledger=largest_of,
        misplaced=tuple(samples),
        misplaced_count=misplaced,
    )


class _Judge:
    """Judges each kind of ensembles once."""

    def __init__(self, policy: SpreadPolicy, bookies: Mapping[BookieId, BookieInfo]) -> None:
        self._policy = policy
        self._bookies = bookies
        self._known: dict[Ensembles, str] = {}

    def problem(self, quorum: Quorum, ensembles: frozenset[tuple[BookieId, ...]]) -> str:
        """What is wrong with one of them; "" if nothing is."""
        key = (quorum, ensembles)
        if key not in self._known:
            problems = [
                problem
                for ensemble in sorted(ensembles)
                for problem in self._policy.problems(quorum, ensemble, self._bookies)
            ]
            self._known[key] = problems[0] if problems else ""
        return self._known[key]
