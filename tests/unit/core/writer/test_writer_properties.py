"""Whatever bookies, metadata store and time do, in any order: the judge of writer_world finds nothing.

Hypothesis draws the history. At the end the faults stop and everything is answered; then every append must have its
answer, and the ledger must be closed with every acknowledged entry on Qa of the bookies that its metadata names.
"""

from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from daybook.core.effects import Closed, Forced, HandleEnded
from daybook.core.errors import REACTIONS, Code, LedgerClosedError, Reaction
from daybook.core.events import CasOutcome
from daybook.core.ledger.metadata import LedgerState
from daybook.core.writer.policy import WriterPolicy
from tests.unit.core.writer.writer_world import Sent, WriterWorld

_QUORUMS = [(1, 1, 1), (3, 3, 2), (3, 2, 2), (3, 3, 1), (4, 2, 1), (5, 3, 2), (6, 2, 2), (5, 5, 3)]
_FAILURES = sorted(code for code, reaction in REACTIONS.items() if reaction is Reaction.BOOKIE_FAILURE)
_SETTINGS = settings(
    max_examples=100, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
_ROUNDS_MAX = 200
"""Rounds of answers after the faults: far more than any history needs, so that who still waits is stuck."""


def has(of_world: Callable[[WriterWorld], object]) -> Callable[[object], bool]:
    """A precondition on the machine's world."""
    return lambda machine: bool(of_world(machine.world))  # type: ignore[attr-defined]  # hypothesis passes the machine


class WriterHistory(RuleBasedStateMachine):
    """Plain ledgers: every kind of failure, lost and late answers, a ledger taken away by a recovery."""

    world: WriterWorld
    tokens: list[int]

    @initialize(
        quorum=st.sampled_from(_QUORUMS),
        spares=st.integers(0, 3),
        explicit=st.booleans(),
        frame_bytes=st.sampled_from([3, 256 * 1024]),
    )
    def create(self, quorum: tuple[int, int, int], spares: int, explicit: bool, frame_bytes: int) -> None:
        names = "abcdefghi"
        self.explicit = explicit
        self.next_id = 0
        self.is_fenced = False
        self.tokens = []
        self.world = WriterWorld(
            " ".join(names[: quorum[0]]),
            " ".join(names[quorum[0] : quorum[0] + spares]),
            quorum=quorum,
            policy=WriterPolicy(frame_bytes_target=frame_bytes, quorum_wait_ms=3000, lag_ms_max=2000),
            explicit_ids=explicit,
        )

    # The user.

    @rule(
        sizes=st.lists(st.integers(0, 2), min_size=1, max_size=4),
        order=st.randoms(use_true_random=False),
        flush=st.sampled_from([True, True, True, False]),
    )
    def append(self, sizes: list[int], order: object, flush: bool) -> None:
        ids = list(range(self.next_id, self.next_id + len(sizes)))
        self.next_id += len(sizes)
        order.shuffle(ids)  # type: ignore[attr-defined]  # a random.Random
        payloads = [bytes(size) for size in sizes]
        self.tokens.append(self.world.append_bytes(*payloads, ids=ids if self.explicit else None))
        if flush:
            self.world.flush()

    @rule()
    def force(self) -> None:
        self.tokens.append(self.world.force())

    # Bookies.

    def _answer(self, sent: Sent) -> None:
        if self.is_fenced:
            self.world.fail(sent.bookie, Code.FENCED, sent.entries[0] if sent.entries else None)
        else:
            self.world.ack_sent(sent)

    @precondition(has(lambda world: world.unanswered))
    @rule(data=st.data())
    def ack_one(self, data: st.DataObject) -> None:
        self._answer(data.draw(st.sampled_from(self.world.unanswered)))

    @precondition(has(lambda world: world.unanswered))
    @rule(data=st.data())
    def ack_all_of_some(self, data: st.DataObject) -> None:
        owing = sorted({sent.bookie for sent in self.world.unanswered})
        for bookie in data.draw(st.lists(st.sampled_from(owing), min_size=1, unique=True)):
            for sent in self.world.owed(bookie):
                self._answer(sent)

    @precondition(has(lambda world: world.all_sent))
    @rule(data=st.data())
    def ack_again(self, data: st.DataObject) -> None:
        """A duplicate, or the late answer of a bookie that was given up; it has the frame all the same."""
        sent = data.draw(st.sampled_from(self.world.all_sent))
        if not self.is_fenced:
            self.world.ack_sent(sent)

    @precondition(has(lambda world: world.unanswered))
    @rule(data=st.data(), code=st.sampled_from(_FAILURES))
    def fail(self, data: st.DataObject, code: Code) -> None:
        sent = data.draw(st.sampled_from(self.world.unanswered))
        self.world.fail(sent.bookie, code, sent.entries[0] if sent.entries else None)

    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        bookie = data.draw(st.sampled_from(sorted(self.world.bookies)))
        self.world.unanswered = [sent for sent in self.world.unanswered if sent.bookie != bookie]
        self.world.down(bookie)

    @rule(data=st.data())
    def registry_changes(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.world.bookies)), max_size=2))
        self.world.register(" ".join(sorted(set(self.world.bookies) - gone)))

    # The metadata store.

    @precondition(has(lambda world: world.pending_cas))
    @rule()
    def cas_is_answered(self) -> None:
        self.world.cas()

    @precondition(has(lambda world: world.pending_cas))
    @rule(applied=st.booleans())
    def cas_answer_is_lost(self, applied: bool) -> None:
        self.world.cas(CasOutcome.UNKNOWN, applied=applied)

    @precondition(has(lambda world: world.lost_cas))
    @rule()
    def lost_cas_arrives(self) -> None:
        self.world.lost_cas_arrives()

    @precondition(has(lambda world: world.pending_read is not None))
    @rule(fails=st.booleans())
    def read_is_answered(self, fails: bool) -> None:
        self.world.read(fails=fails)

    @rule(away=st.integers(0, 3))
    def metadata_connection(self, away: int) -> None:
        if away == 0:
            self.world.metadata_away()
        else:
            self.world.metadata_back()

    @precondition(has(lambda world: world.stored is not None and len(world.stored.fragments) > 1))
    @rule(data=st.data())
    def repair(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.world.current.fragments) - 2))
        bookies = self.world.current.fragments[index].bookies
        free = sorted(set(self.world.bookies) - set(bookies))
        if free and self.world.current.state is LedgerState.OPEN:
            self.world.repair(index, data.draw(st.sampled_from(bookies)), data.draw(st.sampled_from(free)))

    @precondition(has(lambda world: len(world.all_sent) > 12))
    @rule(chance=st.integers(0, 9))
    def recovery_begins(self, chance: int) -> None:
        if chance == 0 and self.world.current.state is LedgerState.OPEN:
            self.world.store(self.world.current.in_recovery())
            self.is_fenced = True

    # Time.

    @rule(ms=st.sampled_from([10, 60, 700, 1500]))
    def time_passes(self, ms: int) -> None:
        self.world.tick(ms)

    # The end.

    def _answer_all(self) -> None:
        """What is under way is answered; a history may leave hundreds of frames, so they are one round together."""
        for sent in list(self.world.unanswered):
            if (
                sent in self.world.unanswered
            ):  # an earlier answer may have ended the handle, or given the bookie up
                self._answer(sent)

    def teardown(self) -> None:
        """No more faults: everything must find its answer."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.register(" ".join(sorted(world.bookies)))
        world.metadata_back()
        close = world.close()
        for _ in range(_ROUNDS_MAX):
            if world.pending_cas is not None:
                world.cas()
            elif world.pending_read is not None:
                world.read()
            elif world.unanswered:
                self._answer_all()
            elif world.writer.metadata.is_closed or close in world.errors:
                break
            else:
                world.tick(1000)
        answered = {*world.completed, *world.errors, *(closed.token for closed in world.of_kind(Closed))}
        answered |= {forced.token for forced in world.of_kind(Forced)}
        assert {*self.tokens, close} <= answered, f"no answer: {sorted({*self.tokens, close} - answered)}"
        world.check_copies()
        if not self.is_fenced:
            assert world.current.is_closed
            assert world.current.last_entry == world.lac
            assert world.writer.metadata == world.current
        if world.end is None and not self.is_fenced and not self.explicit:
            assert set(self.tokens) <= answered - set(world.errors), "no reason to fail"
        refused = [error for error in world.errors.values() if not isinstance(error, LedgerClosedError)]
        assert not refused or self.explicit or world.of_kind(HandleEnded), "an append fails with a reason"
        assert world.writer.pending_bytes == 0


TestWriterHistory = WriterHistory.TestCase
TestWriterHistory.settings = _SETTINGS


def test_a_history_that_leaves_hundreds_of_frames_finds_its_end() -> None:
    """A user who only appended: nothing was answered when the faults stop, and everything is in the end."""
    history = WriterHistory()
    history.create(quorum=(5, 5, 3), spares=3, explicit=False, frame_bytes=3)
    for _ in range(_SETTINGS.stateful_step_count):
        history.append(sizes=[1, 2], order=Random(1), flush=True)
    assert len(history.world.unanswered) >= 5 * _SETTINGS.stateful_step_count
    history.teardown()
    assert len(history.world.completed) == _SETTINGS.stateful_step_count
