"""Journal, cache and store against a dictionary, through crashes anywhere: what was synced is there, and only that."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest
from daybook_bookie.disk.errors import BookieMustStopError
from daybook_bookie.journal.format import (
    LedgerIntro,
    Record,
    deletion_record,
    fence_record,
    intro_record,
    limbo_clear_record,
    limbo_record,
)
from daybook_bookie.store.checkpoint import CheckpointFile
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.reading import add_block
from daybook_bookie.store.removing import delete_some
from daybook_bookie.store.storage import Storage
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from daybook.core.format.frame import decode_header
from daybook.core.format.intervals import IntervalSet
from daybook.core.quorum import DENSE, Stripe
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.kit import entries, frame, memory_directory, open_storage, read_all

LEDGERS = st.integers(1, 3)
STRIPES = st.sampled_from([DENSE, Stripe(3, 0b011), Stripe(3, 0b110), Stripe(5, 0b10011)])
NONCES = st.sampled_from([bytes([n] * 16) for n in range(3)])


class Ledger:
    """What a model knows of a ledger."""

    def __init__(self) -> None:
        self.must: set[int] = set()
        self.may: set[int] = set()
        self.fenced = self.maybe_fenced = False
        self.limbo: set[bytes | None] = {None}
        self.lac = {-1}


class StorageMachine(RuleBasedStateMachine):
    """`must` is what was synced; `may` also what was only accepted."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = memory_directory()
        self.disk = SimDisk()
        self.model: dict[int, Ledger] = {}
        self.deleted: set[int] = set()
        self.waiting: list[Record] = []
        self.unsynced: list[tuple[int, set[int]]] = []
        self.patch = pytest.MonkeyPatch()
        self.base = 0

    @initialize()
    def create(self) -> None:
        self.storage = self.reopened(new=True)

    def reopened(self, *, new: bool = False) -> Storage:
        return open_storage(Path(self.directory.name), self.disk, new=new)

    def teardown(self) -> None:
        self.patch.undo()
        self.storage.store.close()
        self.directory.cleanup()

    def ledger(self, number: int) -> tuple[int, Ledger]:
        """A ledger that was not deleted: ids are never used again."""
        ledger_id = self.base + number
        return ledger_id, self.model.setdefault(ledger_id, Ledger())

    @rule(number=LEDGERS, first=st.integers(0, 40), count=st.integers(1, 12), stripe=STRIPES)
    def accept(self, number: int, first: int, count: int, stripe: Stripe) -> None:
        ledger_id, model = self.ledger(number)
        ids = [n for n in range(first, first + count) if stripe.holds(n)]
        if not ids:
            return
        data = frame(ledger_id, ids, stripe=stripe)
        self.waiting.append(self.storage.accept(data, decode_header(data)))
        model.may |= set(ids)
        self.unsynced.append((ledger_id, set(ids)))

    @rule(number=LEDGERS, lac=st.integers(0, 30))
    def publish_lac(self, number: int, lac: int) -> None:
        ledger_id, model = self.ledger(number)
        data = frame(ledger_id, [], lac=lac, length=10 * lac)
        self.waiting.append(self.storage.accept(data, decode_header(data)))
        self.sync()
        model.lac = {max(model.lac | {lac})}

    @rule()
    def sync(self) -> None:
        self.storage.journal.append(self.waiting)
        self.storage.journal.sync()
        self.waiting = []
        for ledger_id, ids in self.unsynced:
            if ledger_id in self.model:
                self.model[ledger_id].must |= ids
        self.unsynced = []

    @rule()
    def append_without_sync(self) -> None:
        self.storage.journal.append(self.waiting)
        self.waiting = []

    @rule(number=LEDGERS)
    def fence(self, number: int) -> None:
        ledger_id, model = self.ledger(number)
        self.waiting.append(self.storage.decide(intro_record(LedgerIntro(ledger_id, 5, b"hash"))))
        self.waiting.append(self.storage.decide(fence_record(ledger_id)))
        self.sync()
        model.fenced = True

    @rule(number=LEDGERS, nonce=NONCES, clear=st.booleans())
    def limbo(self, number: int, nonce: bytes, clear: bool) -> None:
        ledger_id, model = self.ledger(number)
        record = limbo_clear_record(ledger_id, nonce) if clear else limbo_record(ledger_id, nonce)
        self.waiting.append(self.storage.decide(record))
        self.sync()
        if not clear:
            model.limbo = {nonce}
        elif nonce in model.limbo:
            model.limbo = {None}

    @rule()
    def flush(self) -> None:
        self.storage.flush(self.storage.begin_flush())
        self.storage.end_flush()

    @rule(number=LEDGERS, first=st.integers(0, 40))
    def accept_between_swap_and_flush(self, number: int, first: int) -> None:
        generation = self.storage.begin_flush()
        self.accept(number, first, 3, DENSE)
        self.sync()
        self.storage.flush(generation)
        self.storage.end_flush()

    @rule(number=LEDGERS, steps=st.integers(0, 4))
    def delete(self, number: int, steps: int) -> None:
        ledger_id, _ = self.ledger(number)
        self.waiting.append(self.storage.decide(deletion_record(ledger_id)))
        self.sync()
        del self.model[ledger_id]
        self.deleted.add(ledger_id)
        self.base += 10
        for _ in range(steps):
            delete_some(self.storage.store)

    @rule(number=LEDGERS, first=st.integers(0, 40), count=st.integers(1, 20), stripe=STRIPES)
    def remove(self, number: int, first: int, count: int, stripe: Stripe) -> None:
        """All is stored first, so that nothing of it comes back; then it is gone with the next flushes."""
        ledger_id, model = self.ledger(number)
        self.sync()
        self.flush()
        removed = IntervalSet()
        removed.add(first, first + count, stripe)
        self.storage.remove(ledger_id, removed)
        while self.storage.cache.has_changes:
            self.flush()
        gone = {n for n in model.may if removed.contains(n)}
        model.must -= gone
        model.may -= gone

    @rule()
    def kill(self) -> None:
        self.crash()

    @rule(noise=st.integers(0, 2**32 - 1))
    def power_cut(self, noise: int) -> None:
        self.disk = self.disk.power_cut(lambda _, sector: bool(noise >> sector % 32 & 1))
        self.crash()

    @rule(commits=st.integers(0, 3), checkpoint=st.booleans())
    def crash_while_flushing(self, commits: int, checkpoint: bool) -> None:
        left = [commits]

        def stop(real: Callable[..., object]) -> Callable[..., None]:
            def call(*arguments: object) -> None:
                if not left[0]:
                    raise BookieMustStopError("here") if checkpoint else lmdb.DiskError("here")
                left[0] -= 1
                real(*arguments)

            return call

        owner, name = (CheckpointFile, "write") if checkpoint else (Environment, "commit")
        generation = self.storage.begin_flush()
        with self.patch.context() as patch:
            patch.setattr(owner, name, stop(getattr(owner, name)))
            with suppress(BookieMustStopError):
                self.storage.flush(generation)
        self.disk = self.disk.power_cut(lambda *_: False)
        self.crash()

    def crash(self) -> None:
        self.storage.store.close()
        self.waiting, self.unsynced = [], []
        self.storage = self.reopened()
        for ledger_id, model in self.model.items():
            found = {entry.entry_id for entry in read_all(self.storage, ledger_id)}
            assert model.must <= found <= model.may
            model.must, model.may = set(found), set(found)

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        for ledger_id, model in self.model.items():
            assert read_all(self.storage, ledger_id) == entries(sorted(model.may))
            record = self.storage.ledger(ledger_id)
            if record is None:
                assert not model.must
                assert not model.fenced
                continue
            assert record.fenced == model.fenced
            assert record.limbo in model.limbo
            assert record.last_add_confirmed in model.lac
            assert record.length_at_lac == max(0, 10 * record.last_add_confirmed)
            if model.fenced:
                assert record.password_hash == b"hash"
        for ledger_id in self.deleted:
            assert self.storage.ledger(ledger_id) is None
            assert read_all(self.storage, ledger_id) == []

    @invariant()
    def blocks_do_not_overlap_and_are_what_the_index_says(self) -> None:
        store = self.storage.store
        for ledger_id, record in store.ledgers().items():
            index, end = IntervalSet(), -1
            with store.blocks(ledger_id) as blocks:
                for block in blocks.overlapping(0, record.intervals.last):
                    assert block.first > end
                    end = block.last
                    add_block(index, block)
            assert index == record.intervals


TestStorage = StorageMachine.TestCase
TestStorage.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
