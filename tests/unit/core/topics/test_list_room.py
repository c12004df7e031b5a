"""A topic whose list of ledgers is as large as its node allows: it stays readable, is trimmed, and takes messages again after that."""

import json
from dataclasses import replace
from typing import Final

import pytest

from daybook.core.errors import TopicFullError
from daybook.core.topics.events import (
    CasList,
    CloseLedger,
    CompactionWritten,
    CreateLedger,
    ListKnown,
    RollRequested,
    TrimRequested,
)
from daybook.core.topics.ledger_list import (
    CompactedLedger,
    Compaction,
    LedgerList,
    ListedLedger,
    Position,
    compaction_record,
)
from daybook.core.topics.list_room import (
    FULL_BYTES,
    MEASURED_LEDGERS,
    NEVER_MS,
    SCARCE_BYTES,
    Room,
    check_room,
    limits,
    measured_bytes,
    room_in,
)
from daybook.core.topics.offload.record import PLACE_CHARS_MAX, Offload
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.phases import Phase
from daybook.core.topics.trimming import Retention
from tests.unit.core.topics.world import TOPIC, Owner, StoredLedger, World, kinds, serving, writing

POLICY: Final = ManagedLedgerPolicy()
NODE_BYTES_MAX: Final = 1_000_000
PADDING: Final = '"padding":"",'


def row(ledger_id: int) -> ListedLedger:
    """A closed ledger as a list has it, with a file whose place is as long as it may be: fewer rows fill the list."""
    place = "s3://bucket/".ljust(PLACE_CHARS_MAX, "x")
    file = Offload(place, 1, 50_000_000, 50_000, 1, offloaded_at_ms=1, replicas_until_ms=None)
    return ListedLedger(ledger_id, 1, entries=50_000, size_bytes=50_000_000, closed_at_ms=1, offload=file)


def list_of(size_bytes: int) -> LedgerList:
    """A list of closed ledgers that has exactly so many bytes."""
    count = size_bytes // len(
        json.dumps(json.loads(closed(1).to_json())["ledgers"][0], separators=(",", ":"))
    )
    while len(found := closed(count).to_json()) > size_bytes - len(PADDING):
        count -= 1
    padding = "x" * (size_bytes - len(found) - len(PADDING))
    return replace(closed(count), unknown_fields={"padding": padding})


def closed(count: int) -> LedgerList:
    """A list of so many closed ledgers."""
    ledgers = tuple(row(ledger_id) for ledger_id in range(1000, 1000 + count))
    return LedgerList(ledgers=ledgers, last_confirmed=ledgers[-1].last_position)


def world_of(size_bytes: int) -> World:
    """A topic with such a list, whose ledgers exist."""
    world = World(list_of(size_bytes))
    for ledger in world.ledger_list.ledgers:
        world.next_id = ledger.ledger_id
        world.ledgers[world.create()].is_closed = True
    return world


def room(ledger_list: LedgerList) -> Room:
    """The room in a list."""
    return room_in(measured_bytes(ledger_list))


def trim(owner: Owner) -> None:
    """Drop all ledgers that are closed."""
    owner.step(TrimRequested((), Retention(0, 0)))
    owner.run(1_000)


@pytest.fixture(scope="module")
def full() -> LedgerList:
    return list_of(FULL_BYTES)


def test_what_a_list_of_some_size_allows(full: LedgerList) -> None:
    few = LedgerList(ledgers=full.ledgers[: MEASURED_LEDGERS - 1], last_confirmed=full.last_confirmed)
    assert (measured_bytes(few), room(few)) == (0, Room.AMPLE)
    some = replace(few, ledgers=full.ledgers[:MEASURED_LEDGERS])
    assert measured_bytes(some) == len(some.to_json())
    assert room(some) is Room.AMPLE
    assert room(list_of(SCARCE_BYTES)) is Room.SCARCE
    assert room(replace(full, ledgers=full.ledgers[1:])) is Room.SCARCE
    assert room(full) is Room.NONE
    horizon = full.last_confirmed
    compacted = (CompactedLedger(1, 1, 1, Position(1000, 0)), CompactedLedger(2, 1, 1, horizon))
    assert measured_bytes(replace(few, compaction=Compaction(horizon, compacted))) > 0


def test_a_ledger_is_used_for_longer_the_less_room_there_is() -> None:
    assert limits(POLICY, Room.AMPLE) is POLICY
    scarce = limits(POLICY, Room.SCARCE)
    assert (scarce.age_ms_min, scarce.idle_ms_max) == (POLICY.age_ms_max, POLICY.age_ms_max)
    patient = replace(POLICY, idle_ms_max=2 * POLICY.age_ms_max)
    assert limits(patient, Room.SCARCE).idle_ms_max == patient.idle_ms_max
    assert limits(POLICY, Room.NONE).age_ms_min == NEVER_MS


