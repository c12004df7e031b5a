"""The writer: order, acknowledgement, the LAC and the error table. tests/model/scripts/writer_*.txt shows most of it as prose."""

import itertools

import pytest

from daybook.core.effects import CasMetadata, Complete, SendFrame
from daybook.core.errors import (
    Code,
    EntryIdError,
    LedgerClosedError,
    LedgerFencedError,
    MetadataError,
)
from daybook.core.events import FrameAcked, FrameFailed, LacLost
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import FRAME_ENTRIES_MAX, check_body, decode_header
from daybook.core.format.lac_table import LacRow
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import check_quorum
from daybook.core.writer.policy import WriterPolicy, quorum_warning
from daybook.core.writer.writer import LedgerWriter
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.writer.writer_world import WriterWorld


def _metadata(**changes: object) -> LedgerMetadata:
    fields = {"fragments": (Fragment(0, 0, ("a", "b", "c")),), "writer_token": "w1", **changes}
    return LedgerMetadata(7, check_quorum(3, 3, 2), **fields)  # type: ignore[arg-type]  # whatever a test asks for


def _writer(metadata: LedgerMetadata) -> LedgerWriter:
    return LedgerWriter(metadata, 0, placement=InOrder(), rng=_NoRandom(), bookies={"a": BookieInfo("a")})


class _NoRandom:
    def random(self) -> float:
        raise AssertionError("InOrder draws nothing")

    def randrange(self, stop: int, /) -> int:
        raise AssertionError("InOrder draws nothing")


# Sealing and sending.


def test_appends_gather_until_a_flush_and_share_one_frame() -> None:
    world = WriterWorld()
    assert world.append("x") == 1
    assert world.append("y", "z") == 2
    assert world.all_sent == []
    assert world.writer.has_unsealed
    sent = [effect for effect in world.flush() if isinstance(effect, SendFrame)]
    assert [effect.bookie for effect in sent] == ["a", "b", "c"]
    assert len({id(effect.frame) for effect in sent}) == 1, "one run of bytes for all bookies"
    header = decode_header(sent[0].frame)
    check_body(sent[0].frame, header)
    entries, damaged = decode_entries(sent[0].frame, header)
    assert [(entry.entry_id, entry.data) for entry in entries] == [(0, b"x"), (1, b"y"), (2, b"z")]
    assert damaged == []
    assert not world.writer.has_unsealed


def test_a_full_frame_leaves_without_a_flush_and_the_rest_waits() -> None:
    world = WriterWorld(policy=WriterPolicy(frame_bytes_target=100))
    token = world.append_bytes(*(bytes(30) for _ in range(10)))
    assert world.sent_to("a") == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    world.flush()
    assert world.sent_to("a")[3:] == [(9,)]
    world.ack("a b", 0)
    world.ack("a b", 3)
    world.ack("a b", 6)
    assert world.lac == 8
    assert world.completed == [], "an append completes when its last entry does"
    world.ack("a b")
    assert world.completed == [token]
    assert world.of_kind(Complete) == [Complete(token, 0, 9)]


def test_an_entry_larger_than_a_frame_gets_a_frame_of_its_own() -> None:
    world = WriterWorld(policy=WriterPolicy(frame_bytes_target=100))
    world.append_bytes(b"small", bytes(500), b"small")
    world.flush()
    assert world.sent_to("a") == [(0,), (1,), (2,)]


def test_frames_hold_no_more_entries_than_a_frame_may() -> None:
    world = WriterWorld()
    world.append_bytes(*[b""] * (FRAME_ENTRIES_MAX + 5))
    world.flush()
    assert [len(entries) for entries in world.sent_to("a")] == [FRAME_ENTRIES_MAX, 5]


def test_an_append_of_nothing_completes_at_once_without_entries() -> None:
    world = WriterWorld()
    world.append()
    assert world.of_kind(Complete) == [Complete(1, -1, -1)]
    assert world.writer.last_add_pushed == -1


