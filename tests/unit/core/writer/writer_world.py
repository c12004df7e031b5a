"""A writer with bookies and a metadata store that answer only when a test says so, and a judge that watches every step.

The judge knows what the writer cannot: what each bookie has, and what metadata is really stored. After each step
it holds the writer to what must be true of any history:

- an entry goes to no bookie that stored metadata does not name in the last fragment (rule 16);
- an entry that the LAC reaches is with Qa bookies of its write set in the stored ensemble (rule 14, rule 15);
- the LAC never goes back, and does not move while a metadata change is undecided (rule 15);
- appends complete in order, each once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

from daybook.core.bookie.ledger import Purpose
from daybook.core.effects import (
    CasMetadata,
    Closed,
    Complete,
    Degraded,
    Fail,
    Forced,
    HandleEnded,
    PublishLac,
    Quarantined,
    ReadMetadata,
    SendForce,
    SendFrame,
    WriterEffect,
)
from daybook.core.errors import Code, DaybookError
from daybook.core.events import (
    AppendRequested,
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    CloseRequested,
    FlushRequested,
    ForceRequested,
    FrameAcked,
    FrameFailed,
    MetadataConnection,
    MetadataRead,
    MetadataUnreadable,
    Tick,
    WriterEvent,
)
from daybook.core.format.frame import FrameHeader, check_body, decode_header, frame_entry_ids
from daybook.core.format.lac_table import LacRow, decode_lac_row
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.ledger.transitions import check_transition
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import check_quorum, write_set
from daybook.core.writer.policy import WriterPolicy
from daybook.core.writer.writer import LedgerWriter
from tests.fixtures.memory_bookie import MemoryBookie, Request, failed
from tests.fixtures.sends import one_by_one, run_writer
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import LEDGER, kept_in
from tests.unit.core.small_cluster import WRITER

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that the writer sent."""

    bookie: BookieId
    send_id: int
    header: FrameHeader
    entries: tuple[EntryId, ...]
    frame: bytes


