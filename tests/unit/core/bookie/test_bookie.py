"""What one bookie takes, refuses and vouches for."""

from dataclasses import replace

import pytest

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, LedgerRecord, Purpose
from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_DEFERRED_SYNC, FLAG_RECOVERY, FrameHeader
from daybook.core.ids import EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import DENSE, check_quorum

LEDGER = 7
KEY = "00$right"
WRONG = "00$wrong"
WRITER, RECOVERER = 1, 2
OPEN = LedgerMetadata(
    LEDGER, check_quorum(3, 3, 2), (Fragment(0, 0, ("b1", "b2", "b3")),), password_hash=KEY, writer_token="w"
)


def frame(first: EntryId = 0, *, flags: int = 0, lac: EntryId = -1, length: int = 0) -> FrameHeader:
    return FrameHeader(flags, DENSE, LEDGER, first, 1, 1, lac, length, 0)


def record_of(ledger: BookieLedger) -> LedgerRecord:
    """What storage knows of the ledger once everything is journalled."""
    return LedgerRecord(
        ledger.ledger_id,
        ledger.key,
        ledger.introduced,
        ledger.fenced,
        ledger.limbo_nonce,
        ledger.lac,
        ledger.length_at_lac,
    )


def ledger_with_writer() -> BookieLedger:
    """A ledger that was introduced, with its writer attached."""
    ledger = BookieLedger(LEDGER)
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    return ledger


def fence(ledger: BookieLedger) -> None:
    verdict = ledger.fence(KEY)
    assert verdict.verdict is AttachVerdict.OK
    if verdict.wait:
        ledger.fence_is_durable(verdict.number)


def add(ledger: BookieLedger, entry_id: EntryId, *, stream: int = WRITER, flags: int = 0) -> Code:
    return ledger.accept(stream, frame(entry_id, flags=flags))


# The fence


def test_rule_03_a_fence_creates_the_ledger_where_it_was_never_seen() -> None:
    """An empty bookie of the ensemble must refuse the writer that reaches it after the fence."""
    ledger = BookieLedger(LEDGER)
    fence(ledger)
    restarted = BookieLedger.restored(record_of(ledger))
    assert restarted.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(restarted, 0) is Code.FENCED
    assert not restarted.last_add_confirmed().limbo  # a healthy bookie vouches for what it never had


def test_rule_04_every_fencer_waits_until_the_fence_is_durable() -> None:
    ledger = ledger_with_writer()
    first, second = ledger.fence(KEY), ledger.fence(KEY)
    assert (first.wait, second.wait) == (True, True)
    assert add(ledger, 0) is Code.FENCED  # in memory it holds at once
    ledger.fence_is_durable(first.number)
    third = ledger.fence(KEY)
    assert not third.wait


def test_rule_04_a_fence_that_is_durable_holds_after_a_restart() -> None:
    ledger = ledger_with_writer()
    fence(ledger)
    restarted = BookieLedger.restored(record_of(ledger))
    assert restarted.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.OK
    assert add(restarted, 0) is Code.FENCED
    assert not restarted.fence(KEY).wait


def test_rule_10_only_recovery_frames_pass_the_fence() -> None:
    ledger = ledger_with_writer()
    fence(ledger)
    assert ledger.attach(RECOVERER, KEY, Purpose.RECOVERY) is AttachVerdict.OK
    assert add(ledger, 0, stream=RECOVERER, flags=FLAG_RECOVERY) is Code.OK
    assert add(ledger, 1) is Code.FENCED


def test_a_stream_has_only_the_purpose_that_it_attached_for() -> None:
    ledger = ledger_with_writer()
    assert add(ledger, 0, flags=FLAG_RECOVERY) is Code.NOT_ATTACHED
    assert ledger.attach(RECOVERER, KEY, Purpose.RECOVERY) is AttachVerdict.OK
    assert add(ledger, 0, stream=RECOVERER) is Code.NOT_ATTACHED


def test_rule_43_an_add_comes_before_the_fence_or_is_refused() -> None:
    """Nothing is journalled yet; a fence and an add that overtake each other there have an order here."""
    ledger = ledger_with_writer()
    assert [add(ledger, entry_id) for entry_id in range(3)] == [Code.OK] * 3
    assert ledger.fence(KEY).wait
    assert add(ledger, 3) is Code.FENCED


# Rule 20: the first normal frame


def test_rule_20_a_ledger_that_is_not_known_needs_metadata_before_the_first_normal_frame() -> None:
    ledger = BookieLedger(LEDGER)
    assert ledger.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.NEEDS_METADATA
    assert add(ledger, 0) is Code.NOT_ATTACHED
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(ledger, 0) is Code.OK
    assert ledger.attach(WRITER + 9, KEY, Purpose.WRITE) is AttachVerdict.OK  # known from now on


