"""The last add confirmed: what a reader may take for it, and how a tail follows it."""

from collections.abc import Sequence

from daybook.core.effects import Effect, LacKnown, MetadataKnown, ReadFailed, ReadMetadata, SendLacRead
from daybook.core.errors import (
    Code,
    MetadataUnavailableError,
    NoSuchLedgerError,
    NotEnoughReplicasError,
    UnauthorizedError,
)
from daybook.core.events import (
    BookieFailed,
    LacAnswered,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ids import EntryId
from daybook.core.reader.lac import LacPolicy, LacReader
from daybook.core.reader.tail import LacTail, TailPolicy
from tests.unit.core.small_cluster import Cluster


def lac_answer(
    effect: SendLacRead, lac: EntryId, *, limbo: bool = False, fenced: bool = False
) -> LacAnswered:
    return LacAnswered(effect.bookie, effect.request_id, Code.OK, lac, limbo, fenced)


def polls(effects: Sequence[Effect]) -> list[SendLacRead]:
    return [e for e in effects if isinstance(e, SendLacRead)]


def started(tail: LacTail) -> list[SendLacRead]:
    """Start a tail whose metadata is up to date; its first poll."""
    poll, ask = tail.start()
    assert isinstance(poll, SendLacRead)
    assert isinstance(ask, ReadMetadata)
    assert tail.step(MetadataRead(ask.request_id, tail.metadata, 1)) == []
    return [poll]


def test_the_lac_is_the_highest_of_answers_that_meet_every_ack_quorum() -> None:
    reader = LacReader(Cluster(3, 3, 2).meta, is_new=True)
    first, second, third = polls(reader.start())
    assert reader.step(lac_answer(first, 4)) == []
    assert reader.step(lac_answer(second, 7)) == [LacKnown(7)]
    assert reader.step(lac_answer(third, 9)) == []


def test_a_lac_from_too_few_or_from_limbo_is_no_lac() -> None:
    for lenient in (False, True):
        reader = LacReader(Cluster(3, 3, 2).meta, lenient=lenient, is_new=True)
        first, second, third = polls(reader.start())
        assert reader.step(lac_answer(first, 4)) == []
        assert reader.step(lac_answer(second, 9, limbo=True)) == []
        (result,) = reader.step(BookieFailed(third.bookie))
        if lenient:
            assert result == LacKnown(4)
        else:
            assert isinstance(result, ReadFailed)
            assert isinstance(result.error, NotEnoughReplicasError)


def test_the_lac_is_never_before_the_last_fragment_and_a_close_is_final() -> None:
    cluster = Cluster(start=(10, 30))
    reader = LacReader(cluster.meta, is_new=True)
    first, second, _ = polls(reader.start())
    reader.step(lac_answer(first, -1))
    assert reader.step(lac_answer(second, -1)) == [LacKnown(9)]
    closed = cluster.meta.closed(12, 36)
    assert LacReader(closed).start() == [LacKnown(12, closed)]


def test_a_tail_reports_every_rise_and_never_goes_back() -> None:
    tail = LacTail(Cluster().meta)
    (poll,) = started(tail)
    reported: list[EntryId] = []
    for lac in [0, 3, 2, 3, 7, 1]:
        effects = tail.step(lac_answer(poll, lac))
        reported += [e.last_add_confirmed for e in effects if isinstance(e, LacKnown)]
        (poll,) = polls(effects)
        assert poll.known_lac == max(reported)
    assert reported == [0, 3, 7]


def test_a_tail_ends_with_the_metadata_of_the_close() -> None:
    cluster = Cluster()
    tail = LacTail(cluster.meta)
    (poll,) = started(tail)
    effects = tail.step(lac_answer(poll, 3, fenced=True))
    (ask,) = [e for e in effects if isinstance(e, ReadMetadata)]
    assert polls(effects)[0].known_fenced
    closed = cluster.meta.closed(5, 18)
    assert tail.step(MetadataRead(ask.request_id, closed)) == [LacKnown(5, closed)]
    assert tail.step(Tick(10**6)) == []


def test_a_tail_follows_the_writer_into_a_new_fragment() -> None:
    cluster = Cluster(spares=1)
    tail = LacTail(cluster.meta, policy=TailPolicy(metadata_ms=1000))
    (poll,) = started(tail)
    assert tail.step(Tick(999)) == []
    (ask,) = tail.step(Tick(1000))
    assert isinstance(ask, ReadMetadata)
    moved = cluster.meta.with_ensemble(6, 18, ("b4", "b2", "b3"))
    effects = tail.step(MetadataRead(ask.request_id, moved))
    assert effects[:2] == [MetadataKnown(moved), LacKnown(5)]
    assert polls(effects)[0].bookie in moved.last_fragment.bookies
    assert tail.step(lac_answer(poll, 9)) == []  # the poll of the old ensemble was given up


def test_a_tail_goes_round_the_bookies_and_pauses_when_all_fail() -> None:
    tail = LacTail(Cluster().meta)
    (poll,) = started(tail)
    asked = [poll.bookie]
    for _ in range(2):
        (poll,) = polls(tail.step(BookieFailed(poll.bookie)))
        asked.append(poll.bookie)
    assert sorted(asked) == ["b1", "b2", "b3"]
    effects = tail.step(lac_answer(poll, 3, limbo=True))
    assert polls(effects) == []
    assert [type(e) for e in effects] == [ReadMetadata]
    assert len(polls(tail.step(Tick(200)))) == 1


def test_a_tail_of_a_deleted_ledger_or_with_a_wrong_password_fails() -> None:
    tail = LacTail(Cluster().meta)
    started(tail)
    (ask,) = tail.step(Tick(1000))
    assert isinstance(ask, ReadMetadata)
    (result,) = tail.step(MetadataRead(ask.request_id, None))
    assert isinstance(result, ReadFailed)
    assert isinstance(result.error, NoSuchLedgerError)
    tail = LacTail(Cluster().meta)
    (poll,) = started(tail)
    (result,) = tail.step(LacAnswered(poll.bookie, poll.request_id, Code.UNAUTHORIZED))
    assert isinstance(result, ReadFailed)
    assert isinstance(result.error, UnauthorizedError)


def test_a_lac_reader_counts_each_bookie_once_and_needs_no_time() -> None:
    reader = LacReader(Cluster(3, 3, 2).meta, is_new=True)
    first, _, _ = polls(reader.start())
    reader.step(lac_answer(first, 4))
    assert reader.step(lac_answer(first, 9)) == [], "the same bookie again is no second one"
    assert reader.step(Tick(10**6)) == []
    assert not reader.is_done


def test_a_lac_that_is_refused_for_a_wrong_password_says_so() -> None:
    reader = LacReader(Cluster(3, 3, 2).meta, is_new=True)
    results = [
        reader.step(LacAnswered(poll.bookie, poll.request_id, Code.UNAUTHORIZED))
        for poll in polls(reader.start())
    ]
    ((failed,),) = [result for result in results if result]
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, UnauthorizedError)


