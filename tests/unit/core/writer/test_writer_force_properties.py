"""Deferred sync against bookies that lose, when they restart, all that no force has synced (rule 22).

Hypothesis draws the history; after every step each entry up to the LAC must be durable on its whole write set.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from daybook.core.effects import Closed, Forced
from daybook.core.errors import Code
from daybook.core.ids import BookieId, EntryId
from daybook.core.quorum import write_set
from tests.unit.core.writer.test_writer_properties import has
from tests.unit.core.writer.writer_world import WriterWorld


class DeferredHistory(RuleBasedStateMachine):
    """Appends, forces, restarts and, now and then, a failure."""

    world: WriterWorld
    volatile: dict[BookieId, set[EntryId]]
    durable: dict[BookieId, set[EntryId]]

    @initialize(quorum=st.sampled_from([(3, 3, 2), (3, 2, 1), (4, 2, 2)]))
    def create(self, quorum: tuple[int, int, int]) -> None:
        names = "abcd"[: quorum[0]]
        self.world = WriterWorld(" ".join(names), "x", quorum=quorum, deferred_sync=True)
        self.volatile = {name: set() for name in names}
        self.durable = {name: set() for name in names}
        self.tokens: list[int] = []

    @rule(count=st.integers(1, 3))
    def write(self, count: int) -> None:
        self.tokens.append(self.world.write(*["x"] * count))

    @rule()
    def force(self) -> None:
        self.tokens.append(self.world.force())

    @precondition(has(lambda world: world.unanswered))
    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        owing = sorted({sent.bookie for sent in self.world.unanswered})
        for bookie in data.draw(st.lists(st.sampled_from(owing), min_size=1, unique=True)):
            self._accept_all(bookie)

    def _accept_all(self, bookie: BookieId) -> None:
        for sent in self.world.owed(bookie):
            self.volatile[bookie].update(sent.entries)
            self.world.ack_sent(sent)

    @precondition(has(lambda world: world.forces))
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self._sync(data.draw(st.sampled_from(sorted(self.world.forces))))

    def _sync(self, bookie: BookieId) -> None:
        self.durable[bookie] |= self.volatile[bookie]
        self.volatile[bookie] = set()
        self.world.answer_force(bookie)

    @rule(data=st.data(), chance=st.integers(0, 3))
    def restart(self, data: st.DataObject, chance: int) -> None:
        if chance:
            return
        bookie = data.draw(st.sampled_from(sorted(self.volatile)))
        self.volatile[bookie] = set()
        self.world.restart(bookie)

    @precondition(has(lambda world: len(world.unanswered) > 3))
    @rule(code=st.sampled_from([Code.TIMEOUT, Code.BAD_FRAME]), chance=st.integers(0, 5))
    def fail(self, code: Code, chance: int) -> None:
        if chance == 0:
            self.world.fail(self.world.unanswered[0].bookie, code)

    @invariant()
    def what_is_confirmed_survives_every_restart(self) -> None:
        if not hasattr(self, "world"):
            return
        bookies = self.world.current.last_fragment.bookies
        for entry in range(self.world.lac + 1):
            for position in write_set(self.world.quorum, entry):
                assert entry in self.durable[bookies[position]], f"entry {entry} can be lost"

    def teardown(self) -> None:
        """No more faults: everything is answered, and the ledger ends at the LAC without another ensemble."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.tokens.append(world.close())
        for _ in range(100):
            if world.pending_cas is not None:
                world.cas()
            elif world.forces:
                self._sync(min(world.forces))
            elif world.unanswered:
                self._accept_all(world.unanswered[0].bookie)
        self.what_is_confirmed_survives_every_restart()
        answered = {*world.completed, *world.errors}
        answered |= {forced.token for forced in world.of_kind(Forced)}
        answered |= {closed.token for closed in world.of_kind(Closed) if closed.token is not None}
        assert set(self.tokens) == answered
        assert world.current.is_closed
        assert world.current.last_entry == world.lac
        assert len(world.current.fragments) == 1


TestDeferredHistory = DeferredHistory.TestCase
TestDeferredHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
