"""What is made of bookies that do not answer, or refuse, while copies are compared (rule 6)."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from daybook.client.transport.calls import ReadKey
from daybook.client.verify import TRIES, CopyRange, CopyReport, check_copies
from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.ids import BookieId, LedgerId
from daybook.core.quorum import Quorum

GONE, KEPT = 3, 4


@dataclass
class Bookies:
    """Bookies that have nothing, and what some of them answer instead for a ledger."""

    codes: dict[tuple[BookieId, LedgerId], Code] = field(default_factory=dict)
    asked: Counter[tuple[BookieId, LedgerId]] = field(default_factory=Counter)

    def calls(self, bookie: BookieId) -> Any:
        return None if bookie == "unknown" else self

    async def read(self, of: ReadKey, request: SendRead) -> ReadAnswered:
        key = request.bookie, of.ledger_id
        self.asked[key] += 1
        return ReadAnswered(request.bookie, 0, self.codes.get(key, Code.OK), through=request.last)


async def checked(bookies: Bookies, ledger_id: LedgerId, silent: dict[BookieId, str]) -> CopyReport:
    """What the first of two bookies has of two entries."""
    window = CopyRange(ledger_id, "key", Quorum(2, 2, 2), ("b1", "b2"), 0, 1)
    return (await check_copies(bookies, window, silent))[0]


async def test_a_bookie_that_lacks_a_deleted_ledger_is_asked_for_the_next_one() -> None:
    bookies, silent = Bookies({("b1", GONE): Code.NO_SUCH_LEDGER}), dict[BookieId, str]()
    gone = await checked(bookies, GONE, silent)
    assert (gone.unread, gone.missing, gone.error) == (2, [], "NO_SUCH_LEDGER")
    kept = await checked(bookies, KEPT, silent)
    assert (kept.unread, kept.missing, kept.error) == (0, [0, 1], "")
    assert bookies.asked[("b1", GONE)] == 1
    assert silent == {}


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.UNAVAILABLE, Code.CONNECTION_LOST])
async def test_a_bookie_that_does_not_answer_proves_nothing_and_is_asked_no_more(code: Code) -> None:
    bookies, silent = Bookies({("b1", GONE): code}), dict[BookieId, str]()
    for ledger_id in (GONE, KEPT):
        found = await checked(bookies, ledger_id, silent)
        assert (found.unread, found.missing, found.error) == (2, [], code.name)
    assert bookies.asked == {("b1", GONE): TRIES, ("b2", GONE): 1, ("b2", KEPT): 1}


async def test_a_bookie_that_is_not_registered_is_unread() -> None:
    window = CopyRange(KEPT, "key", Quorum(1, 1, 1), ("unknown",), 0, 1)
    silent: dict[BookieId, str] = {}
    (found,) = await check_copies(Bookies(), window, silent)
    assert (found.unread, found.error, silent) == (2, "not registered", {"unknown": "not registered"})
