"""What a bookie decides over all its ledgers: messages, fences, attachments, limbo, deletion; and when objects go."""

from dataclasses import dataclass, field

import pytest

from daybook.core.bookie.decisions import (
    Decision,
    FenceDropped,
    FencePlaced,
    KeyLearned,
    LedgerDeleted,
    LimboCleared,
    LimboMarked,
)
from daybook.core.bookie.ledger import AttachVerdict, LacAnswer, LedgerRecord, Purpose
from daybook.core.bookie.listing import Listing
from daybook.core.bookie.machine import NO_LAC, BookieMachine, FenceDecided, proves_existence
from daybook.core.errors import Code
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, FLAG_RECOVERY, encode_frame, split_message
from daybook.core.ids import LedgerId
from tests.fixtures.memory_bookie import Decided, MemoryBookie
from tests.unit.core.bookie.test_bookie import KEY, LEDGER, OPEN, RECOVERER, WRITER, WRONG

Record = Decision | bytes


@dataclass
class Message(Decided):
    """What became of a message."""

    refused: dict[int, Code] = field(default_factory=dict)


class Bookie(MemoryBookie):
    """A bookie whose long polls a test names."""

    def __init__(self) -> None:
        super().__init__("b1")
        self.waiting: set[LedgerId] = set()
        self.machine = BookieMachine(self.storage, self.waiting.__contains__)

    def enter(
        self, ledger_id: LedgerId = LEDGER, purpose: Purpose = Purpose.WRITE, stream: int = WRITER
    ) -> None:
        assert self.attach(stream, ledger_id, KEY, purpose, OPEN) is Code.OK

    def send(self, *frames: bytes, stream: int = WRITER, refused: dict[int, Code] | None = None) -> Message:
        data = b"".join(frames)
        message = Message(refused=dict(refused or {}))
        self.machine.append(stream, data, split_message(data), message.refused, message)
        return message

    def fence(self, key: str = KEY, *, durable: bool = True) -> FenceDecided[Record] | AttachVerdict:
        held = self.machine.ledgers.hold(LEDGER)
        fence = self.machine.fence(held, key)
        if durable and isinstance(fence, FenceDecided):
            fence.is_durable()
        self.machine.ledgers.let_go(held)
        return fence


def frame(
    entry_id: int = 0, *, ledger_id: LedgerId = LEDGER, flags: int = 0, lac: int = -1, size: int = 3
) -> bytes:
    payload = bytes(size)
    crcs = entry_crcs(ledger_id, [entry_id], [payload])
    return encode_frame(
        ledger_id, entry_id, [payload], crcs, flags=flags, last_add_confirmed=lac, length_at_lac=3 * (lac + 1)
    )


# Frames


def test_the_first_frame_is_journalled_behind_the_key_and_the_next_one_alone() -> None:
    bookie = Bookie()
    bookie.enter()
    first, second = bookie.send(frame(0)), bookie.send(frame(1))
    assert first.records == [KeyLearned(LEDGER, KEY, introduced=True), frame(0)]
    assert (first.frames, first.early, first.refused) == ([0], [], {})
    assert second.records == [frame(1)]
    assert list(bookie.storage.entries[LEDGER]) == [0, 1], "what is accepted is there at once (rule 43)"


def test_a_message_is_decided_frame_by_frame() -> None:
    bookie = Bookie()
    bookie.enter()
    message = bookie.send(
        frame(0),
        frame(1),
        frame(2, ledger_id=9),
        frame(3, flags=FLAG_RECOVERY),
        frame(4, flags=FLAG_DEFERRED_SYNC),
        refused={1: Code.BAD_FRAME},
    )
    assert message.refused == {1: Code.BAD_FRAME, 2: Code.NOT_ATTACHED, 3: Code.NOT_ATTACHED}
    assert (message.frames, message.early) == ([0], [4])
    assert message.records[1:] == [frame(0), frame(4, flags=FLAG_DEFERRED_SYNC)]


