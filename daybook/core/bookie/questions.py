"""Requests that may need a ledger's metadata: a stream attaches, a call presents a key, a client fences.

The first normal frame of a ledger that a bookie does not know needs a synced read of its metadata (rule 20), and so does a
key that differs from the one that a fence brought (rule 3, rule 46). Whoever can open a connection can ask, so an id or a
key that could not be stored is refused before anything knows of it: it would stop the store at its next flush.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.bookie.machine import BookieMachine, FenceDecided, Record
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata

ATTACH_ATTEMPTS_MAX: Final = 3
KEY_BYTES_MAX: Final = 255
"""The longest key: a record of the journal has one byte for its length."""


class Question(ABC, Generic[Record]):
    """One request about one ledger; its owner holds the bookie's lock around each call.

    `begin`; then, until `is_done`: `ask`, read the metadata after a sync, `metadata_read` or `give_up`. A ledger that is
    deleted between question and answer is asked about again, but not for ever.
    """

    def __init__(
        self, machine: BookieMachine[Record], ledger_id: LedgerId, key: str, *, attempts: int = 1
    ) -> None:
        self.verdict = AttachVerdict.NEEDS_METADATA
        """NEEDS_METADATA when it is done: the metadata could not be read."""
        self.is_done = False
        self.ledger_id = ledger_id
        self.held: BookieLedger | None = None
        """The object that metadata is read for."""
        self._machine = machine
        self._key = key
        self._attempts_left = attempts

    def begin(self) -> None:
        """Decide, if that needs no metadata."""
        if self.ledger_id < 0:
            self._decided(AttachVerdict.IMPOSSIBLE_LEDGER)
        elif not self._key.isascii() or len(self._key) > KEY_BYTES_MAX:
            self._decided(AttachVerdict.IMPOSSIBLE_KEY)
        else:
            self._decided(self._decide())

    def ask(self) -> None:
        """The metadata is about to be read: keep the object that asks."""
        assert not self.is_done
        self.held = self._machine.ledgers.hold(self.ledger_id)
        self._attempts_left -= 1

    def metadata_read(self, metadata: LedgerMetadata | None) -> None:
        """The metadata, None if the ledger is not there."""
        held = self.held
        assert held is not None, "ask first"
        verdict = self._decide_with(held, metadata)
        self._let_go()
        self._decided(verdict)

    def give_up(self) -> None:
        """The metadata cannot be read; the verdict stays NEEDS_METADATA."""
        self._let_go()
        self.is_done = True

    @abstractmethod
    def _decide(self) -> AttachVerdict:
        """The machine's verdict without metadata."""

    @abstractmethod
    def _decide_with(self, held: BookieLedger, metadata: LedgerMetadata | None) -> AttachVerdict:
        """The machine's verdict with the metadata that was read for `held`."""

    def _decided(self, verdict: AttachVerdict) -> None:
        self.verdict = verdict
        self.is_done = verdict is not AttachVerdict.NEEDS_METADATA or not self._attempts_left

    def _let_go(self) -> None:
        if self.held is not None:
            self._machine.ledgers.let_go(self.held)
            self.held = None


class KeyQuestion(Question[Record]):
    """Whether the key that a call presents is the ledger's."""

    def _decide(self) -> AttachVerdict:
        return self._machine.authorize(self.ledger_id, self._key)

    def _decide_with(self, held: BookieLedger, metadata: LedgerMetadata | None) -> AttachVerdict:
        return self._machine.authorize_with_metadata(held, self._key, metadata)


class Attachment(Question[Record]):
    """Whether the frames of a stream are let in: the key, and for a writer the proof that the ledger may be written to."""

    def __init__(
        self,
        machine: BookieMachine[Record],
        stream_id: int,
        ledger_id: LedgerId,
        key: str,
        purpose: Purpose,
        *,
        has_ended: Callable[[], bool],
    ) -> None:
        """`has_ended`: whether the stream has; it does not stay attached then."""
        super().__init__(machine, ledger_id, key, attempts=ATTACH_ATTEMPTS_MAX)
        self._stream_id = stream_id
        self._purpose = purpose
        self._has_ended = has_ended

    def _decide(self) -> AttachVerdict:
        return self._machine.attach(self._stream_id, self.ledger_id, self._key, self._purpose)

    def _decide_with(self, held: BookieLedger, metadata: LedgerMetadata | None) -> AttachVerdict:
        return self._machine.attach_with_metadata(held, self._stream_id, self._key, self._purpose, metadata)

    def _decided(self, verdict: AttachVerdict) -> None:
        super()._decided(verdict)
        if self._has_ended():
            self.is_done = True
            self._machine.ledgers.detach(self._stream_id)


class FenceQuestion(Question[Record]):
    """Whether a ledger is fenced for whom presents a key (rule 2, rule 3, rule 4). `end` it once it is answered."""

    def __init__(
        self,
        machine: BookieMachine[Record],
        ledger_id: LedgerId,
        key: str,
        queue: Callable[[FenceDecided[Record]], None],
    ) -> None:
        """`queue` is called once, under the lock, if the fence stands: its records go to the journal."""
        super().__init__(machine, ledger_id, key)
        self._queue = queue
        self._fenced: BookieLedger | None = None

    def end(self) -> None:
        """The fence is answered: it is durable, or refused."""
        if self._fenced is not None:
            self._machine.ledgers.let_go(self._fenced)
            self._fenced = None

    def _decide(self) -> AttachVerdict:
        self._fenced = self._machine.ledgers.hold(self.ledger_id)
        return self._fence(self._fenced)

    def _decide_with(self, held: BookieLedger, metadata: LedgerMetadata | None) -> AttachVerdict:
        verdict = self._machine.authorize_with_metadata(held, self._key, metadata)
        assert self._fenced is not None
        return self._fence(self._fenced) if verdict is AttachVerdict.OK else verdict

    def _fence(self, ledger: BookieLedger) -> AttachVerdict:
        decided = self._machine.fence(ledger, self._key)
        if isinstance(decided, AttachVerdict):
            return decided
        self._queue(decided)
        return AttachVerdict.OK