class WriterWorld:
    """See the module's text. `ensemble` and `spares` are names, separated by spaces."""

    def __init__(
        self,
        ensemble: str = "a b c",
        spares: str = "d e",
        *,
        quorum: tuple[int, int, int] | None = None,
        policy: WriterPolicy | None = None,
        explicit_ids: bool = False,
        deferred_sync: bool = False,
        pool: str = "",
    ) -> None:
        bookies = tuple(ensemble.split())
        self.quorum = check_quorum(*(quorum or (len(bookies), len(bookies), 2)))
        metadata = LedgerMetadata(LEDGER, self.quorum, (Fragment(0, 0, bookies),), writer_token="w1")
        self.stored: LedgerMetadata | None = kept_in(pool, metadata)
        self.version = 0
        self._ensembles = {0: bookies}
        """The ensemble of the last fragment at each version that was stored."""
        self.registry = {
            bookie: BookieInfo(bookie, boot_id=f"{bookie}-1") for bookie in (*bookies, *spares.split())
        }
        made = partial(
            LedgerWriter,
            self.stored,
            self.version,
            policy=policy or WriterPolicy(),
            placement=InOrder(),
            explicit_ids=explicit_ids,
            deferred_sync=deferred_sync,
        )
        self.writer = made(rng=Random(1), bookies=dict(self.registry))
        self._stepped = made(rng=Random(1), bookies=dict(self.registry))  # it takes the long way
        self.bookies = {name: MemoryBookie(name, info.boot_id) for name, info in self.registry.items()}
        self.lost_cas: list[CasMetadata] = []
        """Compare-and-sets without an answer that were not applied, so far."""
        self.now_ms = 0
        self.log: list[WriterEffect] = []
        """Every effect so far."""
        self.unanswered: list[Sent] = []
        self.all_sent: list[Sent] = []
        self.published: list[tuple[BookieId, LacRow]] = []
        """The rows of tables of LACs, in their order."""
        self.forces: dict[BookieId, int] = {}
        self.pending_cas: CasMetadata | None = None
        self.pending_read: int | None = None
        self._tokens = 0
        self._lac_before = -1
        self._answered_tokens: set[int] = set()
        self._completed_tokens: list[tuple[EntryId, int]] = []
        self._explicit = explicit_ids

    # What the user does.

    def step(self, event: WriterEvent) -> list[WriterEffect]:
        """Feed `event`, judge what comes out."""
        was_pending = self.pending_cas is not None or self.pending_read is not None
        effects = one_by_one(run_writer(self.writer, event, self.now_ms))
        assert repr(one_by_one(self._stepped.step(event))) == repr(effects)
        self.log += effects
        for effect in effects:
            self._note(effect)
        self._judge(event, was_pending=was_pending)
        return effects

    def append(self, *payloads: str, ids: Sequence[EntryId] | None = None) -> int:
        """Append; the token."""
        return self.append_bytes(*(payload.encode() for payload in payloads), ids=ids)

    def append_bytes(self, *payloads: bytes, ids: Sequence[EntryId] | None = None) -> int:
        """Append; the token."""
        self._tokens += 1
        self.step(AppendRequested(self._tokens, payloads, ids))
        return self._tokens

    def promise(self) -> None:
        self._stepped.promise_ids()
        self.writer.promise_ids()

    def write(self, *payloads: str) -> int:
        """Append and flush; the token."""
        token = self.append(*payloads)
        self.flush()
        return token

    def flush(self) -> list[WriterEffect]:
        return self.step(FlushRequested())

    def force(self) -> int:
        self._tokens += 1
        self.step(ForceRequested(self._tokens))
        return self._tokens

    def close(self) -> int:
        self._tokens += 1
        self.step(CloseRequested(self._tokens))
        return self._tokens

    def tick(self, ms: int) -> list[WriterEffect]:
        """Let `ms` pass."""
        self.now_ms += ms
        next_ms, is_due = self.writer.next_tick_ms, self.writer.pass_time(self.now_ms)
        assert not is_due or (next_ms is not None and next_ms <= self.now_ms), "a client would be too late"
        self._stepped.pass_time(self.now_ms)
        effects = self.step(Tick(self.now_ms))
        assert is_due or not effects, "a client would have left this tick out"
        return effects

    # What bookies do.

    def ack(self, names: str, first: EntryId | None = None) -> list[WriterEffect]:
        """The bookies of `names` answer OK: to everything they owe, or to the frame that begins at `first`."""
        effects: list[WriterEffect] = []
        for bookie in names.split():
            for sent in self.owed(bookie, first):
                effects += self.ack_sent(sent)
        return effects

    def owed(self, bookie: BookieId, first: EntryId | None = None) -> list[Sent]:
        """What `bookie` has not answered."""
        return [
            sent
            for sent in self.unanswered
            if sent.bookie == bookie and (first is None or (sent.entries and sent.entries[0] == first))
        ]

    def ack_sent(self, sent: Sent) -> list[WriterEffect]:
        """The frame reaches its bookie, which takes it."""
        if sent in self.unanswered:
            self.unanswered.remove(sent)
        acked = self._serve(SendFrame(sent.bookie, sent.send_id, sent.frame))
        assert isinstance(acked, FrameAcked)
        return self.step(acked)

    def _serve(self, request: Request) -> Any:
        bookie = self.bookies[request.bookie]
        return bookie.serve(LEDGER, self.writer.metadata.password_hash, request, self.stored, WRITER)

    def fail(self, names: str, code: Code, first: EntryId | None = None) -> list[WriterEffect]:
        """The bookies of `names` answer the oldest frame they owe, or the one that begins at `first`, with `code`."""
        effects: list[WriterEffect] = []
        for bookie in names.split():
            sent = self.owed(bookie, first)[0]
            self.unanswered.remove(sent)
            effects += self.step(FrameFailed(bookie, sent.send_id, code))
        return effects

    def down(self, names: str) -> list[WriterEffect]:
        """The channels to the bookies of `names` are gone."""
        return [effect for bookie in names.split() for effect in self.step(BookieFailed(bookie))]

    def register(self, names: str) -> list[WriterEffect]:
        """These bookies are registered now; one that was not gets a new boot id."""
        registry = {}
        for bookie in names.split():
            known = self.registry.get(bookie)
            registry[bookie] = known or BookieInfo(bookie, boot_id=f"{bookie}-{len(self.log)}")
        self.registry = registry
        for bookie, info in registry.items():
            self.bookies.setdefault(bookie, MemoryBookie(bookie)).boot_id = info.boot_id
        return self.step(BookiesChanged(dict(registry)))

    def restart(self, bookie: BookieId) -> list[WriterEffect]:
        """`bookie` runs again, with a new boot id."""
        boot_id = f"{bookie}-restarted-{len(self.log)}"
        self.registry[bookie] = replace(self.registry[bookie], boot_id=boot_id)
        self.bookies[bookie].boot_id = boot_id
        return self.step(BookiesChanged(dict(self.registry)))

    def answer_force(self, names: str, code: Code = Code.OK) -> list[WriterEffect]:
        """The bookies of `names` answer the force."""
        effects: list[WriterEffect] = []
        for bookie in names.split():
            force = SendForce(bookie, self.forces.pop(bookie))
            effects += self.step(self._serve(force) if code is Code.OK else failed(force, code))
        return effects

    # What the metadata store does.

    def cas(self, outcome: CasOutcome | None = None, *, applied: bool | None = None) -> list[WriterEffect]:
        """The store takes the compare-and-set that is out; `outcome` UNKNOWN: its answer is lost, `applied` or not."""
        cas = self.pending_cas
        assert cas is not None, "the writer asked for no change"
        fits = self.stored is not None and cas.expected_version == self.version
        self.pending_cas = None
        if outcome is CasOutcome.UNKNOWN:
            if applied and fits:
                self.store(cas.metadata)
            else:
                self.lost_cas.append(cas)
            return self.step(CasAnswered(cas.request_id, CasOutcome.UNKNOWN))
        if not fits:
            return self.step(CasAnswered(cas.request_id, CasOutcome.CONFLICT))
        self.store(cas.metadata)
        return self.step(CasAnswered(cas.request_id, CasOutcome.DONE, self.version))

    def lost_cas_arrives(self) -> None:
        """A compare-and-set whose answer was lost long ago reaches the store now."""
        cas = self.lost_cas.pop(0)
        if cas.expected_version == self.version:
            self.store(cas.metadata)

    def repair(self, index: int, old: BookieId, new: BookieId) -> None:
        """A repair copies what `old` owes of fragment `index` to `new`, and names it so."""
        metadata = self.current
        fragment, end = metadata.fragments[index], metadata.fragment_end(index)
        assert end is not None, "the last fragment of an open ledger is never repaired (rule 31)"
        position = fragment.bookies.index(old)
        copied = range(fragment.first_entry, end + 1)
        held = {entry: data for name in fragment.bookies for entry, data in self.entries(name).items()}
        owed = {entry: held[entry] for entry in copied if position in write_set(self.quorum, entry)}
        self.entries(new).update(owed)
        self.store(metadata.with_replica(fragment.first_entry, old, new))

    def store(self, metadata: LedgerMetadata | None) -> None:
        """Metadata changes: by the writer's CAS, or by someone else."""
        if metadata is not None and self.stored is not None:
            check_transition(self.stored, metadata)
        self.stored = metadata
        self.version += 1
        if metadata is not None:
            self._ensembles[self.version] = metadata.last_fragment.bookies

    def read(self, *, fails: bool = False) -> list[WriterEffect]:
        """The store answers the read that is out."""
        request_id = self.pending_read
        assert request_id is not None, "the writer asked for no read"
        self.pending_read = None
        if fails:
            return self.step(MetadataUnreadable(request_id))
        return self.step(MetadataRead(request_id, self.stored, self.version))

    def metadata_away(self) -> list[WriterEffect]:
        return self.step(MetadataConnection(connected=False))

    def metadata_back(self) -> list[WriterEffect]:
        return self.step(MetadataConnection(connected=True))

    # What came of it.

    def of_kind(self, kind: type[E]) -> list[E]:
        """Every effect of `kind` so far."""
        return [effect for effect in self.log if isinstance(effect, kind)]

    @property
    def current(self) -> LedgerMetadata:
        """The stored metadata; it must exist."""
        assert self.stored is not None
        return self.stored

    @property
    def completed(self) -> list[int]:
        """The tokens of completed appends, in order."""
        return [effect.token for effect in self.of_kind(Complete)]

    @property
    def errors(self) -> dict[int, DaybookError]:
        """Why requests failed, by token."""
        return {effect.token: effect.error for effect in self.of_kind(Fail)}

    @property
    def end(self) -> DaybookError | None:
        """Why the handle ended."""
        ends = self.of_kind(HandleEnded)
        assert len(ends) <= 1, "a handle ends once"
        return ends[0].error if ends else None

    @property
    def lac(self) -> EntryId:
        return self.writer.last_add_confirmed

    @property
    def degraded(self) -> tuple[BookieId, ...]:
        """Whom the writer goes on without, as last reported."""
        reports = self.of_kind(Degraded)
        return reports[-1].missing if reports else ()

    @property
    def quarantined(self) -> list[BookieId]:
        return [effect.bookie for effect in self.of_kind(Quarantined)]

    def entries(self, bookie: BookieId) -> dict[EntryId, bytes]:
        """What `bookie` holds."""
        return self.bookies[bookie].storage.entries.setdefault(LEDGER, {})

    def sent_to(self, bookie: BookieId) -> list[tuple[EntryId, ...]]:
        """The entries of every frame that `bookie` was sent."""
        return [sent.entries for sent in self.all_sent if sent.bookie == bookie]

    # The judge.

    def _note(self, effect: WriterEffect) -> None:
        match effect:
            case SendFrame(bookie, send_id, frame):
                header = decode_header(frame)
                check_body(frame, header)
                sent = Sent(bookie, send_id, header, tuple(frame_entry_ids(frame, header)), frame)
                assert send_id not in {other.send_id for other in self.all_sent}
                self.unanswered.append(sent)
                self.all_sent.append(sent)
                key = self.writer.metadata.password_hash
                self.bookies[bookie].attach(WRITER, LEDGER, key, Purpose.WRITE, self.stored)
                if self.stored is not None and sent.entries:
                    assert bookie in self._may_be_sent_to(), f"{bookie} is not named by metadata"
                assert header.last_add_confirmed <= self.lac
            case PublishLac(bookies, row):
                published = decode_lac_row(row)
                assert published.ledger_id == LEDGER
                assert published.last_add_confirmed <= self.lac
                assert set(bookies) <= set(self.writer.metadata.last_fragment.bookies)
                self.published += [(bookie, published) for bookie in bookies]
            case CasMetadata():
                assert self.pending_cas is None
                assert self.pending_read is None
                check_transition(self.writer.metadata, effect.metadata)
                self.pending_cas = effect
            case ReadMetadata(request_id):
                assert self.pending_cas is None
                assert self.pending_read is None
                self.pending_read = request_id
            case SendForce(bookie, request_id):
                self.forces[bookie] = request_id
            case Complete(token, _, last):
                self._answer(token)
                assert self._explicit or not self._completed_tokens or self._completed_tokens[-1][0] < last
                self._completed_tokens.append((last, token))
            case Fail(token) | Forced(token):
                self._answer(token)
            case Closed(token, metadata):
                if token is not None:
                    self._answer(token)
                assert metadata == self.stored
            case _:
                pass

    def _may_be_sent_to(self) -> frozenset[BookieId]:
        """Who stored metadata names; while a change is undecided also who it named at the version that the writer knows.

        A change whose answer was lost may land at any time, and what is sent meanwhile is not acknowledged (rule 15).
        """
        named = frozenset(self.current.last_fragment.bookies)
        if self.pending_cas is None and self.pending_read is None:
            return named
        return named | frozenset(self._ensembles[self.writer.version])

    def _answer(self, token: int) -> None:
        assert token not in self._answered_tokens, f"token {token} is answered twice"
        self._answered_tokens.add(token)

    def _judge(self, event: WriterEvent, *, was_pending: bool) -> None:
        lac, before = self.lac, self._lac_before
        self._lac_before = lac
        assert lac >= before, "the LAC went back"
        if lac == before:
            return
        if was_pending:
            assert isinstance(event, CasAnswered | MetadataRead), "the LAC moved while a change was undecided"
        self.check_copies(before + 1)

    def check_copies(self, first: EntryId = 0) -> None:
        """Every entry from `first` up to the LAC is with Qa of the bookies that stored metadata names for it."""
        for entry in range(first, self.lac + 1):
            ensemble = self.current.fragment_of(entry).bookies
            placed = {ensemble[position] for position in write_set(self.quorum, entry)}
            have = {name for name in placed if entry in self.entries(name)}
            assert len(have) >= self.quorum.ack_quorum, (
                f"entry {entry} is confirmed, but only with {sorted(have)}"
            )