def test_little_that_is_accepted_of_a_large_message_is_copied() -> None:
    """A view would keep the whole message in memory, and the write cache counts only its frames."""
    bookie = Bookie()
    bookie.enter()
    kinds: list[type] = []
    accept = bookie.storage.accept

    def noting(data: bytes, header: object) -> Record:
        kinds.append(type(data))
        return accept(data, header)  # type: ignore[arg-type]  # passed through

    bookie.storage.accept = noting  # type: ignore[method-assign,assignment]  # watched
    bookie.send(frame(0), frame(1, ledger_id=9, size=1000))
    bookie.send(frame(1))
    assert kinds == [bytes, memoryview]


def test_news_is_gathered_only_where_a_long_poll_waits() -> None:
    bookie = Bookie()
    bookie.enter()
    assert bookie.send(frame(0)).news == []
    bookie.waiting.add(LEDGER)
    ((ledger_id, lac),) = bookie.send(frame(1, lac=0)).news
    assert (ledger_id, lac.last_add_confirmed) == (LEDGER, 0)


def test_rule_30_without_space_only_recovery_writes_and_only_from_the_reserve() -> None:
    bookie = Bookie()
    bookie.enter()
    bookie.enter(purpose=Purpose.RECOVERY, stream=RECOVERER)
    machine, recovery = bookie.machine, frame(0, flags=FLAG_RECOVERY)
    machine.set_space(takes_all=False, keeps_reserve=True)
    assert bookie.send(frame(0)).refused == {0: Code.READ_ONLY}
    assert bookie.send(recovery, stream=RECOVERER).refused == {}
    bookie.storage.has_room = False
    assert bookie.send(recovery, stream=RECOVERER).refused == {0: Code.READ_ONLY}, "the cache is full"
    bookie.storage.has_room = True
    machine.set_space(takes_all=False, keeps_reserve=False)
    assert bookie.send(recovery, stream=RECOVERER).refused == {0: Code.READ_ONLY}
    machine.set_space(takes_all=True, keeps_reserve=True)
    assert bookie.send(frame(1)).refused == {}


# Fence and force


def test_rule_04_each_fence_that_must_wait_is_journalled_and_a_durable_one_is_not() -> None:
    bookie = Bookie()
    first = bookie.fence(durable=False)
    second = bookie.fence()
    third = bookie.fence()
    assert isinstance(first, FenceDecided)
    assert isinstance(second, FenceDecided)
    assert isinstance(third, FenceDecided)
    assert first.records == [KeyLearned(LEDGER, KEY, introduced=False), FencePlaced(LEDGER)]
    assert (second.records, third.records) == ([FencePlaced(LEDGER)], [])
    assert first.lac == LacAnswer(-1, 0, limbo=False, fenced=True)


def test_a_fence_that_is_not_durable_keeps_its_ledger_in_memory() -> None:
    bookie = Bookie()
    bookie.fence(durable=False)
    assert bookie.machine.ledgers.get(LEDGER) is not None
    bookie.fence()
    assert bookie.machine.ledgers.get(LEDGER) is None, "storage knows all of it"
    assert bookie.machine.ledgers.find(LEDGER) is not None


def test_rule_03_a_fence_with_a_key_that_metadata_disproves_is_dropped_before_the_first_frame() -> None:
    bookie = Bookie()
    bookie.fence(WRONG)
    assert bookie.fence() is AttachVerdict.NEEDS_METADATA
    bookie.enter()
    assert bookie.send(frame(0)).records == [
        FenceDropped(LEDGER),
        KeyLearned(LEDGER, KEY, introduced=True),
        frame(0),
    ]


def test_a_force_counts_where_an_add_would_and_where_the_ledger_is_unknown() -> None:
    bookie = Bookie()
    assert bookie.machine.force(LEDGER) is Code.OK
    bookie.fence()
    assert bookie.machine.force(LEDGER) is Code.FENCED