def test_a_striped_ledger_sends_each_bookie_its_share() -> None:
    world = WriterWorld("a b c d e", "", quorum=(5, 3, 2))
    world.write("0", "1", "2", "3", "4", "5", "6")
    assert world.sent_to("a") == [(0, 3, 4, 5)]
    assert world.sent_to("b") == [(0, 1, 4, 5, 6)]
    assert world.sent_to("e") == [(2, 3, 4)]
    world.ack("a b c")
    assert world.lac == -1, "entry 3 has only one copy"
    world.ack("d e")
    assert world.lac == 6


def test_length_counts_payload_bytes_up_to_the_lac() -> None:
    world = WriterWorld()
    world.write("abc")
    world.write("de")
    world.ack("a b", 0)
    assert (world.writer._state.length, world.writer.length_at_lac) == (5, 3)
    world.write("f")
    assert world.all_sent[-1].header.length_at_lac == 3


@pytest.mark.pure
def test_a_ledger_runs_out_of_ids_before_frames_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = WriterWorld()
    monkeypatch.setattr("daybook.core.writer.queue.ENTRY_ID_MAX", 1)
    assert world.append("the last") not in world.errors
    token = world.append("one too many")
    assert isinstance(world.errors[token], EntryIdError)
    assert "continue in a new one" in str(world.errors[token])


# Rules.


def test_rule_08_a_weak_ack_quorum_is_warned_about() -> None:
    weak = {
        (write, ack)
        for write in range(1, 6)
        for ack in range(1, write + 1)
        if quorum_warning(check_quorum(write, write, ack)) is not None
    }
    assert weak == {(2, 1), (3, 1), (4, 1), (4, 2), (5, 1), (5, 2)}
    assert "use an ack quorum of at least 2" in str(quorum_warning(check_quorum(3, 3, 1)))
    assert "recovery needs 3 of every 3" in str(quorum_warning(check_quorum(3, 3, 1)))


def test_rule_13_after_a_fence_pending_appends_are_unknown_and_later_ones_are_not_written() -> None:
    world = WriterWorld()
    done, unknown, queued = world.write("x"), world.write("y"), world.append("z")
    world.ack("a b", 0)
    world.store(world.current.in_recovery())
    world.fail("c", Code.FENCED, 1)
    assert world.completed == [done]
    assert {token: type(error) for token, error in world.errors.items()} == dict.fromkeys(
        (unknown, queued), LedgerFencedError
    )
    assert "unknown" in str(world.errors[unknown])
    assert isinstance(world.end, LedgerFencedError)
    world.ack("a b")
    assert world.completed == [done], "nothing is acknowledged any more"
    late = world.append("late")
    assert isinstance(world.errors[late], LedgerClosedError)
    assert "nothing was written" in str(world.errors[late])
    assert world.of_kind(CasMetadata) == [], "whoever fenced the ledger closes it"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_rule_14_appends_complete_in_order_whatever_the_order_of_answers(order: tuple[int, ...]) -> None:
    world = WriterWorld()
    tokens = [world.write(f"entry {i}") for i in range(4)]
    acked: set[int] = set()
    for entry in order:
        world.ack("a b", entry)
        acked.add(entry)
        prefix = next((i for i in range(4) if i not in acked), 4)
        assert world.lac == prefix - 1
        assert world.completed == tokens[:prefix]


def test_rule_14_no_entry_is_acknowledged_with_fewer_than_qa_copies() -> None:
    world = WriterWorld("a b c d e", "", quorum=(5, 5, 3))
    world.write("x")
    for bookie, lac in (("c", -1), ("a", -1), ("e", 0)):
        world.ack(bookie)
        assert world.lac == lac


def test_rule_18_late_answers_of_a_replaced_bookie_change_nothing() -> None:
    world = WriterWorld()
    world.write("x")
    (late,) = world.owed("c")
    world.fail("c", Code.TIMEOUT)
    world.cas()
    assert world.current.last_fragment.bookies == ("a", "b", "d")
    for answer in (
        FrameAcked("c", late.send_id),
        FrameFailed("c", late.send_id, Code.FENCED),
        FrameFailed("c", late.send_id, Code.TIMEOUT),
    ):
        assert world.step(answer) == []
    assert world.down("c") == []
    world.ack("a")
    assert world.lac == -1, "c's copy is in no fragment and does not count"
    world.ack("d")
    assert world.lac == 0