def test_a_tail_drops_answers_that_it_does_not_wait_for() -> None:
    tail = LacTail(Cluster().meta, policy=TailPolicy(metadata_ms=100))
    (poll,) = started(tail)
    assert tail.step(BookieFailed("b3")) == [], "another bookie is polled"
    (ask,) = tail.step(Tick(100))
    assert isinstance(ask, ReadMetadata)
    assert tail.step(MetadataRead(ask.request_id + 1, None, 0)) == []
    assert tail.step(MetadataUnreadable(ask.request_id + 1)) == []
    assert tail.step(MetadataUnreadable(ask.request_id)) == []
    (again,) = tail.step(Tick(200))
    assert isinstance(again, ReadMetadata), "metadata that could not be read is read again when it is due"
    assert tail.step(MetadataRead(again.request_id, tail.metadata, 1)) == [], (
        "nothing moved: the poll goes on"
    )
    assert isinstance(tail.step(lac_answer(poll, 5))[0], LacKnown)


def asked(reader: LacReader) -> ReadMetadata:
    (ask,) = reader.start()
    assert isinstance(ask, ReadMetadata)
    return ask


def test_rule_59_a_refresh_asks_the_ensemble_that_metadata_names_now() -> None:
    """Two bookies of the opening's ensemble were replaced since: they answer in good faith with a LAC long past."""
    cluster = Cluster(3, 3, 2, spares=2)
    reader = LacReader(cluster.meta)
    ask = asked(reader)
    moved = cluster.meta.with_ensemble(6, 18, ("b1", "b4", "b3")).with_ensemble(9, 27, ("b1", "b4", "b5"))
    known, *effects = reader.step(MetadataRead(ask.request_id, moved, 3))
    assert known == MetadataKnown(moved)
    first, second, third = polls(effects)
    assert (first.bookie, second.bookie, third.bookie) == ("b1", "b4", "b5")
    assert reader.step(lac_answer(second, 8)) == []
    assert reader.step(lac_answer(third, 12)) == [LacKnown(12)]


