"""One ledger on one bookie: what it takes, what it refuses, and what it may say to a recovery.

A bookie's promise is small and everything rests on it: once it has answered a fence, no normal add passes any more
(rule 2, rule 3, rule 4); what it says about its LAC and about entries it lacks is true, or it says that it cannot vouch for it
(limbo, rule 29); and a ledger that it does not know is not written to before metadata has shown it OPEN (rule 20).
`BookieLedger` decides for one ledger, `BookieMachine` (machine.py) for all of them. An accepted frame goes into the write
cache under the lock that covers `accept`, so that every later fence or read finds it there (rule 43), and every accepted
frame is journalled, even one whose entries are there already (rule 54).
"""

import hmac
from dataclasses import dataclass
from enum import Enum
from typing import Self

from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, FLAG_RECOVERY, FrameHeader
from daybook.core.ids import NO_ENTRY, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState


class Purpose(Enum):
    """What a stream attaches to a ledger for."""

    WRITE = "normal adds, by the ledger's one writer"
    RECOVERY = "write-back and re-replication, which bypass the fence (rule 10)"


class AttachVerdict(Enum):
    """The answer to a presented password, and, for a writer, whether the ledger may be written to."""

    OK = "accepted"
    UNAUTHORIZED = "the password does not match"
    NEEDS_METADATA = "sync, read the ledger's metadata, and ask again with it"
    NOT_OPEN = "metadata does not show the ledger OPEN (rule 20)"
    NO_SUCH_LEDGER = "the ledger is not in the metadata"
    IMPOSSIBLE_LEDGER = "no ledger has this id"
    IMPOSSIBLE_KEY = "no password has this key"

    @property
    def code(self) -> Code:
        """What is answered on the wire; NEEDS_METADATA when the metadata store does not answer."""
        return _CODES[self]


_CODES = {
    AttachVerdict.OK: Code.OK,
    AttachVerdict.UNAUTHORIZED: Code.UNAUTHORIZED,
    AttachVerdict.NEEDS_METADATA: Code.UNAVAILABLE,
    AttachVerdict.NOT_OPEN: Code.NOT_OPEN,
    AttachVerdict.NO_SUCH_LEDGER: Code.NO_SUCH_LEDGER,
    AttachVerdict.IMPOSSIBLE_LEDGER: Code.BAD_FRAME,
    AttachVerdict.IMPOSSIBLE_KEY: Code.UNAUTHORIZED,
}


@dataclass(frozen=True, slots=True)
class FenceVerdict:
    """What a fence request needs before it may be answered (rule 4).

    `verdict` OK: the ledger is fenced from this moment on. `wait`: the fence is not durable yet, so it is journalled
    (again), and answered once it is; then the owner calls `fence_is_durable(number)`.
    """

    verdict: AttachVerdict
    wait: bool = False
    number: int = 0


