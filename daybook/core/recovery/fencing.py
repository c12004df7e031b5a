"""Fencing one ledger: who has fenced, whether that is enough, and which LAC the fenced bookies vouch for.

A recovery may continue once no write set has an ack quorum left that the old writer could still use (rule 1, rule 8); it
waits for nobody beyond that (rule 7). A fence counts from a bookie in limbo too; what that bookie knows does not count
(rule 29). Where recovery starts follows from the answers and from where the last fragment begins (rule 5, rule 44).
"""

from collections.abc import Mapping
from typing import assert_never

from daybook.core.effects import SendFence
from daybook.core.errors import Code
from daybook.core.events import BookieFailed, FenceAnswered
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds
from daybook.core.quorum import covers_every_write_set, mask_of


class Fencing:
    """Fences each bookie of the last ensemble of `metadata` once; `fenced` are positions that have fenced before."""

    def __init__(self, metadata: LedgerMetadata, ids: RequestIds, fenced: int = 0) -> None:
        self.fenced = fenced
        """The positions that have fenced, as a bit mask."""
        self.in_limbo = False
        """Whether one of them cannot vouch for what it has (rule 29)."""
        self.refusals: dict[BookieId, Code] = {}
        """Why bookies have not fenced."""
        self._quorum = metadata.quorum
        self._fragment = metadata.last_fragment
        self._ids = ids
        self._pending: dict[int, int] = {}
        self._lac_answers: list[tuple[EntryId, int]] = []

    def start(self) -> list[SendFence]:
        """The requests, one for each position. Who has fenced stays fenced (rule 4), and is asked again all the same."""
        asks = [SendFence(bookie, self._ids.next()) for bookie in self._fragment.bookies]
        self._pending = {ask.request_id: position for position, ask in enumerate(asks)}
        return asks

    def step(self, event: FenceAnswered | BookieFailed) -> bool:
        """Take an event; False if it answers nothing that was asked (rule 18)."""
        match event:
            case FenceAnswered():
                return self._answered(event)
            case BookieFailed(bookie, code):
                return self._bookie_failed(bookie, code)
            case _:
                assert_never(event)

    def _answered(self, event: FenceAnswered) -> bool:
        position = self._pending.pop(event.request_id, None)
        if position is None:
            return False
        if event.code is Code.OK:
            self.fenced |= 1 << position
            self._record_lac(event)
        else:
            self.refusals[event.bookie] = event.code
        return True

    def _bookie_failed(self, bookie: BookieId, code: Code) -> bool:
        """The requests that `bookie` has not answered get no answer."""
        unanswered = [
            r for r, position in self._pending.items() if self._fragment.bookies[position] == bookie
        ]
        for request_id in unanswered:
            self._answered(FenceAnswered(bookie, request_id, code))
        return bool(unanswered)

    def _record_lac(self, event: FenceAnswered) -> None:
        """Record the LAC of a bookie that can vouch for it."""
        if event.limbo:
            self.in_limbo = True
        else:
            self._lac_answers.append((event.last_add_confirmed, event.length_at_lac))

    @property
    def is_asking(self) -> bool:
        """Whether some request has no answer yet."""
        return bool(self._pending)

    def is_complete(self) -> bool:
        """Whether no ack quorum is left for the old writer (rule 1)."""
        return covers_every_write_set(self._quorum, self.fenced)

    def is_hopeless(self) -> bool:
        """Whether the answers that are still to come cannot complete it any more."""
        return not covers_every_write_set(self._quorum, self.fenced | mask_of(set(self._pending.values())))

    def starting_point(self) -> tuple[EntryId, int]:
        """The highest LAC that is known, with the length there; never before the last fragment (rule 5, rule 44)."""
        known = (self._fragment.first_entry - 1, self._fragment.length_before)
        return max([known, *self._lac_answers], key=lambda lac_and_length: lac_and_length[0])


def describe_codes(codes: Mapping[BookieId, Code]) -> str:
    """The codes that bookies answered with, for an error message."""
    return ", ".join(f"{bookie}: {code.name}" for bookie, code in sorted(codes.items())) or "no answers"
