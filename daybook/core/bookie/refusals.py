"""What the journal refused for want of room: it was accepted, and is durable only once the store has it (rule 30).

A record that was refused may repeat one that was answered, or bring the LAC that an answer would report. So as long as one is
not in the store, the bookie vouches for nothing (rule 22, rule 47).
"""

from daybook.core.errors import Code


class Refusals:
    """The refusals of one bookie's journal. The journal's writer counts them, and the store's writer what it has stored."""

    def __init__(self) -> None:
        self.count = 0
        """How many groups were refused so far."""
        self._stored = 0

    def refused(self) -> None:
        """The journal had no room for a group."""
        self.count += 1

    def stored(self, count: int) -> None:
        """The store has all that was accepted when `count` had this value."""
        self._stored = count

    @property
    def owes(self) -> bool:
        """Whether something that was refused is not in the store yet."""
        return self.count != self._stored

    def vouch(self, code: Code) -> Code:
        """What is answered for everything accepted so far, when the journal has passed it with `code`."""
        return Code.READ_ONLY if code is Code.OK and self.owes else code
