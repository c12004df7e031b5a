"""LMDB's store and the simulator's model of it through the same flushes, crashes and damage: they answer alike.

The contract's tests (test_store_contract) are of each alone. Here a machine drives both at once.
"""

from copy import deepcopy
from itertools import pairwise
from pathlib import Path

from daybook_bookie.disk.errors import BookieMustStopError
from daybook_bookie.journal.format import START, Position, deletion_record, fence_record
from daybook_bookie.store import flushing
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.write_cache import WriteCache
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daybook.core.format.block import Block, sound_parts
from daybook.core.format.frame import FLAG_RECOVERY, decode_header
from daybook.core.format.intervals import IntervalSet
from daybook.core.quorum import DENSE, Stripe
from tests.unit.bookie.store.benches import Bench, LmdbBench, ModelBench
from tests.unit.bookie.store.kit import frame, memory_directory

LEDGERS = st.integers(1, 3)
STRIPES = st.sampled_from([DENSE, Stripe(3, 0b011), Stripe(5, 0b10011)])


def copy_of(generation: Generation) -> Generation:
    """With the same frames: nobody changes one."""
    frames = {id(block): block for pending in generation.ledgers.values() for block in pending.blocks}
    return deepcopy(generation, frames)


class BothStores(RuleBasedStateMachine):
    """The same generations for LMDB and for the model: they answer alike."""

    @initialize()
    def create(self) -> None:
        self.directory = memory_directory()
        self.lmdb, self.model = LmdbBench(Path(self.directory.name)), ModelBench()
        self.benches: tuple[Bench, Bench] = (self.lmdb, self.model)
        self.cache = WriteCache()
        self.offset = 0
        self.base = 0

    def teardown(self) -> None:
        self.lmdb.shut()
        self.directory.cleanup()

    @rule(number=LEDGERS, first=st.integers(0, 40), count=st.integers(1, 12), stripe=STRIPES)
    def accept(self, number: int, first: int, count: int, stripe: Stripe) -> None:
        ids = [n for n in range(first, first + count) if stripe.holds(n)]
        if ids:
            data = frame(self.base + number, ids, stripe=stripe)
            self.cache.add_frame(data, decode_header(data))

    @rule(number=LEDGERS, lac=st.integers(0, 30))
    def decide(self, number: int, lac: int) -> None:
        self.cache.apply(fence_record(self.base + number))
        data = frame(self.base + number, [], lac=lac, length=10 * lac)
        self.cache.add_frame(data, decode_header(data))

    @rule(number=LEDGERS, first=st.integers(0, 40), count=st.integers(1, 20))
    def remove(self, number: int, first: int, count: int) -> None:
        removed = IntervalSet()
        removed.add(first, first + count)
        self.cache.remove(self.base + number, removed)

    @rule(number=LEDGERS)
    def delete(self, number: int) -> None:
        self.cache.apply(deletion_record(self.base + number))
        self.flush()
        self.base += 10

    @rule(number=LEDGERS, first=st.integers(0, 40), count=st.integers(1, 20))
    def repair(self, number: int, first: int, count: int) -> None:
        data = frame(self.base + number, range(first, first + count), flags=FLAG_RECOVERY)
        self.cache.add_frame(data, decode_header(data))

    @rule()
    def flush(self) -> None:
        generation = self.cache.swap()
        self.offset += 4096
        for bench in self.benches:
            flushing.flush(bench.store, copy_of(generation), Position(1, self.offset))
        self.cache.drop_flushed()

    @rule()
    def remove_deleted(self) -> None:
        assert len({delete_some(bench.store) for bench in self.benches}) == 1

    @rule(commits=st.integers(0, 3), happened=st.booleans())
    def crash_in_a_flush(self, commits: int, happened: bool) -> None:
        generation = self.cache.swap()
        self.cache = WriteCache()
        outcomes = set()
        for bench in self.benches:
            bench.fail_commit(commits, happened=happened)
            try:
                flushing.flush(bench.store, copy_of(generation), START)
                outcomes.add("stored")
            except BookieMustStopError:
                outcomes.add("stopped")
            bench.reopen()
        assert len(outcomes) == 1

    @rule(number=LEDGERS, at=st.integers(0, 50), vanish=st.booleans(), byte=st.integers(0, 75))
    def damage(self, number: int, at: int, vanish: bool, byte: int) -> None:
        ledger_id = self.base + number
        keys = self.lmdb.store.block_keys(ledger_id, 100)
        if keys:
            first = int.from_bytes(keys[at % len(keys)][8:], "big")
            for bench in self.benches:
                if vanish:
                    bench.take_out(ledger_id, first)
                else:
                    bench.flip(ledger_id, first, byte)

    @invariant()
    def they_are_alike(self) -> None:
        one, other = self.lmdb.store, self.model.store
        assert dict(one.ledgers()) == other.ledgers()
        assert one.deletions() == other.deletions()
        assert one.checkpoint == other.checkpoint
        for ledger_id in one.ledgers():
            assert one.block_keys(ledger_id, 1000) == other.block_keys(ledger_id, 1000)
            sound = [block for block in self.readable(ledger_id) if sound_parts(block) == [block]]
            assert all(before.last < after.first for before, after in pairwise(sound))
            for first, last in ((0, 10**6), (7, 23)):
                assert self.lmdb.read(ledger_id, first, last) == self.model.read(ledger_id, first, last)

    def readable(self, ledger_id: int) -> list[Block]:
        """The blocks of the real store that can be read."""
        with self.lmdb.store.blocks(ledger_id) as blocks:
            return [block._replace(data=bytes(block.data)) for block in blocks.readable(0, 10**6)[0]]


TestBothStores = BothStores.TestCase
TestBothStores.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
