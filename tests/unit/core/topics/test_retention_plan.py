"""What a retention job may delete and ask for: rule 71 of docs/protocol.md, by example and over histories of owners and jobs."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import POOL_KEY, TOPIC_KEY, Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.ledger_list import (
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    ListState,
    Position,
)
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.record import Restored
from daybook.core.topics.retention_plan import GRACE_MS, MarkedLedger, plan_trim, plan_with
from daybook.core.topics.trimming import Retention
from daybook.core.topics.unnamed import (
    COMMIT_AGE_MS_MAX,
    JOB_KEY,
    NamedLedgers,
    made_by,
    made_by_compaction,
    made_by_compaction_job,
    made_by_restore_job,
)
from tests.unit.core.topics.lists import closed_list, open_list

TOPIC = TopicName("public", "default", "orders")
NOW_MS = 10 * GRACE_MS
MINE, FORMER = "mine", "former"
LIST = closed_list((4, 1), (6, 2))
COMPACTION = Compaction(Position(4, 0), (CompactedLedger(3, 1, 9, Position(4, 0)),))
OWNED = replace(LIST, owner_token=MINE, compaction=COMPACTION)
NAMES = NamedLedgers(OWNED, (CursorRecord(), CursorRecord(Position(4, 0), cursor_ledger=9)))
OLD_MS, YOUNG_MS = 0, NOW_MS - 1_000


def metadata(
    custom: dict[str, bytes], ledger_id: LedgerId = 5, created_at_ms: int = OLD_MS
) -> LedgerMetadata:
    fragments = (Fragment(0, 0, ("b1", "b2", "b3")),)
    return LedgerMetadata(
        ledger_id, Quorum(3, 3, 2), fragments, custom_metadata=custom, created_at_ms=created_at_ms
    )


def goes(custom: dict[str, bytes], ledger_id: LedgerId, names: NamedLedgers = NAMES) -> bool:
    found = MarkedLedger.of(metadata(custom, ledger_id))
    assert found is not None
    assert found.ledger.topic == TOPIC
    return found.never_named(names)


@pytest.mark.parametrize(
    ("ledger_id", "custom", "is_deleted"),
    [
        (4, made_by(str(TOPIC), FORMER), False),
        (9, made_by(str(TOPIC), FORMER, "s"), False),
        (3, made_by_compaction(str(TOPIC), FORMER), False),
        (3, made_by_compaction_job(str(TOPIC), "job", "0"), False),
        (7, made_by(str(TOPIC), FORMER), True),
        (8, made_by(str(TOPIC), FORMER, "s"), True),
        (8, made_by_compaction(str(TOPIC), FORMER), True),
        (8, made_by_compaction_job(str(TOPIC), "job", "0"), True),
        (5, made_by_restore_job(str(TOPIC), 4, "job", "0"), True),
        (8, made_by_restore_job(str(TOPIC), 4, "job", "0"), True),
        (7, made_by(str(TOPIC), MINE), False),
        (8, made_by(str(TOPIC), MINE, "s"), False),
        (5, made_by(str(TOPIC), MINE), True),
        (7, made_by(str(TOPIC), ""), False),
        (5, made_by(str(TOPIC), ""), True),
    ],
)
def test_rule_71_a_ledger_goes_only_if_nothing_names_it_and_nothing_ever_will(
    ledger_id: LedgerId, custom: dict[str, bytes], is_deleted: bool
) -> None:
    assert goes(custom, ledger_id) is is_deleted


def test_rule_72_the_copy_that_a_list_names_stays_and_the_ledger_that_it_was_made_of_is_not_named() -> None:
    copied = replace(OWNED.ledgers[0], restored=Restored(8, "file:///cold/4", 0))
    names = NamedLedgers(replace(OWNED, ledgers=(copied, *OWNED.ledgers[1:])))
    custom = made_by_restore_job(str(TOPIC), 4, "job", "0", pool="a.b")
    assert not goes(custom, 8, names)
    assert goes(custom, 7, names)
    assert goes(made_by(str(TOPIC), FORMER), 4, names), "its replicas went before"
    found = MarkedLedger.of(metadata(custom))
    assert found is not None
    assert (found.is_of_job, found.pool, found.ledger.holds_messages) == (True, "a.b", False)
    assert not found.is_old(0, GRACE_MS - 1)


@pytest.mark.parametrize(
    "custom",
    [
        made_by(str(TOPIC), MINE),
        made_by(str(TOPIC), "", "s"),
        made_by_compaction_job(str(TOPIC), "job", "0"),
    ],
)
def test_rule_71_of_a_topic_that_is_gone_nothing_is_named(custom: dict[str, bytes]) -> None:
    assert goes(custom, 7, NamedLedgers(None))


@pytest.mark.parametrize(
    "custom",
    [
        {},
        {"app": b"x"},
        {JOB_KEY: b"job"},
        {JOB_KEY: b"job", "spark-manifest": b"daily"},
        {TOPIC_KEY: str(TOPIC).encode(), "app": b"x"},
        {TOPIC_KEY: str(TOPIC).encode(), JOB_KEY: b"job", "app": b"x"},
        {TOPIC_KEY: b"no/topic"},
        {TOPIC_KEY: b"\xff"},
    ],
)
def test_rule_71_a_ledger_without_the_mark_of_a_topic_is_not_judged(custom: dict[str, bytes]) -> None:
    assert MarkedLedger.of(metadata(custom)) is None


def test_rule_71_a_ledger_is_judged_once_it_is_old_and_a_jobs_never_before_no_owner_names_it() -> None:
    of_owner, of_job = made_by(str(TOPIC), FORMER), made_by_compaction_job(str(TOPIC), "job", "0", pool="a.b")
    for custom, created_at_ms, grace_ms, is_old in [
        (of_owner, NOW_MS - GRACE_MS, GRACE_MS, True),
        (of_owner, NOW_MS - GRACE_MS + 1, GRACE_MS, False),
        (of_owner, YOUNG_MS, 0, True),
        (of_job, YOUNG_MS, 0, False),
        (of_job, NOW_MS - GRACE_MS, 0, True),
        (of_job, NOW_MS - GRACE_MS, 2 * GRACE_MS, False),
    ]:
        found = MarkedLedger.of(metadata(custom, created_at_ms=created_at_ms))
        assert found is not None
        assert found.is_old(grace_ms, NOW_MS) is is_old
        assert found.pool == ("a.b" if POOL_KEY in custom else "")


# Over histories


@dataclass
class World:
    """A topic whose owners and jobs make ledgers and name them, as the rules let them. One unit of time is the age that owners commit."""

    now: int = 0
    tokens: list[str] = field(default_factory=list)
    made: dict[LedgerId, LedgerMetadata] = field(default_factory=dict)
    named: list[LedgerId] = field(default_factory=list)
    cursor: LedgerId | None = None
    compacted: LedgerId | None = None
    is_there: bool = True

    def names(self) -> NamedLedgers:
        if not self.is_there:
            return NamedLedgers(None)
        listed = tuple(ListedLedger(each, 0, entries=1, size_bytes=1, closed_at_ms=1) for each in self.named)
        last = Position(max([0, *self.named]), 0)
        compaction = None
        if self.compacted is not None:
            compaction = Compaction(Position(0, 0), (CompactedLedger(self.compacted, 1, 1, Position(0, 0)),))
        token = self.tokens[-1] if self.tokens else ""
        found = LedgerList(ListState.CLOSED, listed, last, owner_token=token, compaction=compaction)
        cursors = (CursorRecord(),) if self.cursor is None else (CursorRecord(cursor_ledger=self.cursor),)
        return NamedLedgers(found, cursors)

    def make(self, kind: str, owner: int) -> None:
        """A ledger of any owner that ever was, since an owner does not know at once that another one followed."""
        ledger_id = len(self.made) + 1
        token = self.tokens[owner % len(self.tokens)] if self.tokens else ""
        custom = {
            "messages": made_by(str(TOPIC), token),
            "cursor": made_by(str(TOPIC), token, "s"),
            "compacted": made_by_compaction(str(TOPIC), token),
            "job": made_by_compaction_job(str(TOPIC), "job", "0"),
        }[kind]
        if kind == "job" or token:
            self.made[ledger_id] = metadata(custom, ledger_id, self.now)

    def name(self, ledger_id: LedgerId) -> bool:
        """What the owner of now may do with a ledger that exists; whether it names it."""
        found = MarkedLedger.of(self.made[ledger_id])
        assert found is not None
        if not self.is_there or not self.tokens:
            return False
        if found.is_of_job:
            if self.now - found.ledger.created_at_ms > COMMIT_AGE_MS_MAX:
                return False
            self.compacted = ledger_id
            return True
        if found.ledger.owner_token != self.tokens[-1]:
            return False
        if found.ledger.holds_messages:
            if ledger_id <= max([0, *self.named]):
                return False
            self.named.append(ledger_id)
        elif b"s" in self.made[ledger_id].custom_metadata.values():
            self.cursor = ledger_id
        else:
            self.compacted = ledger_id
        return True


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take over"), st.integers(0, 0)),
        st.tuples(st.sampled_from(["messages", "cursor", "compacted", "job"]), st.integers(0, 5)),
        st.tuples(st.just("name"), st.integers(0, 12)),
        st.tuples(st.just("wait"), st.integers(1, 3)),
        st.tuples(st.just("trim"), st.integers(0, 0)),
        st.tuples(st.just("delete"), st.integers(0, 0)),
    ),
    max_size=30,
)


def walk(world: World, steps: list[tuple[str, int]], deleted: frozenset[LedgerId] = frozenset()) -> None:
    """Do the steps; nobody may name what is `deleted`."""
    for what, number in steps:
        if what == "take over" and world.is_there:
            world.tokens.append(f"owner {len(world.tokens)}")
        elif what == "wait":
            world.now += number * COMMIT_AGE_MS_MAX // 2
        elif what == "trim":
            world.named[:1] = []
        elif what == "delete":
            world.is_there = False
        elif what == "name" and number in world.made:
            assert not (world.name(number) and number in deleted), (
                f"ledger {number} was deleted, and is named"
            )
        elif what in {"messages", "cursor", "compacted", "job"} and world.is_there:
            world.make(what, number)


@given(before=STEPS, after=STEPS, grace=st.sampled_from([0, GRACE_MS]))
def test_rule_71_nobody_ever_names_a_ledger_that_was_judged_to_go(
    before: list[tuple[str, int]], after: list[tuple[str, int]], grace: int
) -> None:
    world = World()
    walk(world, before)
    names = world.names()
    deleted = set()
    for ledger_id, found in world.made.items():
        marked = MarkedLedger.of(found)
        assert marked is not None
        if marked.is_old(grace, world.now) and marked.never_named(names):
            deleted.add(ledger_id)
    if names.ledger_list is not None:
        assert not deleted & names.ledger_list.named_ids
    walk(world, after, frozenset(deleted))


# Trims


def test_a_plan_has_what_is_past_the_retention_and_what_every_subscription_has_passed() -> None:
    three = closed_list((1, 1), (2, 1), (3, 1))
    passed, behind = CursorRecord(Position(3, 0)), CursorRecord(Position(1, 0))
    at_once, for_ever = Retention(), Retention(None, None)
    assert [each.ledger_id for each in plan_trim(three, [passed], at_once, 0, 5).ledgers] == [1, 2, 3]
    assert [each.ledger_id for each in plan_trim(three, [passed, behind], at_once, 0, 5).ledgers] == [1]
    plan = plan_trim(three, [passed], for_ever, 0, 5)
    assert (plan.ledgers, plan.is_certain, plan.size_bytes) == ((), True, 0)
    assert plan_with(three, [Position(2, 0)], at_once, 5).ledgers == three.ledgers[:2]


def test_the_mark_of_a_cursor_with_a_ledger_is_its_owners_to_say() -> None:
    two = closed_list((1, 1), (2, 1))
    moves = CursorRecord(Position(1, 0), cursor_ledger=9)
    plan = plan_trim(two, [moves], Retention(), 0, 5)
    assert (len(plan.ledgers), plan.is_certain) == (2, False)
    held = plan_trim(two, [moves, CursorRecord()], Retention(), 0, 5)
    assert (held.ledgers, held.is_certain) == ((), True), "another subscription needs all of it"


def test_a_ledger_that_an_owner_left_open_is_the_next_owners_to_close() -> None:
    left = open_list((1, 1), open_id=2)
    for unix_ms, time_ms, is_certain in [(29, 20, True), (30, 20, False), (30, None, True)]:
        plan = plan_trim(left, [CursorRecord()], Retention(time_ms, None), 10, unix_ms)
        assert plan.is_certain is is_certain
    assert plan_trim(LedgerList(), [], Retention(), 0, 5).is_certain
