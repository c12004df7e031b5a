"""Whether the entry after the end of a restored ledger lies where its metadata does not say (rule 68).

The metadata of a restored ledger is as old as the export. Its writer may have replaced bookies since, so that the bookies
that the metadata names honestly answer "not found" for entries that others have acknowledged. So before a recovery closes
such a ledger at an end, it asks every bookie that had a cookie in the export for the entry after that end, by reads that
fence (rule 2). Entries are acknowledged in order (rule 14): if that entry was not acknowledged, no later one was.

The close is refused in two cases:

- A bookie that the metadata does not name for the entry has it, or has it damaged. The metadata is too old.
- Some of these other bookies do not answer or cannot vouch, and they could make an ack quorum together with those of the entry's own write set
  that have it or do not answer. Otherwise any ack quorum of the entry lies within the write set that the metadata names,
  and the proof of rule 6 holds.
"""

from collections.abc import Iterable
from typing import assert_never

from daybook.core.effects import SendRead
from daybook.core.errors import Code
from daybook.core.events import BookieFailed, ReadAnswered
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.machine import RequestIds
from daybook.core.quorum import write_set

_BYTES_MAX = 1
"""One entry is returned, whatever its size."""


class Elsewhere:
    """Asks about the entry after `end`: `start()`, then `step(event)`, until `is_decided`."""

    def __init__(self, marked: LedgerMetadata, end: EntryId, ids: RequestIds) -> None:
        self.entry_id = end + 1
        self._ack_quorum = marked.quorum.ack_quorum
        ensemble = marked.last_fragment.bookies
        self._owing = frozenset(ensemble[position] for position in write_set(marked.quorum, self.entry_id))
        self._asked = sorted({*marked.restored_among, *ensemble})
        self._ids = ids
        self._pending: dict[int, BookieId] = {}
        self._have: set[BookieId] = set()
        self.silent: dict[BookieId, Code] = {}
        """Those whose answer proves nothing, with the reason."""

    def start(self) -> list[SendRead]:
        """The reads, one for each bookie."""
        reads = [
            SendRead(bookie, self._ids.next(), self.entry_id, self.entry_id, _BYTES_MAX, fence=True)
            for bookie in self._asked
        ]
        self._pending = {read.request_id: read.bookie for read in reads}
        return reads

    def step(self, event: ReadAnswered | BookieFailed) -> None:
        """Take an event; what answers nothing that was asked here changes nothing (rule 18)."""
        match event:
            case ReadAnswered():
                bookie = self._pending.pop(event.request_id, None)
                if bookie is not None:
                    self._answered(bookie, event)
            case BookieFailed(failed, code):
                for request_id in [each for each, bookie in self._pending.items() if bookie == failed]:
                    del self._pending[request_id]
                    self.silent[failed] = code
            case _:
                assert_never(event)

    def _answered(self, bookie: BookieId, answer: ReadAnswered) -> None:
        found = any(entry[0] == self.entry_id for entry in answer.entries)
        if answer.code is Code.OK and (found or self.entry_id in answer.damaged):
            self._have.add(bookie)
        elif answer.code is not Code.OK or answer.through < self.entry_id:
            self.silent[bookie] = Code.IO_ERROR if answer.code is Code.OK else answer.code
        elif answer.limbo:
            self.silent[bookie] = Code.LIMBO

    @property
    def is_decided(self) -> bool:
        """Whether everybody has answered or failed."""
        return not self._pending

    def refusal(self) -> str:
        """Why the ledger must not be closed before the entry; empty if it may."""
        elsewhere = self._have - self._owing
        if elsewhere:
            return (
                f"its metadata was restored and is too old: entry {self.entry_id} is on {_names(elsewhere)}, which the metadata "
                "does not name for it; restore a younger export, or keep the ledger as it is"
            )
        silent = self.silent.keys() - self._owing
        may_have = (self._have | self.silent.keys()) & self._owing
        if silent and len(silent) + len(may_have) >= self._ack_quorum:
            return (
                f"its metadata was restored, and {_names(silent)} may have entry {self.entry_id} and cannot say so now: start "
                "them; a bookie whose disks are lost starts on empty ones (`daybook bookie replace`)"
            )
        return ""


def _names(bookies: Iterable[BookieId]) -> str:
    return ", ".join(sorted(bookies))
