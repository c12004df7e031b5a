"""Which rows of a table of LACs a bookie takes, what it journals of them, and whom it wakes (rule 44, rule 48)."""

from daybook.core.bookie.decisions import KeyLearned
from daybook.core.bookie.ledger import Purpose
from daybook.core.format.lac_table import LacRow, lac_table
from daybook.core.ids import EntryId, LedgerId
from tests.fixtures.memory_bookie import Decided
from tests.unit.core.bookie.test_bookie import KEY, LEDGER, RECOVERER, WRITER
from tests.unit.core.bookie.test_machine import Bookie, frame

OTHER = 8


def publish(bookie: Bookie, *rows: LacRow, stream: int = WRITER) -> Decided:
    decided = Decided()
    bookie.machine.publish(stream, rows, decided)
    return decided


def lac_of(bookie: Bookie, ledger_id: LedgerId = LEDGER) -> tuple[EntryId, int]:
    lac = bookie.machine.lac(ledger_id)
    return lac.last_add_confirmed, lac.length_at_lac


def written() -> Bookie:
    """A bookie with an entry of an attached ledger."""
    bookie = Bookie()
    bookie.enter()
    bookie.send(frame(0))
    return bookie


def test_rule_48_a_row_raises_the_lac_and_its_length_and_is_journalled_once() -> None:
    bookie = written()
    assert publish(bookie, LacRow(LEDGER, 0, 3)).records == [lac_table([LacRow(LEDGER, 0, 3)])]
    assert lac_of(bookie) == (0, 3)
    assert bookie.storage.known[LEDGER].last_add_confirmed == 0
    again = publish(bookie, LacRow(LEDGER, 0, 3))
    assert (again.records, again.news) == ([], []), "it is known, and queued for the journal already"


def test_a_lac_never_goes_back() -> None:
    bookie = written()
    publish(bookie, LacRow(LEDGER, 5, 50))
    assert publish(bookie, LacRow(LEDGER, 4, 40)).records == []
    bookie.send(frame(1, lac=3))
    assert lac_of(bookie) == (5, 50)


def test_rule_48_rows_count_only_from_the_stream_that_its_writer_is_attached_to() -> None:
    bookie = written()
    bookie.enter(purpose=Purpose.RECOVERY, stream=RECOVERER)
    rows = LacRow(LEDGER, 0, 3), LacRow(OTHER, 0, 3)
    assert publish(bookie, *rows, stream=RECOVERER).records == [], "for a recovery it is attached alone"
    assert publish(bookie, *rows, stream=9).records == []
    bookie.machine.ledgers.detach(WRITER)
    assert publish(bookie, *rows).records == [], "the stream ended"
    assert lac_of(bookie) == (-1, 0)
    assert OTHER not in bookie.storage.known


def test_rule_48_rows_never_pass_a_fence_durable_or_not() -> None:
    bookie = written()
    bookie.fence(durable=False)
    assert publish(bookie, LacRow(LEDGER, 0, 3)).records == []
    assert lac_of(bookie) == (-1, 0)


def test_rule_29_a_bookie_in_limbo_takes_no_row() -> None:
    bookie = written()
    bookie.machine.mark_limbo(LEDGER, "ab" * 16)
    assert publish(bookie, LacRow(LEDGER, 0, 3)).records == []


def test_rule_30_without_space_rows_vanish() -> None:
    bookie = written()
    bookie.machine.set_space(takes_all=False, keeps_reserve=True)
    assert publish(bookie, LacRow(LEDGER, 0, 3)).records == []
    bookie.machine.set_space(takes_all=True, keeps_reserve=True)
    assert publish(bookie, LacRow(LEDGER, 0, 3)).records


def test_only_rows_that_a_long_poll_waits_for_are_news() -> None:
    bookie = written()
    bookie.waiting.add(LEDGER)
    ((ledger_id, lac),) = publish(bookie, LacRow(LEDGER, 0, 3)).news
    assert (ledger_id, lac.last_add_confirmed, lac.length_at_lac) == (LEDGER, 0, 3)
    bookie.waiting.clear()
    assert publish(bookie, LacRow(LEDGER, 1, 6)).news == []


def test_what_a_ledger_still_owes_the_journal_goes_before_its_row() -> None:
    bookie = Bookie()
    bookie.enter()
    first = publish(bookie, LacRow(LEDGER, 0, 3))
    assert first.records == [KeyLearned(LEDGER, KEY, introduced=True), lac_table([LacRow(LEDGER, 0, 3)])]


def test_a_row_is_noticed_by_who_watches_the_ledger() -> None:
    bookie = written()
    (watch,) = bookie.machine.watches.begin([LEDGER])
    publish(bookie, LacRow(LEDGER, 0, 3))
    assert watch.changes == 1
