"""What is read of a ledger with an entry that was found nowhere, before it is judged."""

from types import SimpleNamespace
from typing import Any

from daybook_operator.reconcile.lost_ledgers import JUDGED_MAX, verdicts

from daybook.core.errors import NoSuchLedgerError
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.task import RepairTask
from daybook.metadata.store.store import Versioned

NOWHERE = "unrecoverable: entry 3 is nowhere"


class Link:
    """What is asked of a link: b0 serves, b1 and b2 have cookies, and every ledger names all three."""

    def __init__(self, *, is_audited: bool = True, registered: tuple[str, ...] = ("b0",)) -> None:
        async def bookies() -> dict[str, BookieInfo]:
            return {each: BookieInfo(each) for each in registered}

        async def cookies() -> tuple[str, ...]:
            return ("b0", "b1", "b2")

        async def read(ledger_id: int) -> Any:
            if ledger_id == 404:
                raise NoSuchLedgerError("it was deleted meanwhile")
            named = frozenset({"b0", "b1", "b2"})
            return Versioned(SimpleNamespace(bookies=lambda: named), 0)

        self.client = SimpleNamespace(
            directory=SimpleNamespace(bookies=bookies, cookies=cookies), ledgers=SimpleNamespace(read=read)
        )
        self.audits = SimpleNamespace(last_report=None)
        self.is_audited_since = lambda _: is_audited


def task(ledger_id: int = 7, reasons: tuple[str, ...] = (), **more: Any) -> Versioned[RepairTask]:
    return Versioned(
        RepairTask(ledger_id, reasons, (), 0, **{"why_not": NOWHERE, "not_before_ms": 9, **more}), 0
    )


async def read(link: Any, *tasks: Versioned[RepairTask]) -> Any:
    return await verdicts(link, tasks)


async def test_who_is_away_is_awaited() -> None:
    (found,) = await read(Link(), task(), task(8, why_not="it is too early"), task(404))
    assert (found.ledger_id, found.awaited, found.is_lost) == (7, ("b1", "b2"), False)


async def test_a_verdict_waits_for_the_try_that_follows_a_return() -> None:
    everybody, limbo = ("b0", "b1", "b2"), ("limbo b1",)
    assert (await read(Link(registered=everybody), task(reasons=limbo)))[0].is_lost
    assert not (await read(Link(registered=everybody), task(reasons=limbo, not_before_ms=0)))[0].is_lost
    assert not (await read(Link(registered=everybody, is_audited=False), task(reasons=limbo)))[0].is_lost


async def test_of_more_than_are_judged_nothing_is_claimed() -> None:
    tasks = [task(number, ("limbo b1",)) for number in range(JUDGED_MAX + 2)]
    found = await read(Link(registered=("b0", "b1", "b2")), *tasks)
    assert [each.is_lost for each in found] == [True] * JUDGED_MAX + [False] * 2
