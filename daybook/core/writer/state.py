"""What a writer knows, and the three things every other part of it rests on: seal, complete in order, end.

An entry is acknowledged when Qa bookies of its write set have it durably and all entries before it are acknowledged
(rule 14), and never while a metadata change is undecided (rule 15). That happens in one place, `_complete`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from heapq import heappop

from daybook.core.effects import Complete, Effect, Fail, HandleEnded
from daybook.core.errors import DaybookError, MetadataError
from daybook.core.format.frame import FLAG_DEFERRED_SYNC
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.transitions import check_transition
from daybook.core.ledger.update import MetadataUpdate
from daybook.core.machine import RequestIds
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.quorum import is_ack_quorum
from daybook.core.writer.batch import Batch, seal_batch
from daybook.core.writer.force import Forces
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.queue import AppendQueue, ExplicitQueue
from daybook.core.writer.replacement import Quarantine, Replacer
from daybook.core.writer.window import MemberState, SendWindow


class WriterState(ABC):
    """The fields of a writer; `LedgerWriter` describes the arguments."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        *,
        placement: PlacementPolicy,
        rng: RandomSource,
        bookies: Mapping[BookieId, BookieInfo],
        policy: WriterPolicy = WriterPolicy(),  # noqa: B008 - frozen
        now_ms: int = 0,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
    ) -> None:
        _check_attached(metadata)
        self.metadata: LedgerMetadata = metadata
        self.version: int = version
        self.last_add_confirmed: EntryId = NO_ENTRY
        self.length_at_lac: int = 0
        self.length: int = 0
        """Payload bytes of everything appended."""
        self._quorum = metadata.quorum
        self._policy = policy
        self._bookies = bookies
        self._replacer = Replacer(metadata.quorum, placement, rng)
        self._now_ms = now_ms
        self._deferred_sync = deferred_sync
        self._queue: AppendQueue | ExplicitQueue = (
            ExplicitQueue(policy.frame_bytes_target)
            if explicit_ids
            else AppendQueue(policy.frame_bytes_target)
        )
        self._window = SendWindow(metadata.last_fragment.bookies)
        self._ids = RequestIds()
        self._update = MetadataUpdate(policy.metadata_retry_ms, self._ids)
        self._quarantine = Quarantine()
        self._forces = Forces()
        self._tokens: list[tuple[EntryId, EntryId, int]] = []
        """A heap of (last, first, token) of the appends without an answer."""
        self._completed: EntryId = NO_ENTRY
        """Like the LAC; ahead of it where only a force confirms."""
        self._completed_length = 0
        self._published: EntryId = NO_ENTRY
        self._unpublished_since_ms: int | None = None
        self._stuck_since_ms: int | None = None
        self._reported_missing: tuple[BookieId, ...] = ()
        self._ensemble_changes = 0
        self._is_connected = True
        self._ended: DaybookError | None = None
        self._retired: DaybookError | None = None
        """Why the handle takes no more though it still completes what is under way."""
        self._is_closing = False
        self._close_tokens: list[int] = []
        self._out: list[Effect] = []

    @property
    def last_add_pushed(self) -> EntryId:
        """The highest entry id that an append got."""
        return self._queue.next_entry - 1

    @property
    def pending_bytes(self) -> int:
        """Payload bytes that are held: not sealed, not acknowledged, or owed to a straggler."""
        return self._queue.payload_bytes + self._window.payload_bytes

    @property
    def missing_entry(self) -> EntryId | None:
        """The id that everything appended waits for and that nobody has appended yet (rule 55); None without a gap."""
        return self._queue.gap

    @property
    def has_unsealed(self) -> bool:
        """Whether a flush would send anything."""
        return bool(self._queue)

    @property
    def is_degraded(self) -> bool:
        """Whether the writer goes on without some bookies, for want of a spare (rule 45)."""
        return bool(self._window.in_state(MemberState.MISSING, MemberState.RETURNED))

    @property
    def is_closing(self) -> bool:
        """Whether the ledger is still to be closed: a close was asked for, or the handle ended and leaves one behind."""
        return self._is_closing

    @property
    def has_ended(self) -> bool:
        """Whether the handle ended or was closed: no append can succeed any more."""
        return self._ended is not None

    def _seal(self, *, only_full: bool) -> None:
        for run in self._queue.drain(only_full=only_full):
            batch = seal_batch(
                self.metadata.ledger_id,
                self._quorum,
                run.first,
                run.payloads,
                run.payload_bytes,
                last_add_confirmed=self.last_add_confirmed,
                length_at_lac=self.length_at_lac,
                flags=FLAG_DEFERRED_SYNC if self._deferred_sync else 0,
            )
            self._window.add(batch, self._out)
            self._unpublished_since_ms = None

    def _is_acknowledged(self, batch: Batch) -> bool:
        return is_ack_quorum(self._quorum, batch.acked, batch.first, batch.last)

    def _complete(self) -> None:
        """Complete in order whatever has its quorum (rule 14)."""
        assert not self._update.is_pending, "nothing completes while a metadata change is undecided"
        window = self._window
        while True:
            batch = window.uncompleted.get(self._completed + 1)
            if batch is None or not self._is_acknowledged(batch):
                break
            window.complete(batch, self._now_ms)
            self._completed = batch.last
            self._completed_length += batch.payload_bytes
            self._queue.confirm(batch.first, batch.last)
            if self._deferred_sync:
                self._forces.passed(self._completed, self._completed_length)
            else:
                self._confirm(self._completed, self._completed_length)
        tokens = self._tokens
        while tokens and tokens[0][0] <= self._completed:
            last, first, token = heappop(tokens)
            self._out.append(Complete(token, first, last))

    def _confirm(self, last: EntryId, length: int) -> None:
        assert self.last_add_confirmed <= last <= self._completed
        assert self.length_at_lac <= length <= self.length
        self.last_add_confirmed = last
        self.length_at_lac = length
        if self._unpublished_since_ms is None:
            self._unpublished_since_ms = self._now_ms

    def _propose_metadata(self, target: LedgerMetadata) -> None:
        check_transition(self.metadata, target)
        self._update.propose(target, self.version, self._out)

    def _end(self, error: DaybookError, *, close: bool = False) -> None:
        """No append can succeed any more: fail what is pending; `close`: at the LAC, which nobody else will do."""
        if self._ended is not None:
            return
        self._ended = error
        self._fail_pending(error)
        self._window.clear()
        if self._retired is None:
            self._out.append(HandleEnded(error))
        self._is_closing = self._is_closing or close
        self._advance()

    def _fail_pending(self, error: DaybookError) -> None:
        for _, _, token in sorted(self._tokens):
            self._out.append(Fail(token, error))
        for token in self._forces.tokens:
            self._out.append(Fail(token, error))
        self._tokens.clear()
        self._forces.clear()
        self._queue.clear()

    @abstractmethod
    def _advance(self) -> None:
        """Do what waited for an outcome: change the ensemble if an entry needs it, complete, force, close."""


def _check_attached(metadata: LedgerMetadata) -> None:
    """Raise MetadataError unless `metadata` is fresh from its one attach (rule 53)."""
    why = ""
    if metadata.state is not LedgerState.OPEN:
        why = f"it is {metadata.state.value}"
    elif metadata.writer_token is None:
        why = "it is not attached"
    elif len(metadata.fragments) > 1:
        why = "it was written before"
    if why:
        msg = f"ledger {metadata.ledger_id} cannot be written: {why}; recover it and create a new one"
        raise MetadataError(msg)
