"""A cluster in memory around the core's machines, for tests that decide every answer themselves.

Bookies are real `BookieLedger`s over a dict of entries; the metadata store is a value and a version. Effects are
carried out at once, in order, unless the bookie is `down` (every request fails), `silent` (nothing ever answers) or the
test takes the effect out of the queue itself.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.effects import CasMetadata, Effect, ReadMetadata, SendFence, SendFrame, SendRead
from daybook.core.errors import Code
from daybook.core.events import (
    CasAnswered,
    CasOutcome,
    Event,
    FenceAnswered,
    FrameAcked,
    FrameFailed,
    MetadataRead,
    ReadAnswered,
    RecoveryEvent,
)
from daybook.core.format.frame import (
    Entry,
    decode_entries,
    decode_header,
    encode_frame,
    entry_crcs,
)
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from daybook.core.quorum import check_quorum, stripe_of

LEDGER = 7
KEY = "00$key"
WRITER = 1
RECOVERER = 2


@dataclass
class Bookie:
    """One bookie's share of the ledger."""

    name: BookieId
    entries: dict[EntryId, bytes] = field(default_factory=dict)
    damaged: set[EntryId] = field(default_factory=set)
    frames: list[tuple[bytes, Code]] = field(default_factory=list)
    """Every frame that arrived, with the answer."""

    def __post_init__(self) -> None:
        self.ledger = BookieLedger(LEDGER)

    def add(self, frame: bytes, metadata: LedgerMetadata | None, stream: int) -> Code:
        header = decode_header(frame)
        purpose = Purpose.RECOVERY if header.is_recovery else Purpose.WRITE
        verdict = self.ledger.attach(stream, KEY, purpose)
        if verdict is AttachVerdict.NEEDS_METADATA:
            verdict = self.ledger.attach_with_metadata(stream, KEY, purpose, metadata)
        code = verdict.code
        if code is Code.OK:
            code = self.ledger.accept(stream, header)
        if code is Code.OK:
            entries, bad = decode_entries(frame, header)
            assert not bad
            self.entries.update(entries)
        self.frames.append((frame, code))
        return code

    def fence(self) -> FenceAnswered:
        verdict = self.ledger.fence(KEY)
        if verdict.wait:
            self.ledger.fence_is_durable(verdict.number)
        lac = self.ledger.last_add_confirmed()
        return FenceAnswered(
            self.name,
            0,
            verdict.verdict.code,
            lac.last_add_confirmed,
            lac.length_at_lac,
            lac.limbo,
        )

    def read(self, first: EntryId, last: EntryId, bytes_max: int, *, fence: bool) -> ReadAnswered:
        if fence:
            self.fence()
        tried: list[EntryId] = []
        size_bytes = 0
        in_range = sorted(i for i in self.entries if first <= i <= last)
        for entry_id in in_range:
            if tried and size_bytes + len(self.entries[entry_id]) > bytes_max:
                break
            tried.append(entry_id)
            size_bytes += len(self.entries[entry_id])
        through = last if len(tried) == len(in_range) else tried[-1]
        lac = self.ledger.last_add_confirmed()
        return ReadAnswered(
            self.name,
            0,
            Code.OK,
            tuple(Entry(i, self.entries[i]) for i in tried if i not in self.damaged),
            tuple(i for i in tried if i in self.damaged),
            through,
            lac.limbo,
            lac.last_add_confirmed,
            lac.length_at_lac,
        )


