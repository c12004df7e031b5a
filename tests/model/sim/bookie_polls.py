"""Long polls of the LAC on a simulated bookie: the core's polls, driven by the world's clock and the bookie's journal."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.polls import LacPolls, Poll
from daybook.core.effects import SendLacRead
from daybook.core.errors import Code
from daybook.core.events import LacAnswered
from daybook.core.ids import LedgerId
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_calls import BookieCalls

_LIMIT: Final = 10_000


class SimPolls:
    """The polls that wait on one bookie."""

    def __init__(self, bookie: "BookieCalls") -> None:
        self._bookie = bookie
        self._polls = LacPolls(_LIMIT)
        self.has_waiters = self._polls.has_waiters

    def ask(self, ledger_id: LedgerId, request: SendLacRead, reply: Callable[..., None]) -> None:
        """Answer now if there is news or no time to wait."""
        bookie = self._bookie
        poll = Poll(
            ledger_id,
            request.known_lac,
            request.known_fenced,
            bookie.world.now_ms + request.wait_ms,
            look=partial(bookie.machine.lac, ledger_id),
            answer=partial(self._answer, ledger_id, request.request_id, reply),
        )
        if not request.wait_ms or poll.is_news(poll.look()) or not self._polls.park(poll):
            self._look_up(poll)
        else:
            bookie.later(request.wait_ms * MS, self._due)

    def wake(self, ledger_id: LedgerId, news: LacAnswer) -> None:
        """The bookie knows this of the ledger, durably unless its journal had no room for something."""
        for poll in self._polls.take_news(ledger_id, news):
            if self._bookie.machine.refusals.owes:
                self._look_up(poll)
            else:
                poll.answer(news)

    def _due(self) -> None:
        for poll in self._polls.take_due(self._bookie.world.now_ms):
            self._look_up(poll)

    def _look_up(self, poll: Poll) -> None:
        """Look first, then wait until what was found is durable."""
        self._bookie.when_durable(partial(self._looked_up, poll, poll.look()))

    def _looked_up(self, poll: Poll, lac: LacAnswer, code: Code) -> None:
        poll.answer(lac if code is Code.OK else None)

    def _answer(
        self, ledger_id: LedgerId, request_id: int, reply: Callable[..., None], lac: LacAnswer | None
    ) -> None:
        name = self._bookie.name
        if lac is None:
            reply(LacAnswered(name, request_id, Code.UNAVAILABLE))
        else:
            self._check_durable(ledger_id, lac)
            reply(LacAnswered(name, request_id, Code.OK, lac.last_add_confirmed, lac.limbo, lac.fenced))

    def _check_durable(self, ledger_id: LedgerId, lac: LacAnswer) -> None:
        """The bookie knows it after a power cut too (rule 48)."""
        checkers, name = self._bookie.cluster.checkers, self._bookie.name
        oracle, durable = checkers.oracles.get(ledger_id), self._bookie.knows_durably(ledger_id)
        if oracle is not None and not oracle.deleted and durable < lac.last_add_confirmed:
            checkers.fail(
                "a LAC is durable before a reader has it", f"{lac} of {ledger_id} on {name} (rule 48)"
            )