def test_the_lac_of_an_unknown_ledger_is_none() -> None:
    bookie = Bookie()
    assert bookie.machine.lac(LEDGER) == NO_LAC
    bookie.enter()
    bookie.send(frame(1, lac=0))
    assert bookie.machine.lac(LEDGER).last_add_confirmed == 0


# Passwords and attachments


def test_an_unknown_ledger_hides_nothing_and_a_guessed_key_is_judged_by_metadata() -> None:
    bookie = Bookie()
    machine = bookie.machine
    assert machine.authorize(LEDGER, WRONG) is AttachVerdict.OK
    bookie.fence(WRONG)
    assert machine.authorize(LEDGER, KEY) is AttachVerdict.NEEDS_METADATA
    held = machine.ledgers.hold(LEDGER)
    assert machine.authorize_with_metadata(held, KEY, OPEN) is AttachVerdict.OK
    machine.ledgers.let_go(held)


def test_a_ledger_stays_in_memory_until_its_last_stream_ends() -> None:
    bookie = Bookie()
    ledgers = bookie.machine.ledgers
    bookie.enter()
    bookie.enter()
    bookie.enter(purpose=Purpose.RECOVERY, stream=RECOVERER)
    assert ledgers.is_attached(WRITER)
    ledgers.detach(WRITER)
    assert ledgers.get(LEDGER) is not None
    ledgers.detach(RECOVERER)
    ledgers.detach(RECOVERER)
    assert ledgers.get(LEDGER) is None
    ledgers.release(LEDGER)


def test_a_deleted_ledger_is_released_by_the_streams_that_were_attached_to_it() -> None:
    bookie = Bookie()
    ledgers = bookie.machine.ledgers
    bookie.enter()
    bookie.enter(purpose=Purpose.RECOVERY, stream=RECOVERER)
    ledgers.attached(RECOVERER, ledgers.obtain(LEDGER + 1).ledger_id)
    bookie.machine.delete([LEDGER])
    assert not ledgers.is_attached(WRITER)
    assert ledgers.is_attached(RECOVERER), "to the other one"
    again = ledgers.hold(LEDGER)
    ledgers.let_go(again)
    assert ledgers.get(LEDGER) is None, "nobody else holds it"
    ledgers.detach(WRITER)
    ledgers.detach(RECOVERER)
    assert ledgers.get(LEDGER + 1) is None


def test_a_ledger_leaves_memory_once_its_clients_are_done_with_it() -> None:
    bookie = Bookie()
    ledgers = bookie.machine.ledgers
    bookie.enter()
    bookie.enter(purpose=Purpose.RECOVERY)
    ledgers.end_attachment(RECOVERER, LEDGER, Purpose.RECOVERY)
    assert bookie.send(frame(0)).refused == {}, "another stream is done with it"
    ledgers.end_attachment(WRITER, LEDGER, Purpose.WRITE)
    assert bookie.send(frame(1)).refused == {0: Code.NOT_ATTACHED}
    assert ledgers.is_attached(WRITER), "for a recovery"
    ledgers.end_attachment(WRITER, LEDGER, Purpose.RECOVERY)
    assert ledgers.get(LEDGER) is None
    assert not ledgers.is_attached(WRITER)
    ledgers.end_attachment(WRITER, LEDGER, Purpose.WRITE)
    bookie.enter()
    assert bookie.send(frame(1)).refused == {}


# Limbo


def test_rule_29_limbo_ends_with_the_nonce_that_stands_and_no_other() -> None:
    bookie = Bookie()
    assert bookie.machine.mark_limbo(LEDGER, "n1") == LimboMarked(LEDGER, "n1")
    assert bookie.machine.lac(LEDGER).limbo
    assert bookie.machine.clear_limbo(LEDGER, "n0") is None
    assert bookie.machine.clear_limbo(LEDGER, "n1") == LimboCleared(LEDGER, "n1")
    assert not bookie.machine.lac(LEDGER).limbo


