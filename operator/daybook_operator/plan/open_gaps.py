"""Open ledgers that lack confirmed entries on a bookie: what the condition of a pool says of them, and who closes them.

Repair copies nothing of a fragment that is open, and recovers it only where a bookie of it is gone (rule 31): a bookie that is slow would otherwise
cost a live writer its ledger. So such a ledger stays as it is until it is closed: by its writer, or by a recovery. The owner of a topic does so when
it hands the topic over, and the next owner when it takes the topic over; but a topic that nobody uses has no owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daybook.core.ids import LedgerId

NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class OpenGap:
    """One ledger; `topic` is the full name of the one that it belongs to, "" for none."""

    ledger_id: LedgerId
    topic: str = ""


@dataclass(frozen=True, slots=True)
class OpenGaps:
    """Those that the last full audit found: `named` are still open, of `more` nobody has asked whether they are."""

    named: tuple[OpenGap, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        """Whether one is known to be open."""
        return bool(self.named)

    @property
    def in_words(self) -> str:
        """`Ledgers 7 (of persistent://…), 9 and 3 more are open and lack …`."""
        shown = [
            f"{each.ledger_id} (of {each.topic})" if each.topic else str(each.ledger_id)
            for each in self.named
        ]
        if self.more:
            shown.append(f"{self.more} more")
        if len(shown) == 1:
            return f"Ledger {shown[0]} is open and lacks confirmed entries on one of its bookies"
        listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
        return f"Ledgers {listed} are open and lack confirmed entries on one of their bookies"

    @property
    def next_step(self) -> str:
        """Who closes them, and by which command."""
        return (
            "A bookie that is only slow gets them from the writer. Otherwise repair begins once the ledger is closed: "
            f"{_closing(self.named)}."
        )


def _closing(gaps: Sequence[OpenGap]) -> str:
    of_topic = next((each for each in gaps if each.topic), None)
    of_none = next((each for each in gaps if not each.topic), None)
    steps: list[str] = []
    if of_topic is not None:
        steps.append(
            f"the owner of its topic does that by `kubectl daybook topic unload {of_topic.topic}`; if no broker owns the topic (`kubectl daybook "
            f"topic owner {of_topic.topic}`), `daybook ledger recover {of_topic.ledger_id}` does, and the next owner continues in another ledger"
        )
    if of_none is not None:
        steps.append(
            f"where the writer of a ledger without a topic is gone, `daybook ledger recover {of_none.ledger_id}` closes it; it fences a "
            "writer that is not"
        )
    return "; ".join(steps)