def test_rule_18_an_answer_counts_once() -> None:
    world = WriterWorld()
    world.write("x")
    (sent,) = world.owed("a")
    world.ack_sent(sent)
    assert world.step(FrameAcked("a", sent.send_id)) == []
    assert world.step(FrameFailed("a", sent.send_id, Code.TIMEOUT)) == []
    assert world.lac == -1
    assert world.pending_cas is None


def test_rule_48_an_idle_writer_publishes_its_lac_within_100_ms() -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b")
    while not world.published:
        assert world.now_ms < 100
        world.tick(25)
    assert world.published == [(bookie, LacRow(LEDGER, 0, 1)) for bookie in "abc"]
    assert [sent for sent in world.all_sent if not sent.entries] == [], "a row of a table is enough"
    world.tick(1000)
    assert len(world.published) == 3, "once is enough"


def test_rule_48_the_policy_of_a_ledger_may_publish_later_and_never_after_more_than_a_second() -> None:
    world = WriterWorld(policy=WriterPolicy(lac_publish_ms=1000))
    world.write("x")
    world.ack("a b")
    world.tick(950)
    assert world.published == []
    world.tick(50)
    assert len(world.published) == 3
    with pytest.raises(ValueError, match="at most 1000 are allowed"):
        WriterPolicy(lac_publish_ms=1001)


def test_rule_48_what_may_have_vanished_is_published_again_as_it_is_by_then() -> None:
    world = WriterWorld()
    world.write("x")
    world.ack("a b")
    world.tick(50)
    world.write("y")
    world.ack("a b")
    world.published.clear()
    world.step(LacLost("c"))
    assert world.published == [("c", LacRow(LEDGER, 1, 2))]


def test_rule_48_nothing_is_published_again_to_a_bookie_that_gets_nothing_or_by_a_handle_that_ended() -> None:
    world = WriterWorld(spares="")
    world.write("x")
    world.ack("a b")
    world.fail("c", Code.IO_ERROR)
    world.tick(50)
    assert {bookie for bookie, _ in world.published} == {"a", "b"}, "c failed"
    world.published.clear()
    world.step(LacLost("c"))
    world.step(LacLost("z"))
    world.write("y")
    world.fail("a", Code.FENCED)
    world.step(LacLost("b"))
    assert world.published == []


def test_rule_48_a_busy_writer_sends_no_frames_for_the_lac_alone() -> None:
    world = WriterWorld()
    for _ in range(20):
        world.write("x")
        world.ack("a b c")
        world.write("y")
        world.tick(40)
        world.ack("a b c")
    assert world.published == []
    assert [sent for sent in world.all_sent if not sent.entries] == []


def test_rule_53_a_writer_needs_a_fresh_attach() -> None:
    attached = _metadata()
    with pytest.raises(MetadataError, match="rule 53"):
        attached.attached("w2")
    with pytest.raises(MetadataError, match="not attached"):
        _writer(_metadata(writer_token=None))
    with pytest.raises(MetadataError, match="IN_RECOVERY"):
        _writer(attached.in_recovery())
    with pytest.raises(MetadataError, match="written before"):
        _writer(attached.with_ensemble(3, 30, ("a", "b", "d")))
    assert _writer(attached).last_add_confirmed == -1


def test_rule_55_only_a_ledger_with_explicit_ids_takes_them() -> None:
    world = WriterWorld()
    token = world.append("x", ids=[5])
    assert isinstance(world.errors[token], EntryIdError)
    assert world.writer.last_add_pushed == -1


def test_a_flush_with_nothing_queued_sends_nothing() -> None:
    world = WriterWorld()
    assert world.flush() == []
    world.write("x")
    assert world.flush() == []