# Deletion


def test_a_deletion_is_noticed_by_who_watches_the_ledger() -> None:
    """A removal of over-replicated entries that began before it would bring the deleted ledger back."""
    bookie = Bookie()
    (watch,) = bookie.machine.watches.begin([LEDGER])
    bookie.machine.delete([LEDGER])
    assert watch.changes == 1


def test_rule_20_a_deleted_ledger_lets_nobody_in() -> None:
    bookie = Bookie()
    bookie.enter()
    bookie.send(frame(0))
    assert bookie.machine.delete([LEDGER, 99]) == [LedgerDeleted(LEDGER), LedgerDeleted(99)]
    assert bookie.send(frame(1)).refused == {0: Code.NOT_ATTACHED}
    assert bookie.machine.ledgers.find(LEDGER) is None


@pytest.mark.parametrize(
    ("record", "is_proof"),
    [
        (LedgerRecord(LEDGER, KEY, fenced=True), False),
        (LedgerRecord(LEDGER, KEY, introduced=True), True),
        (LedgerRecord(LEDGER, limbo_nonce="n"), True),
        (LedgerRecord(LEDGER, last_add_confirmed=0), True),
    ],
)
def test_a_mere_fence_proves_no_ledger(record: LedgerRecord, is_proof: bool) -> None:
    assert proves_existence(record) is is_proof


def test_rule_03_the_fence_of_a_ledger_that_never_existed_is_dropped_unless_something_happened() -> None:
    bookie = Bookie()
    machine = bookie.machine
    bookie.fence()
    first, second = machine.watches.begin([LEDGER, LEDGER])
    bookie.fence()
    assert machine.drop_fence(first) is None, "somebody fenced it meanwhile"
    machine.watches.end([first, second])
    (third,) = machine.watches.begin([LEDGER])
    assert machine.drop_fence(third) == FenceDropped(LEDGER)
    assert machine.drop_fence(third) is None, "there is none any more"
    bookie.enter(purpose=Purpose.RECOVERY, stream=RECOVERER)
    assert third.changes == 1
    bookie.send(frame(0, flags=FLAG_RECOVERY), stream=RECOVERER)
    assert third.changes == 2
    machine.watches.end([third])
    (fourth,) = machine.watches.begin([LEDGER])
    assert machine.drop_fence(fourth) is None, "it has entries"
    assert machine.watches.of.keys() == {LEDGER}


def test_a_ledger_that_was_introduced_and_not_journalled_yet_keeps_what_it_has() -> None:
    bookie = Bookie()
    bookie.enter()
    assert bookie.machine.is_bare(LEDGER), "nothing of it is stored"
    (watch,) = bookie.machine.watches.begin([LEDGER])
    assert bookie.machine.drop_fence(watch) is None


def test_a_ledger_with_proof_is_not_bare() -> None:
    bookie = Bookie()
    bookie.machine.mark_limbo(LEDGER, "n1")
    assert not bookie.machine.is_bare(LEDGER)


def test_a_listing_says_what_proves_a_ledger_and_the_cache_has_the_last_word() -> None:
    bookie = Bookie()
    bookie.enter()
    bookie.send(frame())
    held = bookie.machine.ledgers.hold(8)
    bookie.machine.fence(held, KEY)
    listing = Listing(bookie.machine)
    for ledger_id in (3, 8, 9):
        listing.stored(LedgerRecord(ledger_id, fenced=True), has_entries=ledger_id == 9)
    assert listing.known() == ([3, 8, 9], frozenset({3, 8}), 9)
    listing.judge([LEDGER, 8, 9])
    assert listing.known() == (sorted([LEDGER, 3, 8]), frozenset({3, 8}), LEDGER), (
        "ledger 9 was deleted since"
    )
    assert Listing(bookie.machine).known().highest_proved == -1
