"""Whoever may connect may fence any id with any key; what becomes of it once metadata has spoken."""

from dataclasses import replace

from daybook.core.bookie.ledger import AttachVerdict, BookieLedger, Purpose
from daybook.core.errors import Code
from tests.unit.core.bookie.test_bookie import (
    KEY,
    LEDGER,
    OPEN,
    WRITER,
    WRONG,
    add,
    fence,
    ledger_with_writer,
    record_of,
)


def test_rule_03_a_fence_that_metadata_disproves_ends() -> None:
    """Ids are sequential: whoever fences the next ones with a made-up key would end every ledger to come."""
    ledger = BookieLedger(LEDGER)
    assert ledger.fence(WRONG).verdict is AttachVerdict.OK
    ledger.fence_is_durable(1)
    restarted = BookieLedger.restored(record_of(ledger))
    assert restarted.attach(WRITER, KEY, Purpose.WRITE) is AttachVerdict.NEEDS_METADATA
    assert restarted.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(restarted, 0) is Code.OK
    assert (restarted.fence_dropped, restarted.record_changed) == (True, True)
    restarted.record_is_journalled()
    assert not restarted.fence_dropped
    assert BookieLedger.restored(record_of(restarted)).fenced is False


def test_rule_03_a_wrong_key_that_asks_for_metadata_ends_a_wrong_fence_too() -> None:
    ledger = BookieLedger(LEDGER)
    ledger.fence(WRONG)
    assert ledger.authorize_with_metadata("00$other", OPEN) is AttachVerdict.UNAUTHORIZED
    assert (ledger.fenced, ledger.key) == (False, KEY)


def test_rule_03_the_fence_of_a_recovery_stays_whatever_keys_others_present() -> None:
    ledger = BookieLedger(LEDGER)
    fence(ledger)
    assert ledger.fence(WRONG).verdict is AttachVerdict.NEEDS_METADATA
    assert ledger.authorize_with_metadata(WRONG, OPEN) is AttachVerdict.UNAUTHORIZED
    assert ledger.attach_with_metadata(WRITER, KEY, Purpose.WRITE, OPEN) is AttachVerdict.OK
    assert add(ledger, 0) is Code.FENCED
    restarted = BookieLedger.restored(record_of(ledger))
    assert restarted.authorize_with_metadata(WRONG, OPEN) is AttachVerdict.UNAUTHORIZED
    assert restarted.fenced


def test_rule_04_a_dropped_fence_that_becomes_durable_does_not_answer_for_the_next_one() -> None:
    ledger = BookieLedger(LEDGER)
    forged = ledger.fence(WRONG)
    assert ledger.authorize_with_metadata(KEY, OPEN) is AttachVerdict.OK
    ledger.fence_is_durable(forged.number)  # its record was in the journal's queue
    assert not ledger.is_fence_durable
    real = ledger.fence(KEY)
    assert real.wait
    ledger.fence_is_durable(forged.number)
    assert ledger.fence(KEY).wait
    ledger.fence_is_durable(real.number)
    assert not ledger.fence(KEY).wait


def test_rule_03_a_fence_of_a_ledger_that_never_existed_leaves_nothing() -> None:
    ledger = BookieLedger(LEDGER)
    ledger.never_existed()
    assert not ledger.fence_dropped, "there was none"
    ledger.fence(WRONG)
    ledger.never_existed()
    assert ledger.fence_dropped
    assert record_of(ledger) == record_of(BookieLedger(LEDGER))


def test_an_introduced_ledger_keeps_its_key() -> None:
    """Metadata never changes a key; another one there is another ledger's, from a ZooKeeper that went back."""
    ledger = ledger_with_writer()
    another = replace(OPEN, password_hash=WRONG)
    assert ledger.authorize_with_metadata(WRONG, another) is AttachVerdict.UNAUTHORIZED
    assert ledger.authorize_with_metadata(KEY, another) is AttachVerdict.OK
