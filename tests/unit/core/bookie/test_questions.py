"""Requests that may need metadata: attachments, keys and fences; and what a bookie vouches for after a refusal."""

import pytest

from daybook.core.bookie.ledger import AttachVerdict, Purpose
from daybook.core.bookie.machine import FenceDecided
from daybook.core.bookie.questions import (
    ATTACH_ATTEMPTS_MAX,
    KEY_BYTES_MAX,
    Attachment,
    FenceQuestion,
    KeyQuestion,
)
from daybook.core.bookie.refusals import Refusals
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from tests.unit.core.bookie.test_bookie import KEY, LEDGER, OPEN, WRITER, WRONG
from tests.unit.core.bookie.test_machine import Bookie, Record


class Asking(Bookie):
    """A bookie, and the questions that it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.fences: list[FenceDecided[Record]] = []
        self.streams_end = False

    def attachment(self, key: str = KEY, ledger_id: LedgerId = LEDGER) -> Attachment[Record]:
        attachment = Attachment(
            self.machine, WRITER, ledger_id, key, Purpose.WRITE, has_ended=lambda: self.streams_end
        )
        attachment.begin()
        return attachment

    def key(self, key: str) -> KeyQuestion[Record]:
        question = KeyQuestion(self.machine, LEDGER, key)
        question.begin()
        return question

    def fence_question(self, key: str = KEY) -> FenceQuestion[Record]:
        question = FenceQuestion(self.machine, LEDGER, key, self.fences.append)
        question.begin()
        return question


@pytest.fixture
def bookie() -> Asking:
    return Asking()


# Attachments


def test_a_refused_attachment_leaves_nothing_in_memory(bookie: Asking) -> None:
    bookie.enter()
    assert bookie.attachment(WRONG).is_done
    unknown = bookie.attachment(WRONG, 8)
    assert not unknown.is_done
    assert bookie.machine.ledgers.get(8) is None


def test_an_attachment_whose_metadata_cannot_be_read_is_given_up(bookie: Asking) -> None:
    attachment = bookie.attachment()
    attachment.ask()
    attachment.give_up()
    assert (attachment.is_done, attachment.verdict.code) == (True, Code.UNAVAILABLE)
    assert bookie.machine.ledgers.get(LEDGER) is None
    unasked = bookie.attachment()
    unasked.give_up()
    assert unasked.is_done


def test_a_ledger_that_is_deleted_while_metadata_is_read_is_asked_about_again_but_not_for_ever(
    bookie: Asking,
) -> None:
    attachment = bookie.attachment()
    for _ in range(ATTACH_ATTEMPTS_MAX):
        assert not attachment.is_done
        attachment.ask()
        bookie.machine.delete([LEDGER])
        attachment.metadata_read(OPEN)
        assert attachment.verdict is AttachVerdict.NEEDS_METADATA
    assert attachment.is_done
    assert bookie.machine.ledgers.get(LEDGER) is None


def test_a_stream_that_ended_meanwhile_does_not_stay_attached_and_asks_no_more(bookie: Asking) -> None:
    attachment, deleted = bookie.attachment(), bookie.attachment()
    for each in (attachment, deleted):
        each.ask()
    bookie.streams_end = True
    attachment.metadata_read(OPEN)
    assert attachment.verdict is AttachVerdict.OK
    bookie.machine.delete([LEDGER])
    deleted.metadata_read(OPEN)
    assert deleted.is_done
    assert not bookie.machine.ledgers.is_attached(WRITER)
    assert bookie.machine.ledgers.get(LEDGER) is None


@pytest.mark.parametrize(
    ("ledger_id", "key", "code"),
    [
        (-1, KEY, Code.BAD_FRAME),
        (LEDGER, "k" * (KEY_BYTES_MAX + 1), Code.UNAUTHORIZED),
        (LEDGER, "k\u00e9y", Code.UNAUTHORIZED),
    ],
)
def test_what_could_not_be_stored_is_refused_before_anything_knows_of_it(
    bookie: Asking, ledger_id: LedgerId, key: str, code: Code
) -> None:
    attachment = bookie.attachment(key, ledger_id)
    assert (attachment.is_done, attachment.verdict.code) == (True, code)
    assert bookie.machine.ledgers.get(ledger_id) is None


# Keys


def test_rule_03_a_key_that_a_fence_brought_is_judged_by_metadata(bookie: Asking) -> None:
    assert bookie.key(WRONG).verdict is AttachVerdict.OK, "nothing is known of the ledger"
    bookie.fence(WRONG)
    question = bookie.key(KEY)
    question.ask()
    question.metadata_read(OPEN)
    assert (question.is_done, question.verdict) == (True, AttachVerdict.OK)


# Fences


def test_rule_04_a_fence_is_queued_once_and_keeps_its_ledger_until_it_is_answered(bookie: Asking) -> None:
    question = bookie.fence_question()
    assert (question.is_done, question.verdict, len(bookie.fences)) == (True, AttachVerdict.OK, 1)
    bookie.fences[0].is_durable()
    assert bookie.machine.ledgers.get(LEDGER) is not None
    for _ in range(2):
        question.end()
    assert bookie.machine.ledgers.get(LEDGER) is None


@pytest.mark.parametrize(
    ("metadata", "verdict"),
    [(OPEN, AttachVerdict.OK), (None, AttachVerdict.NO_SUCH_LEDGER)],
)
def test_rule_03_a_fence_with_another_key_than_the_last_asks_for_metadata(
    bookie: Asking, metadata: LedgerMetadata | None, verdict: AttachVerdict
) -> None:
    bookie.fence(WRONG)
    question = bookie.fence_question()
    assert not bookie.fences
    question.ask()
    question.metadata_read(metadata)
    question.end()
    assert (question.is_done, question.verdict) == (True, verdict)
    assert len(bookie.fences) == (verdict is AttachVerdict.OK)


# Refusals


def test_rule_22_nothing_is_vouched_for_until_the_store_has_what_the_journal_refused() -> None:
    refusals = Refusals()
    assert refusals.vouch(Code.OK) is Code.OK
    refusals.refused()
    before = refusals.count
    refusals.refused()
    refusals.stored(before)
    assert (refusals.owes, refusals.vouch(Code.OK)) == (True, Code.READ_ONLY)
    assert refusals.vouch(Code.TIMEOUT) is Code.TIMEOUT
    refusals.stored(refusals.count)
    assert (refusals.owes, refusals.vouch(Code.OK)) == (False, Code.OK)
