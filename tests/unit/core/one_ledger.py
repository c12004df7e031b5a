"""One ledger in memory: its bookies, and one record of metadata.

The explorer, the scripts and the tests of recovery, reading and repair use it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from daybook.core.bookie.ledger import BookieLedger
from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    SendFence,
    SendFrame,
    SendLacRead,
    SendRead,
)
from daybook.core.events import (
    CasAnswered,
    CasOutcome,
    MetadataRead,
)
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import POOL_KEY, LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from tests.fixtures.memory_bookie import RECOVERER, MemoryBookie, Request

LEDGER = 7
KEY = "00$key"


def kept_in(pool: str, metadata: LedgerMetadata) -> LedgerMetadata:
    """The ledger, which stays in `pool`; "": which lies anywhere."""
    return replace(metadata, custom_metadata={POOL_KEY: pool.encode()}) if pool else metadata


class LedgerBookie(MemoryBookie):
    """One bookie's share of the ledger."""

    def wipe(self) -> None:
        super().wipe()
        self.storage.entries[LEDGER], self.storage.damaged[LEDGER] = {}, set()

    def lose_disk(self, nonce: str | None) -> None:
        """Come back with an empty disk; in limbo under `nonce` if metadata named the bookie (rule 29)."""
        self.wipe()
        self.boot_id += "+"
        if nonce is not None:
            self.machine.mark_limbo(LEDGER, nonce)

    @property
    def entries(self) -> dict[EntryId, bytes]:
        """What it holds."""
        return self.storage.entries[LEDGER]

    @property
    def damaged(self) -> set[EntryId]:
        """What of that it cannot read."""
        return self.storage.damaged[LEDGER]

    @property
    def ledger(self) -> BookieLedger:
        """What the bookie knows of the ledger."""
        return self.machine.ledgers.find(LEDGER) or BookieLedger(LEDGER)

    @property
    def limbo(self) -> str | None:
        """The nonce of its limbo mark."""
        return self.ledger.limbo_nonce


B = TypeVar("B", bound=LedgerBookie)


class OneLedger(Generic[B]):
    """The bookies and the metadata of one ledger. `metadata` is None once it is deleted."""

    def __init__(self, metadata: LedgerMetadata, bookies: Mapping[BookieId, B]) -> None:
        self.metadata: LedgerMetadata | None = metadata
        self.version = 1
        self.bookies = dict(bookies)

    def perform(self, effect: Effect, stream: int = RECOVERER) -> list[Any]:
        """Carry `effect` out; the answer, if it is a request: an event of the machine that asked."""
        match effect:
            case SendFrame() | SendFence() | SendRead() | SendLacRead() | ReadLimbo() | ClearLimbo():
                return self.send(effect, stream)
            case ReadMetadata(number):
                return [MetadataRead(number, self.metadata, self.version)]
            case CasMetadata():
                return [self._cas(effect)]
        return []

    def send(self, request: Request, stream: int) -> list[Any]:
        """The bookie's answer."""
        key = KEY if self.metadata is None else self.metadata.password_hash
        return [self.bookies[request.bookie].serve(LEDGER, key, request, self.metadata, stream)]

    def change(self, metadata: LedgerMetadata | None) -> None:
        """Somebody changes the metadata."""
        self.metadata = metadata
        self.version += 1

    def _cas(self, cas: CasMetadata) -> CasAnswered:
        if self.metadata is None or cas.expected_version != self.version:
            return CasAnswered(cas.request_id, CasOutcome.CONFLICT)
        check_transition(self.metadata, cas.metadata)
        self.change(cas.metadata)
        return CasAnswered(cas.request_id, CasOutcome.DONE, self.version)
