"""What one reader knows of a ledger: its metadata and its LAC, neither of which goes back.

The reader's parts (lac.py, reader.py) each begin with what is known here and report what they find out, so that a new
ensemble or a close that one of them meets is known to the next one (rule 59).

A reader in the process of the ledger's writer asks nobody: the writer's metadata and LAC are the newest that exist for as long as
its handle is in use. Afterwards another client may have changed either, and the reader asks as any other does.
"""

from collections.abc import Sequence
from typing import Protocol

from daybook.core.effects import LacKnown, MetadataKnown, SendRead
from daybook.core.events import ReadAnswered
from daybook.core.format.entries import Entry
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.reader.batch import ask_one, take_answer
from daybook.core.reader.lac import LacPolicy, LacReader
from daybook.core.reader.reader import LedgerReader, Rank, ReadPolicy
from daybook.core.reader.suspects import Suspects
from daybook.core.reader.tail import LacTail, TailPolicy


class OwnWriter(Protocol):
    """The writer's handle in the process of a reader."""

    @property
    def metadata(self) -> LedgerMetadata:
        """The metadata as the writer knows it; another object whenever it changed."""

    @property
    def last_add_confirmed(self) -> EntryId:
        """The writer's LAC: with deferred sync the end of what a force confirmed, not of what was accepted (rule 22)."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done through the handle."""


class LedgerView:
    """Makes the machines of one reader, and learns from them and from `writer`, if the ledger's writer is in this process."""

    def __init__(
        self,
        metadata: LedgerMetadata,
        writer: OwnWriter | None = None,
        suspects: Suspects | None = None,
    ) -> None:
        """`suspects` are those of all readers of the client."""
        self.metadata = metadata
        """The newest that is known; final once the ledger is closed."""
        self.last_add_confirmed: EntryId = _confirmed_by(metadata)
        """The last entry that may be read, −1 when there is none."""
        self._writer = writer
        self._learned_of_writer = metadata
        self._suspects = suspects or Suspects()

    def follow_writer(self) -> bool:
        """Take over what the own writer knows; whether nobody can know more, so that nobody has to be asked (rule 59)."""
        writer = self._writer
        if writer is None:
            return self.metadata.is_closed
        if writer.metadata is not self._learned_of_writer:
            self._learned_of_writer = writer.metadata
            self._learn_metadata(writer.metadata)
        self.last_add_confirmed = max(self.last_add_confirmed, writer.last_add_confirmed)
        if writer.is_over:
            self._writer = None
        return not writer.is_over or self.metadata.is_closed

    def refresh(
        self,
        *,
        lenient: bool = False,
        is_new: bool = False,
        policy: LacPolicy | None = None,
        now_ms: int = 0,
    ) -> LacReader:
        """Asks for the LAC; `is_new`: the metadata was read just now."""
        return LacReader(self.metadata, lenient=lenient, is_new=is_new, policy=policy, now_ms=now_ms)

    def follow(
        self, *, rank: Rank | None = None, policy: TailPolicy | None = None, now_ms: int = 0
    ) -> LacTail:
        """Follows the LAC to the close."""
        return LacTail(
            self.metadata,
            last_add_confirmed=self.last_add_confirmed,
            rank=rank,
            policy=policy,
            now_ms=now_ms,
        )

    def read(
        self,
        first: EntryId,
        last: EntryId,
        *,
        unconfirmed: bool = False,
        rank: Rank | None = None,
        policy: ReadPolicy | None = None,
        now_ms: int = 0,
    ) -> LedgerReader:
        """Reads first … last."""
        return LedgerReader(
            self.metadata,
            first,
            last,
            last_add_confirmed=self.last_add_confirmed,
            unconfirmed=unconfirmed,
            rank=rank,
            suspects=self._suspects,
            policy=policy,
            now_ms=now_ms,
        )

    def ask_batch(
        self, first: EntryId, last: EntryId, bytes_max: int, *, rank: Rank, now_ms: int
    ) -> SendRead | None:
        """The request that may give a batch of first … last at once; None where only `read` can tell."""
        if not 0 <= first <= last <= self.last_add_confirmed:
            return None
        return ask_one(
            self.metadata, first, last, bytes_max, rank=rank, suspects=self._suspects, now_ms=now_ms
        )

    def take_batch(self, ask: SendRead, answer: ReadAnswered, now_ms: int) -> Sequence[Entry]:
        """The batch that `answer` gives; none where only `read` can tell."""
        return take_answer(ask, answer, self._suspects, now_ms)

    def learn(self, effect: LacKnown | MetadataKnown) -> None:
        """Take what a machine found out; parts that run side by side may report it late."""
        if isinstance(effect, MetadataKnown):
            self._learn_metadata(effect.metadata)
            return
        if effect.closed is not None:
            self._learn_metadata(effect.closed)
        self.last_add_confirmed = max(self.last_add_confirmed, effect.last_add_confirmed)

    def _learn_metadata(self, metadata: LedgerMetadata) -> None:
        known = self.metadata
        if metadata.is_closed:
            assert self.last_add_confirmed <= metadata.last_entry, (
                "a LAC beyond the close was shown (rule 12)"
            )
        elif known.is_closed or metadata.last_fragment.first_entry < known.last_fragment.first_entry:
            return
        self.metadata = metadata
        self.last_add_confirmed = max(self.last_add_confirmed, _confirmed_by(metadata))


def _confirmed_by(metadata: LedgerMetadata) -> EntryId:
    """What metadata alone confirms: all of a closed ledger, all before the last fragment of another."""
    return metadata.last_entry if metadata.is_closed else metadata.last_fragment.first_entry - 1