@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [
        (None, AttachVerdict.NO_SUCH_LEDGER),
        (OPEN.in_recovery(), AttachVerdict.NOT_OPEN),
        (OPEN.closed(-1, 0), AttachVerdict.NOT_OPEN),
    ],
)
def test_rule_20_metadata_that_is_not_open_lets_no_writer_in(
    metadata: LedgerMetadata | None, verdict: AttachVerdict
) -> None:
    ledger = BookieLedger(LEDGER)
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, metadata) is verdict
    assert add(ledger, 0) is Code.NOT_ATTACHED


def test_rule_20_after_deletion_and_collection_the_old_writer_is_out() -> None:
    """The fence was collected with the ledger; metadata is what refuses the writer now."""
    ledger = ledger_with_writer()
    fence(ledger)
    ledger.forget()
    assert add(ledger, 0) is Code.NOT_ATTACHED
    again = BookieLedger(LEDGER)
    assert again.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.NEEDS_METADATA
    assert again.attach_with_metadata(WRITER, KEY, Purpose.WRITE, None) is AttachVerdict.NO_SUCH_LEDGER


def test_rule_20_a_metadata_read_from_before_the_collection_is_too_old() -> None:
    ledger = BookieLedger(LEDGER)
    assert ledger.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.NEEDS_METADATA  # the read shows OPEN …
    ledger.forget()  # … and then the ledger is recovered, deleted and collected
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.NEEDS_METADATA


def test_a_fence_does_not_introduce_the_ledger() -> None:
    ledger = BookieLedger(LEDGER)
    fence(ledger)
    assert ledger.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.NEEDS_METADATA


# Passwords


def test_a_wrong_password_lets_nothing_in_and_fences_nothing() -> None:
    ledger = ledger_with_writer()
    assert ledger.attach(9, WRONG, Purpose.WRITE) is AttachVerdict.UNAUTHORIZED
    assert ledger.attach(9, WRONG, Purpose.RECOVERY) is AttachVerdict.UNAUTHORIZED
    assert ledger.fence(WRONG).verdict is AttachVerdict.UNAUTHORIZED
    assert ledger.authorize(WRONG) is AttachVerdict.UNAUTHORIZED
    assert not ledger.fenced
    fresh = BookieLedger(LEDGER)
    assert fresh.attach_with_metadata(9, WRONG, Purpose.WRITE, OPEN) is AttachVerdict.UNAUTHORIZED


def test_write_back_to_an_unknown_ledger_needs_the_key_that_metadata_has() -> None:
    """Otherwise a guess, adopted from a fence, would let entries in."""
    ledger = BookieLedger(LEDGER)
    assert ledger.fence(WRONG).verdict is AttachVerdict.OK
    assert ledger.attach(9, WRONG, Purpose.RECOVERY) is AttachVerdict.NEEDS_METADATA
    assert ledger.attach_with_metadata(9, WRONG, Purpose.RECOVERY, OPEN) is AttachVerdict.UNAUTHORIZED
    closed = OPEN.closed(3, 30)
    assert ledger.attach_with_metadata(9, KEY, Purpose.RECOVERY, closed) is AttachVerdict.OK
    assert add(ledger, 3, stream=9, flags=FLAG_RECOVERY) is Code.OK


@pytest.mark.parametrize("guess", [WRONG, "é"])
def test_a_guessed_key_is_replaced_by_the_one_in_the_metadata(guess: str) -> None:
    ledger = BookieLedger(LEDGER)
    fence_with_guess = ledger.fence(guess)
    assert fence_with_guess.wait
    assert ledger.fence(KEY).verdict is AttachVerdict.NEEDS_METADATA
    assert ledger.authorize_with_metadata(KEY, OPEN.in_recovery()) is AttachVerdict.OK
    assert ledger.fence(KEY).verdict is AttachVerdict.OK
    assert ledger.authorize(guess) is not AttachVerdict.OK


def test_a_stream_that_ended_is_not_attached_any_more() -> None:
    ledger = ledger_with_writer()
    ledger.detach(WRITER)
    assert add(ledger, 0) is Code.NOT_ATTACHED


# LAC


def test_the_lac_rises_with_its_length_and_never_falls() -> None:
    ledger = ledger_with_writer()
    for lac, length in [(3, 300), (1, 100), (5, 500), (-1, 0)]:
        assert ledger.accept(WRITER, frame(9, lac=lac, length=length)) is Code.OK
    answer = ledger.last_add_confirmed()
    assert (answer.last_add_confirmed, answer.length_at_lac, answer.limbo, answer.fenced) == (
        5,
        500,
        False,
        False,
    )


