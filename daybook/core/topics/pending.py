"""What was published and is not acknowledged: what waits for a ledger, and what is under way to one.

A topic acknowledges in the order in which it was asked. After a ledger that failed, its end decides (rule 50): what is in it is
acknowledged, and only the rest is sent to the next ledger, in the same order. So the payloads are kept until then.
"""

from collections.abc import Sequence

from daybook.core.errors import DaybookError
from daybook.core.format.frame import Buffer
from daybook.core.format.payloads import payload_bytes
from daybook.core.ids import EntryId
from daybook.core.topics.events import ManagedLedgerEffect, PublishFailed


class PendingPublishes:
    """The entries of one topic that have no answer yet. Its queues are lists: empty, as in idle topics, a deque takes 0.76 KB."""

    __slots__ = ("_sent", "_waiting", "next_entry", "pending_bytes", "sent_bytes")

    def __init__(self) -> None:
        self._waiting: list[Sequence[Buffer]] = []
        self._sent: list[tuple[EntryId, Sequence[Buffer]]] = []
        self.next_entry: EntryId = 0
        """The id that the ledger gives to the next entry that is sent."""
        self.sent_bytes = 0
        """Of all that was sent to the ledger."""
        self.pending_bytes = 0
        """Of all entries without an answer."""

    @property
    def is_waiting(self) -> bool:
        """Whether something was not sent to a ledger yet."""
        return bool(self._waiting)

    @property
    def is_sent(self) -> bool:
        """Whether something is under way to a ledger."""
        return bool(self._sent)

    @property
    def acknowledged(self) -> int:
        """How many entries of the ledger have their answer."""
        return self._sent[0][0] if self._sent else self.next_entry

    @property
    def count(self) -> int:
        """How many entries have no answer."""
        return sum(map(len, self._waiting)) + sum(len(payloads) for _, payloads in self._sent)

    def add(self, payloads: Sequence[Buffer]) -> None:
        """More entries, behind all others."""
        self._waiting.append(payloads)
        self.pending_bytes += payload_bytes(payloads)

    def send(self) -> Sequence[Buffer]:
        """All that waits, now under way."""
        if len(self._waiting) == 1:
            payloads = self._waiting[0]
        else:
            payloads = [payload for each in self._waiting for payload in each]
        self._waiting.clear()
        self._sent.append((self.next_entry, payloads))
        self.next_entry += len(payloads)
        self.sent_bytes += payload_bytes(payloads)
        return payloads

    def acknowledge(self, through: EntryId) -> tuple[EntryId, int]:
        """What is under way up to the entry `through` is in the ledger: the first of them, and how many."""
        sent, first = self._sent, through + 1
        count = whole = 0
        for begin, payloads in sent:
            if begin > through:
                break
            taken = min(through + 1 - begin, len(payloads))
            if not count:
                first = begin
            count += taken
            self.pending_bytes -= payload_bytes(payloads if taken == len(payloads) else payloads[:taken])
            if taken < len(payloads):
                sent[whole] = begin + taken, payloads[taken:]
                break
            whole += 1
        del sent[:whole]
        return first, count

    def take_back(self) -> None:
        """Nothing of what is under way is in the ledger: it waits again, before all that waits (rule 50)."""
        self._waiting[:0] = [payloads for _, payloads in self._sent]
        self._sent.clear()

    def begin_ledger(self) -> None:
        """What is sent from now on goes to a new ledger."""
        assert not self._sent, "the end of the last ledger decides first"
        self.next_entry = self.sent_bytes = 0

    def fail(self, error: DaybookError, out: list[ManagedLedgerEffect]) -> None:
        """Answer for all that has no answer."""
        if count := self.count:
            out.append(PublishFailed(count, error))
        self._waiting.clear()
        self._sent.clear()
        self.pending_bytes = 0