@dataclass(frozen=True, slots=True)
class LacAnswer:
    """What the bookie knows of the LAC. In `limbo` it proves nothing: the LAC may have been higher (rule 29)."""

    last_add_confirmed: EntryId
    length_at_lac: int
    limbo: bool
    fenced: bool


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What must survive a restart, beside the entries."""

    ledger_id: LedgerId
    key: str | None = None
    introduced: bool = False
    fenced: bool = False
    limbo_nonce: str | None = None
    last_add_confirmed: EntryId = NO_ENTRY
    length_at_lac: int = 0


class BookieLedger:
    """The state of one ledger on one bookie. No method waits; the owner calls each under the ledger's lock."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.key: str | None = None
        """The password's hash as clients present it; it may be a fence's guess until `introduced`."""
        self.introduced = False
        """Metadata was read once and showed the ledger OPEN, with this key (rule 20)."""
        self.fenced = False
        """Always under `key`: a key that metadata disproves takes its fence with it (rule 3)."""
        self.is_fence_durable = False
        self.fence_number = 0
        """Which fence it is: one that was dropped may become durable after another one was placed."""
        self.fence_dropped = False
        """A fence that was journalled stands no longer, and this was not journalled yet; `record_changed` is set."""
        self.limbo_nonce: str | None = None
        self.lac: EntryId = NO_ENTRY
        self.length_at_lac = 0
        self.forgotten = False
        self.record_changed = False
        """Key, introduction or a dropped fence are not journalled yet; they are journalled before the next frame."""
        self._writers: set[int] = set()
        self._recoverers: set[int] = set()
        """The streams that are attached, by purpose."""

    @classmethod
    def restored(cls, record: LedgerRecord) -> Self:
        """The ledger as `record` left it; what was read back from disk is durable."""
        ledger = cls(record.ledger_id)
        ledger.key = record.key
        ledger.introduced = record.introduced
        ledger.fenced = ledger.is_fence_durable = record.fenced
        ledger.limbo_nonce = record.limbo_nonce
        ledger.lac = record.last_add_confirmed
        ledger.length_at_lac = record.length_at_lac
        return ledger

    def record_is_journalled(self) -> None:
        """What `record_changed` speaks of was queued for the journal, before any frame that is accepted from now on."""
        self.record_changed = False
        self.fence_dropped = False

    # Passwords and attachments

    def authorize(self, key: str) -> AttachVerdict:
        """Judge a presented key. An unknown ledger takes the first one it sees (rule 3, rule 46), until metadata says.

        A key that a fence brought may have been wrong, so before the ledger is introduced a mismatch asks for metadata.
        """
        if self.forgotten:
            return AttachVerdict.NEEDS_METADATA
        if self.key is None:
            return AttachVerdict.OK
        if _is_same_key(self.key, key):
            return AttachVerdict.OK
        return AttachVerdict.UNAUTHORIZED if self.introduced else AttachVerdict.NEEDS_METADATA

    def authorize_with_metadata(self, key: str, metadata: LedgerMetadata | None) -> AttachVerdict:
        """Judge a presented key after a synced read of the metadata.

        The key there replaces what a fence brought, and ends a fence that came with another one: who recovers a ledger
        has its key from the metadata, so it was nobody's (rule 3).
        """
        if self.forgotten:
            return AttachVerdict.NEEDS_METADATA
        if metadata is None:
            return AttachVerdict.NO_SUCH_LEDGER
        assert metadata.ledger_id == self.ledger_id
        if not self.introduced:
            self._adopt_key(metadata.password_hash)
        assert self.key is not None
        return AttachVerdict.OK if _is_same_key(self.key, key) else AttachVerdict.UNAUTHORIZED

    def attach(self, stream_id: int, key: str, purpose: Purpose) -> AttachVerdict:
        """Let frames of `purpose` from `stream_id` in, if that can be decided without metadata (rule 20).

        Write-back too waits for metadata: a key that nobody has vouched for must not let entries in.
        """
        verdict = self.authorize(key)
        if verdict is AttachVerdict.OK and not self.introduced:
            verdict = AttachVerdict.NEEDS_METADATA
        if verdict is AttachVerdict.OK:
            self._streams(purpose).add(stream_id)
        return verdict

    def attach_with_metadata(
        self, stream_id: int, key: str, purpose: Purpose, metadata: LedgerMetadata | None
    ) -> AttachVerdict:
        """`attach` with the metadata that NEEDS_METADATA asked for; None if the ledger is not there.

        Call it on the very object that asked. If that was forgotten meanwhile (deleted and collected), the read is too
        old to let a writer in, and the answer is NEEDS_METADATA again: ask the ledger's new object.
        """
        verdict = self.authorize_with_metadata(key, metadata)
        if verdict is not AttachVerdict.OK:
            return verdict
        assert metadata is not None
        if purpose is Purpose.WRITE:
            if metadata.state is not LedgerState.OPEN:
                return AttachVerdict.NOT_OPEN
            self.record_changed |= not self.introduced
            self.introduced = True
        self._streams(purpose).add(stream_id)
        return AttachVerdict.OK

    def detach(self, stream_id: int) -> None:
        """The stream ended."""
        self._writers.discard(stream_id)
        self._recoverers.discard(stream_id)

    def end_attachment(self, stream_id: int, purpose: Purpose) -> bool:
        """The stream sends no more frames of this purpose; whether it may still send others."""
        self._streams(purpose).discard(stream_id)
        return stream_id in self._writers or stream_id in self._recoverers

    def forget(self) -> None:
        """The ledger is deleted and collected here: writers must attach again, to a new object (rule 20)."""
        self.forgotten = True
        self._detach_all()

    def _streams(self, purpose: Purpose) -> set[int]:
        return self._writers if purpose is Purpose.WRITE else self._recoverers

    def _detach_all(self) -> None:
        self._writers.clear()
        self._recoverers.clear()

    def _adopt_key(self, key: str) -> None:
        if self.key == key:
            return
        if self.key is not None:
            self._detach_all()
            self._drop_fence()
        self.key = key
        self.record_changed = True

    def _drop_fence(self) -> None:
        """It came with a key that is not the ledger's."""
        if self.fenced:
            self.fenced = self.is_fence_durable = False
            self.fence_dropped = True

    # Frames

    def accept(self, stream_id: int, header: FrameHeader) -> Code:
        """Decide over a frame. With OK the LAC has advanced, and the owner caches and journals the frame.

        A recovery frame passes fence and limbo (rule 10), a normal one neither; a fence that is not durable yet counts.
        """
        assert header.ledger_id == self.ledger_id
        if header.flags & FLAG_RECOVERY:
            if stream_id not in self._recoverers:
                return Code.NOT_ATTACHED
        elif stream_id not in self._writers:
            return Code.NOT_ATTACHED
        elif (refusal := self._refuses_normal()) is not Code.OK:
            return refusal
        self._raise_lac(header.last_add_confirmed, header.length_at_lac)
        return Code.OK

    def publish_lac(self, stream_id: int, lac: EntryId, length: int) -> bool:
        """Take the LAC that the ledger's writer publishes in a table (rule 48); whether that is news, to be journalled.

        It counts as a normal add would: from an attached stream, never past a fence or in limbo.
        """
        if stream_id not in self._writers or self._refuses_normal() is not Code.OK:
            return False
        return self._raise_lac(lac, length)

    def _raise_lac(self, lac: EntryId, length: int) -> bool:
        if lac <= self.lac:
            return False
        self.lac = lac
        self.length_at_lac = length
        return True

    def _refuses_normal(self) -> Code:
        """A real fence is told before limbo: it ends the writer's handle, and survives limbo's end (rule 29)."""
        if self.fenced:
            return Code.FENCED
        return Code.OK if self.limbo_nonce is None else Code.LIMBO

    def may_ack_before_sync(self, header: FrameHeader) -> bool:
        """Whether an accepted frame is answered before its own sync: only a deferred add of the writer (rule 22).

        Whether its entries are there already does not matter: the first copy may not be synced yet (rule 54).
        """
        return header.flags & (FLAG_DEFERRED_SYNC | FLAG_RECOVERY) == FLAG_DEFERRED_SYNC

    def force(self) -> Code:
        """Whether everything accepted so far counts, once it is synced (rule 22). The owner has authorised the request."""
        return self._refuses_normal()

    # The fence (rule 2, rule 3, rule 4)

    def fence(self, key: str) -> FenceVerdict:
        """Refuse normal frames from now on. Also for a ledger that was never seen, which thereby becomes known.

        `verdict` other than OK: nothing changed; with NEEDS_METADATA, use `authorize_with_metadata`, then call again.
        """
        verdict = self.authorize(key)
        if verdict is not AttachVerdict.OK:
            return FenceVerdict(verdict)
        self._adopt_key(key)
        if not self.fenced:
            self.fence_number += 1
        self.fenced = True
        must_wait = not self.is_fence_durable  # also a second fencer, while the first one's sync is under way
        return FenceVerdict(AttachVerdict.OK, wait=must_wait, number=self.fence_number)

    def fence_is_durable(self, number: int) -> None:
        """The journal holds fence `number` durably: everyone who waits for it is answered."""
        if self.fenced and number == self.fence_number:
            self.is_fence_durable = True

    def never_existed(self) -> None:
        """Metadata has shown that no ledger has had this id: the fence that made it known here was nobody's (rule 3).

        Only of a ledger that nothing but a fence made known. Journal `fence_dropped` when it is set.
        """
        assert not self.introduced
        assert not self.in_limbo
        self._drop_fence()
        self.key = None

    # Limbo (rule 29)

    @property
    def in_limbo(self) -> bool:
        """Whether the bookie may have lost entries, a LAC or a fence of this ledger."""
        return self.limbo_nonce is not None

    def enter_limbo(self, nonce: str) -> None:
        """The bookie lost its disk; `nonce` is new each time, so that a repair of an earlier loss cannot clear this."""
        self.limbo_nonce = nonce

    def clear_limbo(self, nonce: str) -> bool:
        """End limbo if `nonce` still stands; the fence stays. The caller has copied back everything owed."""
        if self.limbo_nonce is None or self.limbo_nonce != nonce:
            return False
        self.limbo_nonce = None
        return True

    # Reads

    def last_add_confirmed(self) -> LacAnswer:
        """The highest LAC that a frame brought here."""
        return LacAnswer(self.lac, self.length_at_lac, self.in_limbo, self.fenced)


def _is_same_key(ours: str, presented: str) -> bool:
    """In constant time. As bytes, since a key that a fence brought may hold characters that no real key has."""
    return hmac.compare_digest(ours.encode(), presented.encode())