class Cluster:
    """Bookies b1 … bN, of which the first E hold the ledger."""

    def __init__(
        self,
        ensemble: int = 3,
        write: int = 3,
        ack: int = 2,
        *,
        spares: int = 0,
        start: tuple[EntryId, int] | None = None,
    ) -> None:
        names = [f"b{i + 1}" for i in range(ensemble + spares)]
        self.bookies = {name: Bookie(name) for name in names}
        self.quorum = check_quorum(ensemble, write, ack)
        fragments = [Fragment(0, 0, tuple(names[:ensemble]))]
        if start is not None:
            fragments.append(Fragment(start[0], start[1], tuple(names[:ensemble])))
        self.metadata: LedgerMetadata | None = LedgerMetadata(
            LEDGER, self.quorum, tuple(fragments), password_hash=KEY, writer_token="w"
        )
        self.version = 1
        for name in self.meta.last_fragment.bookies:
            self.bookies[name].ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, self.meta)
        self.down: set[BookieId] = set()
        self.silent: set[BookieId] = set()
        self.held: list[Effect] = []
        """What silent bookies were sent."""

    @property
    def meta(self) -> LedgerMetadata:
        assert self.metadata is not None
        return self.metadata

    def write(
        self,
        entry_id: EntryId,
        on: Iterable[BookieId],
        *,
        lac: EntryId | None = None,
        data: bytes | None = None,
        length_at_lac: int | None = None,
    ) -> dict[BookieId, Code]:
        """The writer's add of one entry (3 bytes), on some bookies only; the answers."""
        payload = entry(entry_id) if data is None else data
        known = entry_id - 1 if lac is None else lac
        frame = encode_frame(
            LEDGER,
            entry_id,
            [payload],
            entry_crcs(LEDGER, [entry_id], [payload]),
            last_add_confirmed=known,
            length_at_lac=ENTRY_BYTES * (known + 1) if length_at_lac is None else length_at_lac,
        )
        return {name: self.bookies[name].add(frame, self.metadata, WRITER) for name in on}

    def write_everywhere(self, first: EntryId, last: EntryId, *, lac: EntryId | None = None) -> None:
        """Entries on every bookie of their write set."""
        for entry_id in range(first, last + 1):
            self.write(entry_id, self.holders(entry_id), lac=lac)

    def holders(self, entry_id: EntryId) -> list[BookieId]:
        ensemble = self.meta.last_fragment.bookies
        return [name for p, name in enumerate(ensemble) if stripe_of(self.quorum, p).holds(entry_id)]

    def wipe(self, name: BookieId, nonce: str = "nonce") -> None:
        """The bookie loses its disk, and comes back with the ledger in limbo."""
        self.bookies[name] = Bookie(name)
        self.bookies[name].ledger.enter_limbo(nonce)

    # Carrying out effects

    def perform(self, effect: Effect, stream: int = RECOVERER) -> list[RecoveryEvent]:
        """Carry `effect` out; the answer, if there is one."""
        if isinstance(effect, (SendFence, SendRead, SendFrame)):
            return self._send(effect, stream)
        if isinstance(effect, ReadMetadata):
            return [MetadataRead(effect.request_id, self.metadata, self.version)]
        if isinstance(effect, CasMetadata):
            return [self._cas(effect)]
        return []

    def _send(self, effect: SendFence | SendRead | SendFrame, stream: int) -> list[RecoveryEvent]:
        name = effect.bookie
        if name in self.silent:
            self.held.append(effect)
            return []
        if name in self.down:
            return [failed(effect, Code.CONNECTION_LOST)]
        bookie = self.bookies[name]
        if isinstance(effect, SendFrame):
            code = bookie.add(effect.frame, self.metadata, stream)
            if code is Code.OK:
                return [FrameAcked(name, effect.send_id)]
            return [FrameFailed(name, effect.send_id, code)]
        if isinstance(effect, SendFence):
            return [readdressed(bookie.fence(), effect.request_id)]
        answer = bookie.read(effect.first, effect.last, effect.bytes_max, fence=effect.fence)
        return [readdressed(answer, effect.request_id)]

    def _cas(self, effect: CasMetadata) -> CasAnswered:
        if self.metadata is None or effect.expected_version != self.version:
            return CasAnswered(effect.request_id, CasOutcome.CONFLICT)
        check_transition(self.metadata, effect.metadata)
        self.metadata = effect.metadata
        self.version += 1
        return CasAnswered(effect.request_id, CasOutcome.DONE, self.version)


def readdressed(answer: FenceAnswered | ReadAnswered, request_id: int) -> FenceAnswered | ReadAnswered:
    """The answer for the request `request_id`."""
    return replace(answer, request_id=request_id)


def failed(effect: SendFence | SendRead | SendFrame, code: Code) -> RecoveryEvent:
    """The answer that says nothing."""
    if isinstance(effect, SendFrame):
        return FrameFailed(effect.bookie, effect.send_id, code)
    if isinstance(effect, SendFence):
        return FenceAnswered(effect.bookie, effect.request_id, code)
    return ReadAnswered(effect.bookie, effect.request_id, code)


ENTRY_BYTES = 3


def entry(entry_id: EntryId) -> bytes:
    """The payload that tests give to `entry_id`."""
    return f"{entry_id:03}".encode()


class Run:
    """A machine and the effects it waits for; `finish` carries out everything that can be."""

    def __init__(
        self,
        cluster: Cluster,
        step: Callable[[Any], list[Effect]],
        effects: Sequence[Effect],
        stream: int = RECOVERER,
    ) -> None:
        self.cluster = cluster
        self.step = step
        self.queue: deque[Effect] = deque(effects)
        self.results: list[Effect] = []
        self.stream = stream

    def feed(self, event: Event) -> None:
        self.queue.extend(self.step(event))

    def one(self) -> Effect:
        """Carry out the next effect."""
        effect = self.queue.popleft()
        if isinstance(effect, (SendFence, SendRead, SendFrame, ReadMetadata, CasMetadata)):
            for event in self.cluster.perform(effect, self.stream):
                self.feed(event)
        else:
            self.results.append(effect)
        return effect

    def until(self, kind: type[Effect]) -> None:
        """Carry out effects until one of `kind` is next."""
        while not isinstance(self.queue[0], kind):
            self.one()

    def finish(self) -> list[Effect]:
        while self.queue:
            self.one()
        return self.results

    def up_to_the_cas(self) -> CasMetadata:
        """Carry out everything but compare-and-sets; the one that is left over."""
        held: list[CasMetadata] = []
        while self.queue:
            effect = self.queue[0]
            if isinstance(effect, CasMetadata):
                held.append(effect)
                self.queue.popleft()
            else:
                self.one()
        self.queue.extend(held)
        (cas,) = held
        return cas
