"""One ledger in memory: bookies that are the core's own `BookieLedger` over a dict of entries, and one record of metadata.

The explorer, the scripts and the tests of recovery, reading and repair use the same bookie. What it stores is durable at
once, and every request is answered at once; who wants failures, silence or another order puts them in front of it. A
bookie keeps nothing but what decides its answers, so that the explorer can tell its states apart.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    SendFence,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code
from daybook.core.events import (
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    FrameAcked,
    FrameFailed,
    LimboCleared,
    LimboRead,
    MetadataRead,
    ReadAnswered,
)
from daybook.core.format.frame import Entry, decode_entries, decode_header
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.ledger.transitions import check_transition

LEDGER = 7
KEY = "00$key"
RECOVERER = 2
"""The stream of whoever is not the writer."""

Request: TypeAlias = SendFrame | SendFence | SendRead | ReadLimbo | ClearLimbo


class MemoryBookie:
    """One bookie's share of the ledger."""

    def __init__(self, name: BookieId, key: str = KEY) -> None:
        self.name = name
        self.boot = ""
        self.key = key
        self.entries: dict[EntryId, bytes] = {}
        self.damaged: set[EntryId] = set()
        self.ledger = BookieLedger(LEDGER)

    def serve(self, stream: int, request: Request, metadata: LedgerMetadata | None) -> Event:
        """Carry a request out; the answer."""
        match request:
            case SendFrame(_, number, frame):
                code = self.add(stream, frame, metadata)
                if code is Code.OK:
                    return FrameAcked(self.name, number, self.boot)
                return FrameFailed(self.name, number, code)
            case SendFence(_, number):
                code, lac = self._fence(), self.ledger.last_add_confirmed()
                return FenceAnswered(
                    self.name, number, code, lac.last_add_confirmed, lac.length_at_lac, lac.limbo
                )
            case SendRead():
                return self._read(request)
            case ReadLimbo(_, number):
                return LimboRead(self.name, number, Code.OK, self.ledger.limbo_nonce, self.boot)
            case ClearLimbo(_, number, nonce):
                return LimboCleared(self.name, number, Code.OK, self.ledger.clear_limbo(nonce))

    def add(self, stream: int, frame: bytes, metadata: LedgerMetadata | None) -> Code:
        """Attach the stream if need be, and take the frame or refuse it."""
        header = decode_header(frame)
        purpose = Purpose.RECOVERY if header.is_recovery else Purpose.WRITE
        verdict = self.ledger.attach(stream, self.key, purpose)
        if verdict is AttachVerdict.NEEDS_METADATA:
            verdict = self.ledger.attach_with_metadata(stream, self.key, purpose, metadata)
        code = verdict.code
        if code is Code.OK:
            code = self.ledger.accept(stream, header)
        if code is Code.OK:
            entries, bad = decode_entries(frame, header)
            assert not bad
            for entry_id, data in entries:
                known = self.entries.setdefault(entry_id, data)
                assert known == data, f"{self.name} was given two different entries {entry_id}"
        return code

    def _fence(self) -> Code:
        verdict = self.ledger.fence(self.key)
        if verdict.wait:
            self.ledger.fence_is_durable(verdict.number)
        return verdict.verdict.code

    def _read(self, request: SendRead) -> ReadAnswered:
        if request.fence:
            self._fence()
        tried: list[EntryId] = []
        size_bytes = 0
        through = request.last
        for entry_id in sorted(i for i in self.entries if request.first <= i <= request.last):
            if tried and size_bytes + len(self.entries[entry_id]) > request.bytes_max:
                through = tried[-1]
                break
            tried.append(entry_id)
            size_bytes += len(self.entries[entry_id])
        lac = self.ledger.last_add_confirmed()
        return ReadAnswered(
            self.name,
            request.request_id,
            Code.OK,
            tuple(Entry(i, self.entries[i]) for i in tried if i not in self.damaged),
            tuple(i for i in tried if i in self.damaged),
            through,
            lac.limbo,
            lac.last_add_confirmed,
            lac.length_at_lac,
        )


B = TypeVar("B", bound=MemoryBookie)


class OneLedger(Generic[B]):
    """The bookies and the metadata of one ledger. `metadata` is None once it is deleted."""

    def __init__(self, metadata: LedgerMetadata, bookies: Mapping[BookieId, B]) -> None:
        self.metadata: LedgerMetadata | None = metadata
        self.version = 1
        self.bookies = dict(bookies)

    def perform(self, effect: Effect, stream: int = RECOVERER) -> list[Any]:
        """Carry `effect` out; the answer, if it is a request: an event of the machine that asked."""
        match effect:
            case SendFrame() | SendFence() | SendRead() | ReadLimbo() | ClearLimbo():
                return self.send(effect, stream)
            case ReadMetadata(number):
                return [MetadataRead(number, self.metadata, self.version)]
            case CasMetadata():
                return [self._cas(effect)]
        return []

    def send(self, request: Request, stream: int) -> list[Any]:
        """The bookie's answer."""
        return [self.bookies[request.bookie].serve(stream, request, self.metadata)]

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


def failed(request: Request, code: Code) -> Any:
    """The answer that says nothing: an event of the machine that asked."""
    match request:
        case SendFrame(name, number):
            return FrameFailed(name, number, code)
        case SendFence(name, number):
            return FenceAnswered(name, number, code)
        case SendRead(name, number):
            return ReadAnswered(name, number, code)
        case ReadLimbo(name, number):
            return LimboRead(name, number, code)
        case ClearLimbo(name, number):
            return LimboCleared(name, number, code)
