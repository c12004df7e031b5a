"""What a writer knows of its ledger: one record, which all its parts share and no part copies.

The parts only note facts here. What follows from them is decided in `writer`, so that a reader finds every consequence in one place.
"""

from collections.abc import Mapping
from heapq import heappop

from daybook.core.effects import Complete, Fail, WriterEffect
from daybook.core.errors import DaybookError, MetadataError
from daybook.core.format.checksums import ledger_seed
from daybook.core.format.lac_table import LacRow, encode_lac_row, lac_frame
from daybook.core.ids import NO_ENTRY, BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.transitions import check_transition
from daybook.core.ledger.update import MetadataUpdate
from daybook.core.machine import RequestIds
from daybook.core.placement.policy import BookieInfo
from daybook.core.writer.handle import ENDED, TO_BE_CLOSED, TRANSITIONS, HandleState
from daybook.core.writer.policy import WriterPolicy


class WriterState:
    """The fields that more than one part of a writer needs; `LedgerWriter` describes the arguments."""

    __slots__ = (
        "appends",
        "bookies",
        "completed",
        "completed_length",
        "deferred_sync",
        "error",
        "handle",
        "ids",
        "is_connected",
        "last_add_confirmed",
        "ledger_id",
        "length",
        "length_at_lac",
        "metadata",
        "now_ms",
        "out",
        "policy",
        "promised",
        "quorum",
        "seed",
        "unpublished_since_ms",
        "update",
        "version",
    )

    def __init__(
        self,
        metadata: LedgerMetadata,
        version: int,
        *,
        policy: WriterPolicy,
        bookies: Mapping[BookieId, BookieInfo],
        now_ms: int,
        deferred_sync: bool,
    ) -> None:
        check_attached(metadata)
        self.policy = policy
        self.deferred_sync = deferred_sync
        self.now_ms = now_ms
        self.out: list[WriterEffect] = []
        """The effects of the step that is under way."""

        # The ledger as metadata has it.
        self.metadata = metadata
        self.version = version
        self.ledger_id = metadata.ledger_id
        self.quorum = metadata.quorum
        self.seed = ledger_seed(metadata.ledger_id)
        """Where the checksum of each entry begins."""
        self.ids = RequestIds()
        self.update = MetadataUpdate(policy.metadata_retry_ms, self.ids)
        """The metadata change under way; while it is undecided nothing is acknowledged (rule 15)."""
        self.is_connected = True
        """Whether the metadata store answers (rule 46)."""
        self.bookies = bookies
        """The bookies that are registered."""

        # How far it is written. Lengths are payload bytes.
        self.appends: list[tuple[EntryId, EntryId, int]] = []
        """A heap of (last, first, token) of the appends without an answer."""
        self.length = 0
        """Of everything appended."""
        self.promised: EntryId = NO_ENTRY
        """The highest id that the user was given before the outcome."""
        self.completed: EntryId = NO_ENTRY
        """The last entry that an ack quorum has together with all before it."""
        self.completed_length = 0
        self.last_add_confirmed: EntryId = NO_ENTRY
        """The LAC: `completed`; with deferred sync behind it, because only a force confirms (rule 22)."""
        self.length_at_lac = 0
        self.unpublished_since_ms: int | None = None
        """Since when there is a LAC that no frame has carried."""

        # How it ends.
        self.handle = HandleState.OPEN
        self.error: DaybookError | None = None
        """Why the handle takes no more; None also after a close that its user asked for, until the ledger is closed."""

    @property
    def has_ended(self) -> bool:
        """Whether no append can succeed any more."""
        return self.handle in ENDED

    @property
    def is_closing(self) -> bool:
        """Whether the ledger is still to be closed by this handle."""
        return self.handle in TO_BE_CLOSED

    def set_handle(self, handle: HandleState) -> None:
        """The handle goes over to `handle`; see `handle.TRANSITIONS`."""
        assert (self.handle, handle) in TRANSITIONS, (
            f"ledger {self.ledger_id}: {self.handle} cannot become {handle}"
        )
        self.handle = handle

    def confirm(self, last: EntryId, length: int) -> None:
        """The LAC is `last` from now on, with `length` payload bytes up to it."""
        assert self.last_add_confirmed <= last <= self.completed
        assert self.length_at_lac <= length <= self.length
        self.last_add_confirmed = last
        self.length_at_lac = length
        if self.unpublished_since_ms is None:
            self.unpublished_since_ms = self.now_ms

    @property
    def is_lac_due(self) -> bool:
        """Whether no frame has carried the LAC for so long that it is published without entries (rule 48)."""
        due_ms = self.lac_due_ms
        return due_ms is not None and self.now_ms >= due_ms

    @property
    def lac_due_ms(self) -> int | None:
        """When the LAC is published without entries, unless a frame carries it first."""
        since_ms = self.unpublished_since_ms
        return None if since_ms is None else since_ms + self.policy.lac_publish_ms

    def lac_row(self) -> bytes:
        """The LAC as a row of a table (rule 48)."""
        return encode_lac_row(LacRow(self.ledger_id, self.last_add_confirmed, self.length_at_lac))

    def lac_frame(self) -> bytes:
        """A frame without entries: it carries the LAC, and asks a bookie whether it answers."""
        return lac_frame(LacRow(self.ledger_id, self.last_add_confirmed, self.length_at_lac))

    def propose(self, target: LedgerMetadata) -> None:
        """Try to change the metadata to `target`."""
        check_transition(self.metadata, target)
        self.update.propose(target, self.version, self.out)

    def complete_appends(self) -> None:
        """Answer the appends whose entries are all complete."""
        appends = self.appends
        while appends and appends[0][0] <= self.completed:
            last, first, token = heappop(appends)
            self.out.append(Complete(token, first, last))

    def fail_appends(self, error: DaybookError) -> None:
        """No append that has no answer can succeed any more."""
        self.out.extend(Fail(token, error) for _, _, token in sorted(self.appends))
        self.appends.clear()


def check_attached(metadata: LedgerMetadata) -> None:
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
