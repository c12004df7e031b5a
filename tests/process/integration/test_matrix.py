"""What each (E, Qw, Qa) survives when 1, 2, 3 … of its bookies are lost at once, for a while and for good.

All cases at once, on one cluster of ten bookies (`tools/slo/cases.py`): what is asserted is what the quorums promise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import pytest

import daybook
from daybook.local.cluster import LocalCluster
from tests.fixtures.cluster import connect_to, make_cluster
from tests.process.integration.kit import (
    PATIENCE_S,
    PATIENT,
    SESSION_MS,
    eventually,
    kill_all,
    off,
    persist,
    start_all,
    until_gone,
    until_registered,
)
from tools.slo.cases import LATE, LOST, NAMES, Case, cases
from tools.slo.notes import note
from tools.slo.pinned import Pinned

pytestmark = pytest.mark.integration

T = TypeVar("T")
Wrote: TypeAlias = asyncio.Future[tuple[int, int]]

ENTRIES: Final = [b"%d" % number for number in range(10)]
"""Two for each write set of an ensemble of five."""
MORE: Final = b"more"


@pytest.fixture
def ten_bookies(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of its own."""
    settings: dict[str, object] = {"session_timeout_ms": SESSION_MS}
    with make_cluster(tmp_path, bookies=len(NAMES), settings=settings) as cluster:
        yield cluster


@dataclass(frozen=True, slots=True)
class Survival:
    """What goes on while bookies are away; `alone`: where there are no other bookies to turn to."""

    writes: bool
    writes_alone: bool
    reads: bool
    """Of entries that had all their copies."""
    kept_entries: int
    """How many of these are there still, tried one by one: what is left if nobody comes back."""
    recovers: bool
    """Of entries that were just acknowledged by a writer that is gone, too: by Qa bookies, as many of them lost as can be."""
    recovers_alone: bool


class Trial:
    """The ledgers of one case."""

    def __init__(self, case: Case) -> None:
        """Nothing is written yet."""
        self.case = case
        self.whole = self.newest = self.newest_alone = -1
        self.writing: dict[bool, daybook.Ledger] = {}
        """By whether there are other bookies to turn to."""
        self.more: dict[bool, Wrote] = {}

    async def write_newest(self, create: "Create") -> None:
        """Have entries acknowledged while some bookies are away, and vanish at once."""
        ensemble = self.case.bookies_of_newest()
        ids = []
        for _ in range(2):
            ledger = await create(self.case, ensemble, spares=False)
            await ledger.append_many(ENTRIES)
            await ledger.abandon()
            assert len(ledger.metadata.fragments) == 1
            ids.append(ledger.id)
        self.newest, self.newest_alone = ids

    async def write_whole(self, create: "Create") -> None:
        """A closed ledger with all copies, and two that are still written."""
        closed, *going_on = [
            await create(self.case, self.case.bookies(), spares=spares) for spares in (False, False, True)
        ]
        for ledger in (closed, *going_on):
            await ledger.append_many(ENTRIES)
            await asyncio.wait_for(ledger.replicated(), PATIENCE_S)
        self.whole = (await closed.close()).ledger_id
        self.writing = dict(zip((False, True), going_on, strict=True))

    async def write_on(self) -> None:
        """Append to what is still written, and wait for nothing."""
        self.more = {spares: await ledger.submit([MORE]) for spares, ledger in self.writing.items()}

    async def observe(self, reader: daybook.Client, loner: daybook.Client) -> Survival:
        """What goes on now. What waits must have noticed that bookies are away."""
        async with asyncio.timeout(PATIENCE_S):
            await self.more[True]
        alone, wanted = self.writing[False], promised(self.case)
        await eventually(lambda: self.more[False].done() or (alone.is_degraded and not wanted.writes_alone))
        return Survival(
            writes=self.more[True].done(),
            writes_alone=self.more[False].done(),
            reads=await works(lambda: read(reader, self.whole), wanted=wanted.reads),
            kept_entries=await self._kept_entries(reader),
            recovers=await works(lambda: read(reader, self.newest), wanted=wanted.recovers),
            recovers_alone=await works(lambda: read(loner, self.newest_alone), wanted=wanted.recovers_alone),
        )

    async def _kept_entries(self, client: daybook.Client) -> int:
        """How many entries of the closed ledger can be read, each by itself."""
        reader = await client.open_ledger(self.whole)

        async def read_one(entry_id: int) -> int:
            return len([entry async for entry in reader.read(entry_id, entry_id)])

        return sum(
            [
                await works(partial(read_one, entry_id), 1, wanted=self.case.keeps(entry_id))
                for entry_id in range(len(ENTRIES))
            ]
        )

    async def look_again(self, reader: daybook.Client) -> int:
        """After all bookies are back: how many acknowledged entries are not there, of all ledgers."""
        async with asyncio.timeout(PATIENCE_S):
            for more in self.more.values():
                await more
        for ledger in self.writing.values():
            await ledger.close()
        lost = 0
        for ledger_id in (self.whole, self.newest, self.newest_alone):
            lost += len(ENTRIES) - await persist(partial(read, reader, ledger_id))
        for ledger in self.writing.values():
            lost += len([*ENTRIES, MORE]) - await read(reader, ledger.id, [*ENTRIES, MORE])
        return lost