def test_rule_59_a_refresh_sees_the_close_and_the_deletion() -> None:
    closed = Cluster().meta.closed(12, 36)
    reader = LacReader(Cluster().meta)
    ask = asked(reader)
    assert reader.step(MetadataRead(ask.request_id, closed, 3)) == [
        MetadataKnown(closed),
        LacKnown(12, closed),
    ]
    assert reader.step(Tick(10**6)) == []
    reader = LacReader(Cluster().meta)
    ask = asked(reader)
    (failed,) = reader.step(MetadataRead(ask.request_id, None))
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, NoSuchLedgerError)


def test_rule_59_without_metadata_only_a_lenient_refresh_asks_whom_it_knows() -> None:
    strict, lenient = (LacReader(Cluster().meta, lenient=way) for way in (False, True))
    ask = asked(strict)
    assert strict.step(MetadataUnreadable(ask.request_id + 1)) == []
    assert strict.step(Tick(10**6)) == [], "it waits for the metadata"
    (failed,) = strict.step(MetadataUnreadable(ask.request_id))
    assert isinstance(failed, ReadFailed)
    assert isinstance(failed.error, MetadataUnavailableError)
    ask = asked(lenient)
    assert [poll.bookie for poll in polls(lenient.step(MetadataUnreadable(ask.request_id)))] == [
        "b1",
        "b2",
        "b3",
    ]


def test_a_lenient_refresh_does_not_wait_for_metadata_for_ever() -> None:
    reader = LacReader(Cluster().meta, lenient=True, policy=LacPolicy(metadata_wait_ms=100), now_ms=50)
    ask = asked(reader)
    assert reader.step(Tick(149)) == []
    assert reader.step(BookieFailed("b1")) == []
    effects = polls(reader.step(Tick(150)))
    assert [poll.bookie for poll in effects] == ["b1", "b2", "b3"]
    moved = Cluster(spares=1).meta.with_ensemble(6, 18, ("b4", "b2", "b3"))
    assert reader.step(MetadataRead(ask.request_id, moved, 3)) == [], "it comes too late"
    reader.step(lac_answer(effects[0], 4))
    assert reader.step(lac_answer(effects[1], 2)) == [LacKnown(4)]


def test_rule_59_a_tail_looks_at_the_metadata_when_it_begins() -> None:
    cluster = Cluster(spares=1)
    tail = LacTail(cluster.meta)
    _, ask = tail.start()
    assert isinstance(ask, ReadMetadata)
    moved = cluster.meta.with_ensemble(6, 18, ("b4", "b2", "b3"))
    known, rise, poll = tail.step(MetadataRead(ask.request_id, moved, 3))
    assert (known, rise) == (MetadataKnown(moved), LacKnown(5))
    assert isinstance(poll, SendLacRead)
    assert LacTail(cluster.meta.closed(3, 9)).start() == [LacKnown(3, cluster.meta.closed(3, 9))]