def test_what_makes_a_full_list_larger_is_refused(full: LedgerList) -> None:
    below = replace(full, ledgers=full.ledgers[1:])
    check_room(TOPIC, below, below)
    check_room(TOPIC, full, full)
    with pytest.raises(TopicFullError, match="as many ledgers as its list can name"):
        check_room(TOPIC, below, replace(full, offload_job="another"))


def test_a_full_list_may_be_compacted_again_but_not_for_the_first_time(full: LedgerList) -> None:
    first = Compaction(full.ledgers[0].last_position)
    later = Compaction(full.last_confirmed, (CompactedLedger(1, 1, 1, full.last_confirmed),))
    with pytest.raises(TopicFullError):
        check_room(TOPIC, full, replace(full, compaction=first))
    compacted = replace(full, compaction=first)
    check_room(TOPIC, compacted, replace(compacted, compaction=later))
    check_room(TOPIC, compacted, full)
    padded = replace(full, unknown_fields={"padding": "x" * 60_000})
    with pytest.raises(TopicFullError):
        check_room(TOPIC, compacted, replace(padded, compaction=later))


def test_in_a_list_that_is_half_full_a_ledger_is_used_for_as_long_as_the_policy_allows() -> None:
    owner = writing(world_of(SCARCE_BYTES), b"a")
    owner.tick(POLICY.idle_ms_max)
    assert kinds(owner) == []
    owner.tick(POLICY.age_ms_max - POLICY.idle_ms_max)
    assert kinds(owner)[0] is CloseLedger


def test_a_topic_whose_list_is_full_refuses_messages_until_ledgers_were_trimmed() -> None:
    owner = serving(world_of(FULL_BYTES))
    assert isinstance(owner.machine.refusal, TopicFullError)
    trim(owner)
    assert owner.machine.refusal is None
    owner.publish(b"a")
    owner.run()
    assert [data for _, data in owner.published] == [b"a"]


def test_the_ledger_that_fills_the_list_is_written_on_and_what_no_ledger_takes_is_refused() -> None:
    world = world_of(FULL_BYTES - 100)
    owner = writing(world, b"a")
    owner.tick(POLICY.age_ms_max)
    owner.step(RollRequested())
    owner.publish(b"b")
    owner.run()
    assert [data for _, data in owner.published] == [b"a", b"b"]
    owner.publish(b"c")
    kinds(owner)
    owner.fail_handle(world.ledger_list.ledgers[-1].ledger_id)
    owner.publish(b"d")
    assert CreateLedger not in kinds(owner)
    assert owner.failed == [b"c", b"d"]
    assert not owner.ended
    assert isinstance(owner.machine.refusal, TopicFullError)
    assert [data for _, data in world.topic()] == [b"a", b"b"]
    trim(owner)
    owner.publish(b"e")
    owner.run()
    assert [data for _, data in world.topic()] == [b"e"]


def world_of_compacted() -> World:
    """A topic whose list has room for one ledger, and for more once its compaction is given up."""
    compacted = tuple(CompactedLedger(number, 1, 1, Position(1000, number)) for number in range(10))
    compaction = Compaction(Position(1000, 10), compacted)
    size_bytes = len(json.dumps({"compaction": compaction_record(compaction)}, separators=(",", ":")))
    world = world_of(FULL_BYTES - 100 - size_bytes)
    world.ledger_list = replace(world.ledger_list, compaction=compaction)
    world.ledgers |= {ledger.ledger_id: StoredLedger(is_closed=True) for ledger in compacted}
    return world


def test_messages_that_come_while_earlier_ones_wait_for_room_go_behind_them() -> None:
    world = world_of_compacted()
    owner = writing(world, b"a")
    owner.publish(b"b")
    kinds(owner)
    owner.fail_handle(world.ledger_list.ledgers[-1].ledger_id)
    owner.step(CompactionWritten(None))
    while not isinstance(owner.asked[0], CasList):
        owner.carry_out()
    owner.carry_out()  # the end of the ledger is recorded
    assert owner.machine.phase is Phase.COMPACTING
    assert owner.machine.refusal is None
    owner.publish(b"c")
    owner.run(1_000)
    assert owner.failed == []
    assert [data for _, data in owner.published] == [b"a", b"b", b"c"]


def test_a_list_that_is_full_has_room_for_a_take_over_and_the_end_of_its_ledger() -> None:
    world = world_of(FULL_BYTES - 100)
    writing(world, b"a")
    owner = serving(world, "two" * 20)
    assert [type(each) for each in owner.news] == [ListKnown]
    assert isinstance(owner.machine.refusal, TopicFullError)
    assert len(world.ledger_list.to_json()) < NODE_BYTES_MAX