class Create:
    """Creates ledgers whose ensembles are given."""

    def __init__(self, client: daybook.Client) -> None:
        self._client = client
        self._turn = asyncio.Lock()

    async def __call__(self, case: Case, ensemble: tuple[str, ...], *, spares: bool) -> daybook.Ledger:
        """A new ledger of `case`; `spares`: whether its writer may turn to other bookies."""
        async with self._turn:
            self._client.placement = Pinned(ensemble, spares=spares)
            return await self._client.create_ledger(
                ensemble_size=case.ensemble, write_quorum=case.write, ack_quorum=case.ack
            )


async def read(client: daybook.Client, ledger_id: int, expected: list[bytes] = ENTRIES) -> int:
    """How many of the entries a ledger has, that is recovered if need be; nothing else may be in it."""
    reader = await client.open_ledger(ledger_id)
    found = [entry.data async for entry in reader.read()]
    assert found == expected[: len(found)]
    return len(found)


async def works(attempt: Callable[[], Awaitable[int]], expected: int = len(ENTRIES), *, wanted: bool) -> bool:
    """Whether all entries are read; if not, the error must say that bookies are missing, and nothing else.

    What is `wanted` is tried for longer: on a slow machine a bookie that is there may answer too late.
    """
    try:
        return await (persist(attempt) if wanted else attempt()) == expected
    except (daybook.NotEnoughReplicasError, daybook.RecoveryFailedError):
        return False


async def test_each_quorum_survives_what_it_promises(
    ten_bookies: LocalCluster, request: pytest.FixtureRequest
) -> None:
    cluster = ten_bookies
    trials = [Trial(case) for case in cases()]
    async with (
        connect_to(cluster, writer_policy=PATIENT) as writer,
        connect_to(cluster) as reader,
        connect_to(cluster) as loner,
    ):
        create = Create(writer)
        loner.placement = Pinned((), spares=False)

        await off(kill_all, cluster, *LATE)
        await asyncio.gather(*(trial.write_newest(create) for trial in trials))
        await off(start_all, cluster)
        await until_registered(writer, *NAMES)
        await asyncio.gather(*(trial.write_whole(create) for trial in trials))

        await off(kill_all, cluster, *LOST)
        await asyncio.gather(*(trial.write_on() for trial in trials))
        await until_gone(reader, *LOST)
        await until_gone(loner, *LOST)
        survived = await asyncio.gather(*(trial.observe(reader, loner) for trial in trials))

        await off(start_all, cluster)
        await until_registered(reader, *NAMES)
        lost = await asyncio.gather(*(trial.look_again(reader) for trial in trials))

    for trial, survival, missing in zip(trials, survived, lost, strict=True):
        case = trial.case
        assert survival == promised(case), case
        assert missing == 0, case
        note("matrix", request.node.nodeid, **asdict(case), **asdict(survival), lost_for_a_while=missing)


def promised(case: Case) -> Survival:
    """What the quorums promise."""
    return Survival(
        writes=True,
        writes_alone=case.can_write,
        reads=case.can_read,
        kept_entries=sum(case.keeps(entry_id) for entry_id in range(len(ENTRIES))),
        recovers=case.can_recover,
        recovers_alone=case.can_recover and case.can_write,
    )
