"""Long polls of the LAC on a simulated bookie: they wait for a higher LAC or for the fence, or until they are over."""

from collections.abc import Callable

from daybook.core.bookie.ledger import BookieLedger
from daybook.core.effects import SendLacRead
from daybook.core.errors import Code
from daybook.core.events import LacAnswered
from daybook.core.ids import LedgerId
from tests.model.sim.world import MS, Process


class LacPolls:
    """The polls that wait on one bookie."""

    def __init__(self, bookie: Process) -> None:
        self._bookie = bookie
        self._waiting: dict[LedgerId, list[tuple[SendLacRead, Callable[..., None]]]] = {}

    def ask(self, ledger: BookieLedger, request: SendLacRead, reply: Callable[..., None]) -> None:
        """Answer now if there is news or no time to wait."""
        if not request.wait_ms or ledger.has_news(request.known_lac, known_fenced=request.known_fenced):
            self._answer(ledger, request, reply)
            return
        self._waiting.setdefault(ledger.ledger_id, []).append((request, reply))
        self._bookie.later(request.wait_ms * MS, self._over, ledger, request)

    def wake(self, ledger: BookieLedger) -> None:
        """Something changed: answer those for whom it is news."""
        waiting = self._waiting.get(ledger.ledger_id)
        if not waiting:
            return
        left = []
        for request, reply in waiting:
            if ledger.has_news(request.known_lac, known_fenced=request.known_fenced):
                self._answer(ledger, request, reply)
            else:
                left.append((request, reply))
        self._waiting[ledger.ledger_id] = left

    def _over(self, ledger: BookieLedger, request: SendLacRead) -> None:
        waiting = self._waiting.get(ledger.ledger_id, [])
        for item in [item for item in waiting if item[0] is request]:
            waiting.remove(item)
            self._answer(ledger, *item)

    def _answer(self, ledger: BookieLedger, request: SendLacRead, reply: Callable[..., None]) -> None:
        lac = ledger.last_add_confirmed()
        reply(
            LacAnswered(
                self._bookie.name, request.request_id, Code.OK, lac.last_add_confirmed, lac.limbo, lac.fenced
            )
        )
