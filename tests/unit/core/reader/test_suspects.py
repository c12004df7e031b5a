"""Suspected bookies: who is, for how long, and what it changes (rule 63)."""

import pytest

from daybook.core.effects import ReadFinished
from daybook.core.errors import Code
from daybook.core.events import Consumed, Tick
from daybook.core.reader.reader import LedgerReader
from daybook.core.reader.suspects import SUSPECTED_MS, Suspects
from daybook.core.reader.view import LedgerView
from tests.unit.core.reader.reading import SMALL, Reading, closed_cluster, expected
from tests.unit.core.small_cluster import ENTRY_BYTES


@pytest.mark.parametrize(
    ("code", "is_suspect"),
    [
        (Code.TIMEOUT, True),
        (Code.CONNECTION_LOST, True),
        (Code.IO_ERROR, True),
        (Code.UNAVAILABLE, True),
        (Code.TOO_MANY_REQUESTS, True),
        (Code.OK, False),
        (Code.UNAUTHORIZED, False),
        (Code.LIMBO, False),
        (Code.NO_SUCH_ENTRY, False),
    ],
)
def test_rule_63_only_a_failure_of_the_bookie_makes_it_suspect(code: Code, is_suspect: bool) -> None:
    suspects = Suspects()
    suspects.answered("b1", code, 0)
    assert bool(suspects.failures("b1", 1)) is is_suspect
    assert not suspects.failures("b2", 1)


def test_rule_63_a_suspicion_ends() -> None:
    suspects = Suspects()
    suspects.add("b1", 0)
    suspects.add("b1", 1000)
    assert suspects.failures("b1", SUSPECTED_MS + 999) == 2
    assert suspects.failures("b1", SUSPECTED_MS + 1000) == 0
    suspects.add("b1", SUSPECTED_MS + 1000)
    assert suspects.failures("b1", SUSPECTED_MS + 1000) == 1, "it begins anew"


def test_suspicions_that_ended_are_forgotten() -> None:
    suspects = Suspects()
    for n in range(1000):
        suspects.add(f"b{n}", n * SUSPECTED_MS)
    assert len(suspects._known) == 1


def test_rule_63_the_next_read_begins_with_another_replica() -> None:
    """The first read waits for a silent bookie; the next one of the same reader does not, and a minute later one does."""
    cluster = closed_cluster(last=7)
    view = LedgerView(cluster.meta)

    def begun(now_ms: int) -> Reading:
        return Reading(cluster, view.read(0, 7, policy=SMALL, now_ms=now_ms))

    first = begun(0)
    silent = first.asked[0].bookie
    first.queue.clear()
    first.feed(Tick(SMALL.speculate_ms))
    assert [ask.bookie for ask in first.asked] == [silent, first.asked[1].bookie]
    assert first.asked[1].bookie != silent
    assert begun(SMALL.speculate_ms + 1).asked[0].bookie != silent
    assert begun(SMALL.speculate_ms + SUSPECTED_MS).asked[0].bookie == silent


def test_rule_63_a_read_succeeds_with_bookies_that_are_all_suspected() -> None:
    cluster = closed_cluster()
    suspects = Suspects()
    for bookie in cluster.meta.bookies():
        suspects.add(bookie, 0)
    reading = Reading(cluster, LedgerReader(cluster.meta, 0, 99, suspects=suspects, policy=SMALL))
    reading.finish()
    assert reading.entries == expected(0, 99)
    assert reading.results[-1] == ReadFinished()


def test_rule_63_a_bookie_has_its_time_from_the_request_on() -> None:
    """The user takes a batch a minute after the last `Tick`, and a `Tick` follows before the next answer."""
    cluster = closed_cluster(last=99)
    suspects = Suspects()
    reader = LedgerReader(cluster.meta, 0, 99, policy=SMALL, suspects=suspects)
    reading = Reading(cluster, reader, consumes=False)
    reading.finish()
    asked = len(reading.asked)
    reader.pass_time(60_000)
    reading.feed(Consumed(len(reading.entries) * ENTRY_BYTES))
    sent = reading.asked[asked:]
    assert sent
    reading.feed(Tick(60_000 + SMALL.speculate_ms - 1))
    assert reading.asked[asked:] == sent, "nothing is asked for twice"
    assert not any(suspects.failures(bookie, 60_000) for bookie in cluster.bookies)
    reading.feed(Tick(60_000 + SMALL.speculate_ms))
    assert all(suspects.failures(ask.bookie, 60_000) for ask in sent)
