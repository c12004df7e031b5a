"""The runs of a broker: found by any entry, bounded in bytes, and dropped in the right order."""

from daybook_broker.topics.read_ahead import RUN_COST_BYTES, ReadAhead, Run
from daybook_broker.topics.tail_cache import ENTRY_COST_BYTES

from daybook.core.topics.dispatch.entries import TopicEntry
from daybook.core.topics.ledger_list import Position

KIB = b"k" * 1024
RUN_BYTES = RUN_COST_BYTES + 2 * (len(KIB) + ENTRY_COST_BYTES)


def entries(run: Run, count: int = 2) -> list[TopicEntry]:
    """What a bookie gave for `run`."""
    return [TopicEntry(Position(run.ledger_id, run.first + n), KIB, 1) for n in range(count)]


def read(ahead: ReadAhead, ledger_id: int, first: int) -> Run:
    """A run of two entries that is here."""
    run = ahead.begin(ledger_id, first, first + 1, 2048)
    ahead.arrived(run, entries(run))
    return run


def test_a_run_is_found_by_any_entry_also_while_it_is_on_its_way() -> None:
    ahead = ReadAhead(2**20)
    run = ahead.begin(7, 10, 19, 2048)
    assert ahead.at(7, 10) is ahead.at(7, 19) is run
    assert ahead.at(7, 9) is ahead.at(7, 20) is ahead.at(8, 10) is None
    ahead.arrived(run, entries(run))
    assert ahead.at(7, 11) is run
    assert ahead.at(7, 12) is None, "it ended earlier than it might have"


def test_a_run_ends_before_the_next_one() -> None:
    ahead = ReadAhead(2**20)
    read(ahead, 7, 10)
    assert ahead.begin(7, 5, 20, 2048).last == 9
    assert ahead.begin(7, 12, 20, 2048).last == 20


def test_a_part_has_at_least_one_entry_and_as_many_as_fit() -> None:
    ahead = ReadAhead(2**20)
    run = ahead.begin(7, 10, 19, 8192)
    ahead.arrived(run, entries(run, 5))
    assert run.part(11, 12, 2**20) == run.entries[1:3]
    assert run.part(11, 99, 2**20) == run.entries[1:]
    assert run.part(11, 99, 2048) == run.entries[1:3]
    assert run.part(11, 99, 1) == run.entries[1:2]


def test_used_runs_leave_before_those_that_nobody_has_used() -> None:
    ahead = ReadAhead(4 * RUN_BYTES)
    first, second, third, fourth = [read(ahead, ledger_id, 0) for ledger_id in (1, 2, 3, 4)]
    assert ahead.use(second)
    assert not ahead.use(second), "it was used before"
    assert ahead.use(fourth)
    read(ahead, 5, 0)
    assert ahead.at(2, 0) is None
    read(ahead, 6, 0)
    assert ahead.at(4, 0) is None
    read(ahead, 7, 0)
    assert ahead.at(1, 0) is None, "then the oldest one leaves"
    assert first.entries, "and whoever has it keeps it"
    assert ahead.at(3, 0) is third
    assert ahead.size_bytes <= ahead.bytes_max


def test_a_read_that_nobody_waits_for_drives_out_nothing_unused() -> None:
    ahead = ReadAhead(2 * RUN_BYTES)
    run = read(ahead, 1, 0)
    assert ahead.has_spare_room(RUN_BYTES)
    read(ahead, 2, 0)
    assert not ahead.has_spare_room(RUN_BYTES)
    assert ahead.has_room(RUN_BYTES), "somebody who waits may"
    ahead.use(run)
    assert ahead.has_spare_room(RUN_BYTES)


def test_what_is_on_its_way_counts_and_one_read_is_always_possible() -> None:
    ahead = ReadAhead(4096)
    assert ahead.has_room(2**20)
    run = ahead.begin(1, 0, 9, 4096)
    assert not ahead.has_room(1)
    ahead.failed(run)
    assert ahead.has_room(4096)
    assert ahead.at(1, 0) is None


def test_a_forgotten_ledger_takes_no_room_and_what_was_on_its_way_is_not_kept() -> None:
    ahead = ReadAhead(2**20)
    used = read(ahead, 7, 0)
    ahead.use(used)
    read(ahead, 7, 2)
    coming, failing = ahead.begin(7, 4, 5, 2048), ahead.begin(7, 6, 7, 2048)
    ahead.forget(7)
    ahead.forget(8)
    assert ahead.at(7, 0) is ahead.at(7, 4) is None
    ahead.arrived(coming, entries(coming))
    ahead.failed(failing)
    assert coming.entries
    assert (ahead.size_bytes, ahead.asked_bytes) == (0, 0)
    assert ahead.has_spare_room(2**20)
