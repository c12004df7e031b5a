"""Ledgers that a crash left behind: rule 28 of docs/protocol.md, and what proves that nothing will name a ledger."""

import pytest

from daybook.core.ledger.metadata import POOL_KEY, TOPIC_KEY, Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import CompactedLedger, Compaction, LedgerList, Position
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import (
    OWNER_KEY,
    RESTORED_KEY,
    NamedLedgers,
    TopicLedger,
    made_by,
    made_by_compaction,
    made_by_compaction_job,
    made_by_restore_job,
)
from tests.unit.core.topics.lists import closed_list

TOPIC = TopicName("public", "default", "orders")
MINE, FORMER = "mine", "former"
LIST = closed_list((4, 1), (6, 2))
COMPACTED = "not a subscription: the ledger is a compacted one"
COMPACTION = Compaction(Position(4, 0), (CompactedLedger(3, 1, 9, Position(4, 0)),))
OWNED = LedgerList(LIST.state, LIST.ledgers, LIST.last_confirmed, owner_token=MINE, compaction=COMPACTION)
OF_CURSOR = CursorRecord(Position(4, 0), cursor_ledger=9)


def metadata(custom: dict[str, bytes], ledger_id: int = 5) -> LedgerMetadata:
    fragments = (Fragment(0, 0, ("b1", "b2", "b3")),)
    return LedgerMetadata(ledger_id, Quorum(3, 3, 2), fragments, custom_metadata=custom, created_at_ms=1_000)


def ledger(ledger_id: int, token: str, subscription: str | None = None) -> TopicLedger:
    custom = made_by(str(TOPIC), token, subscription)
    if subscription == COMPACTED:
        custom = made_by_compaction(str(TOPIC), token)
    found = TopicLedger.of(metadata(custom, ledger_id))
    assert found is not None
    assert found.topic == TOPIC
    return found


@pytest.mark.parametrize(
    ("ledger_id", "made_by_owner", "subscription", "goes"),
    [
        (4, FORMER, None, False),
        (6, MINE, None, False),
        (9, FORMER, "s", False),
        (7, FORMER, None, True),
        (7, "", None, True),
        (8, FORMER, "s", True),
        (7, MINE, None, False),
        (5, MINE, None, True),
        (5, MINE, "s", False),
        (4, FORMER, COMPACTED, False),
        (3, FORMER, COMPACTED, False),
        (5, FORMER, COMPACTED, True),
        (5, MINE, COMPACTED, False),
    ],
)
def test_rule_28_a_ledger_goes_only_if_nothing_can_ever_name_it(
    ledger_id: int, made_by_owner: str, subscription: str | None, goes: bool
) -> None:
    names = NamedLedgers(OWNED, (CursorRecord(), OF_CURSOR))
    assert names.never_names(ledger(ledger_id, made_by_owner, subscription), MINE) is goes


def test_rule_28_who_is_not_the_owner_knows_only_that_the_ids_of_a_list_rise() -> None:
    names = NamedLedgers(OWNED)
    for asker in ("", FORMER, "the next one"):
        assert not names.never_names(ledger(7, FORMER), asker)
        assert not names.never_names(ledger(8, FORMER, "s"), asker)
        assert names.never_names(ledger(5, FORMER), asker)


def test_of_a_topic_that_is_gone_nothing_is_named() -> None:
    assert NamedLedgers(None).never_names(ledger(7, FORMER), "")
    assert NamedLedgers(None).never_names(ledger(8, FORMER, "s"), "")


@pytest.mark.parametrize(
    "custom",
    [
        {},
        {OWNER_KEY: b"x"},
        {"app": b"x"},
        {**made_by(str(TOPIC), MINE), "compaction": b"7"},
        {TOPIC_KEY: b"non-persistent://a/b/c"},
        {TOPIC_KEY: b"\xff"},
        {TOPIC_KEY: str(TOPIC).encode(), OWNER_KEY: b"\xff"},
    ],
)
def test_rule_28_a_ledger_that_was_not_made_for_a_topic_or_for_more_than_that_is_never_judged(
    custom: dict[str, bytes],
) -> None:
    assert TopicLedger.of(metadata(custom)) is None


def test_rule_69_a_ledger_that_stays_in_a_pool_is_judged_as_any_other() -> None:
    custom = made_by(str(TOPIC), MINE, pool="data.bk")
    assert custom[POOL_KEY] == b"data.bk"
    assert TopicLedger.of(metadata(custom)) == TopicLedger.of(metadata(made_by(str(TOPIC), MINE)))


def test_a_ledger_of_an_earlier_release_has_no_token_and_its_age_is_that_of_its_metadata() -> None:
    found = TopicLedger.of(metadata({TOPIC_KEY: str(TOPIC).encode()}))
    assert found == TopicLedger(5, TOPIC, "", holds_messages=True, created_at_ms=1_000)
    assert found.is_older(500, 1_500)
    assert not found.is_older(501, 1_500)


@pytest.mark.parametrize("pool", ["", "ns.pool"])
def test_rule_28_a_ledger_of_a_compaction_job_is_not_for_the_owner_to_judge(pool: str) -> None:
    custom = made_by_compaction_job(str(TOPIC), "job", "0.1", pool=pool)
    assert metadata(custom).pool == pool
    assert TopicLedger.of(metadata(custom)) is None
    custom = made_by_restore_job(str(TOPIC), 4, "job", "0.1", pool=pool)
    assert (metadata(custom).pool, custom[RESTORED_KEY]) == (pool, b"4")
    assert TopicLedger.of(metadata(custom)) is None
