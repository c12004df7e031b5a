"""One stream that attaches to one ledger: the password, and for a writer the proof that the ledger may be written to.

The first normal frame of a ledger that a bookie does not know needs a synced read of its metadata (rule 20). A ledger that
is deleted between question and answer is asked about again, but not for ever.
"""

from typing import Final

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.bookie.machine import BookieMachine, Record
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata

ATTEMPTS_MAX: Final = 3


class Attachment:
    """One attempt of one stream; its owner holds the bookie's lock around each call.

    `begin`; then, until `is_done`: `ask`, read the metadata after a sync, `metadata_read` or `give_up`.
    """

    def __init__(
        self, machine: BookieMachine[Record], stream_id: int, ledger_id: LedgerId, key: str, purpose: Purpose
    ) -> None:
        self.verdict = AttachVerdict.NEEDS_METADATA
        self.is_done = False
        self._machine = machine
        self._stream_id = stream_id
        self._ledger_id = ledger_id
        self._key = key
        self._purpose = purpose
        self._attempts_left = ATTEMPTS_MAX
        self.held: BookieLedger | None = None
        """The object that metadata is read for."""

    def begin(self, *, stream_ended: bool = False) -> None:
        """Decide, if that needs no metadata."""
        verdict = self._machine.attach(self._stream_id, self._ledger_id, self._key, self._purpose)
        self._decide(verdict, stream_ended=stream_ended)

    def ask(self) -> None:
        """The metadata is about to be read: keep the object that asks."""
        assert not self.is_done
        self.held = self._machine.ledgers.hold(self._ledger_id)
        self._attempts_left -= 1

    def metadata_read(self, metadata: LedgerMetadata | None, *, stream_ended: bool) -> None:
        """The metadata, None if the ledger is not there. A stream that ended meanwhile does not stay attached."""
        held = self.held
        assert held is not None, "ask first"
        verdict = self._machine.attach_with_metadata(
            held, self._stream_id, self._key, self._purpose, metadata
        )
        self._let_go()
        self._decide(verdict, stream_ended=stream_ended)

    def give_up(self) -> None:
        """The metadata cannot be read; the verdict stays NEEDS_METADATA."""
        self._let_go()
        self.is_done = True

    def _decide(self, verdict: AttachVerdict, *, stream_ended: bool) -> None:
        self.verdict = verdict
        self.is_done = verdict is not AttachVerdict.NEEDS_METADATA or not self._attempts_left
        if stream_ended:
            self._machine.ledgers.detach(self._stream_id)

    def _let_go(self) -> None:
        if self.held is not None:
            self._machine.ledgers.let_go(self.held)
            self.held = None