def test_a_refused_frame_brings_no_lac() -> None:
    ledger = ledger_with_writer()
    fence(ledger)
    ledger.accept(WRITER, frame(9, lac=8, length=80))
    assert ledger.last_add_confirmed().last_add_confirmed == -1


def test_rule_44_lac_and_length_are_one_record() -> None:
    ledger = ledger_with_writer()
    ledger.accept(WRITER, frame(4, lac=3, length=300))
    record = record_of(ledger)
    assert (record.last_add_confirmed, record.length_at_lac) == (3, 300)
    restored = BookieLedger.restored(record)
    assert record_of(restored) == record
    assert restored.last_add_confirmed().length_at_lac == 300


# Limbo


def test_rule_29_limbo_refuses_normal_frames_as_a_bookie_failure_and_vouches_for_nothing() -> None:
    ledger = BookieLedger(LEDGER)
    ledger.enter_limbo("n1")
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(ledger, 0) is Code.LIMBO
    assert ledger.last_add_confirmed().limbo
    assert ledger.attach(RECOVERER, KEY, Purpose.RECOVERY) is AttachVerdict.OK
    assert add(ledger, 0, stream=RECOVERER, flags=FLAG_RECOVERY) is Code.OK
    assert ledger.last_add_confirmed().limbo  # one entry that came back vouches for no other


def test_rule_29_limbo_is_cleared_only_with_the_nonce_that_still_stands() -> None:
    """Wiped a second time during a repair: what the repair copied before that is gone."""
    ledger = BookieLedger(LEDGER)
    ledger.enter_limbo("first")
    ledger = BookieLedger.restored(replace(record_of(ledger), limbo_nonce="second"))
    assert not ledger.clear_limbo("first")
    assert ledger.in_limbo
    assert ledger.clear_limbo("second")
    assert not ledger.in_limbo
    assert not ledger.clear_limbo("second")


def test_rule_29_a_fence_accepted_in_limbo_survives_its_end() -> None:
    ledger = BookieLedger(LEDGER)
    ledger.enter_limbo("n1")
    fence(ledger)
    assert ledger.clear_limbo("n1")
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(ledger, 0) is Code.FENCED


def test_a_changed_record_asks_to_be_journalled_until_it_is() -> None:
    ledger = BookieLedger(LEDGER)
    assert not ledger.record_changed
    ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN)
    assert ledger.record_changed
    assert record_of(ledger) == LedgerRecord(LEDGER, KEY, introduced=True)
    ledger.record_is_journalled()
    assert not ledger.record_changed


# Deferred sync and syncing


class Disk:
    """An owner that keeps what it synced, for power cuts."""

    def __init__(self, ledger: BookieLedger) -> None:
        self.ledger = ledger
        self.queue: list[EntryId] = []
        self.durable: set[EntryId] = set()
        self.acked: list[EntryId] = []

    def add(self, entry_id: EntryId, stream: int, flags: int = 0) -> None:
        header = frame(entry_id, flags=flags)
        assert self.ledger.accept(stream, header) is Code.OK
        if self.ledger.may_ack_before_sync(header):
            self.acked.append(entry_id)
        self.queue.append(entry_id)

    def sync(self) -> None:
        self.durable |= set(self.queue)
        self.acked += self.queue
        self.queue.clear()


def test_rule_54_an_entry_that_is_there_already_is_acked_only_once_it_is_synced() -> None:
    """A resend while the first copy is only in the cache, then a power cut: what was acked is present."""
    for flags, stream in [
        (0, WRITER),
        (FLAG_RECOVERY, RECOVERER),
        (FLAG_RECOVERY | FLAG_DEFERRED_SYNC, RECOVERER),
    ]:
        ledger = ledger_with_writer()
        ledger.attach(RECOVERER, KEY, Purpose.RECOVERY)
        disk = Disk(ledger)
        disk.add(0, WRITER)
        disk.add(0, stream, flags)
        assert disk.acked == []  # the power cut: nothing acked, nothing lost
        disk.sync()
        assert disk.acked == [0, 0]
        assert disk.durable == {0}


def test_a_force_is_refused_where_an_add_would_be() -> None:
    ledger = ledger_with_writer()
    assert ledger.force() is Code.OK
    fence(ledger)
    assert ledger.force() is Code.FENCED
    lost = BookieLedger(LEDGER)
    lost.enter_limbo("n1")
    assert lost.force() is Code.LIMBO


def test_a_key_is_not_judged_by_what_was_collected() -> None:
    """Whoever still holds the object asks metadata, as for a ledger that this bookie never saw (rule 20)."""
    ledger = ledger_with_writer()
    assert ledger.authorize(WRONG) is AttachVerdict.UNAUTHORIZED
    ledger.forget()
    assert {ledger.authorize(key) for key in (KEY, WRONG)} == {AttachVerdict.NEEDS_METADATA}
