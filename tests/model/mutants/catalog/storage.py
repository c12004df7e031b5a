"""Mutants of a bookie's storage: rule 23, rule 24, rule 25, rule 26, rule 27,
rule 29, rule 30, rule 44 and rule 54."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import daybook_bookie.journal.format
import daybook_bookie.journal.journal
import daybook_bookie.store.checkpoint
import daybook_bookie.store.reading
import daybook_bookie.store.store
import daybook_bookie.store.stored_ledger
import pytest
from daybook_bookie.disk.disk import DiskFile
from daybook_bookie.disk.errors import CorruptStoreError
from daybook_bookie.journal.format import Position, Record, fence_record, file_name
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.replay import JournalReplay
from daybook_bookie.journal.spare import SPARE, USED, SpareFile
from daybook_bookie.store import flushing, removing
from daybook_bookie.store.entry_store import EntryStore, Space
from daybook_bookie.store.environment import Environment
from daybook_bookie.store.generation import Generation
from daybook_bookie.store.index import LedgerIndex
from daybook_bookie.store.reading import BlockReader
from daybook_bookie.store.storage import Storage
from daybook_bookie.store.store import Store
from daybook_bookie.store.write_cache import WriteCache

from daybook.core.bookie.life import Start
from daybook.core.bookie.range_scan import RangeScan
from daybook.core.format.block import Block
from daybook.core.format.frame import FrameHeader
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import NO_ENTRY
from tests.model.mutants.catalog.swarms import BROKEN_FLUSHES, DAMAGE, FAILED_SYNCS, FULL_JOURNALS, JOURNALS
from tests.model.mutants.registry import around, instead_of, mutant

_STORAGE = "the simulator's disks have no pages of LMDB, no cookies and no second try after a failure"
by_test = partial(mutant, not_simulated=_STORAGE)

JOURNAL = "tests/unit/bookie/journal/test_journal.py::"
STORE = "tests/unit/bookie/store/test_store.py::"
CONTRACT = "tests/unit/bookie/store/test_store_contract.py::"
REUSE = "tests/unit/bookie/journal/test_journal_reuse.py::"
REPLAY = "tests/unit/bookie/journal/test_journal_replay.py::"
OPENING = "tests/unit/bookie/store/test_store_opening.py::"
REMOVAL = "tests/unit/bookie/store/test_store_removal.py::"
STORE_SPACE = "tests/unit/bookie/store/test_store_space.py::"


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


@mutant(23, JOURNAL + "test_rule_23_a_failed_write_or_fsync_stops_the_bookie_for_good", swarm=JOURNALS)
@instead_of(Journal, "sync")
def syncs_are_skipped(journal: Journal) -> Position:
    "What was written is called durable, and answered, without a sync."
    journal.durable = journal.written
    return journal.durable


@mutant(25, JOURNAL + "test_rule_25_damage_before_a_durable_position_is_refused", swarm=DAMAGE)
def replays_believe_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    "A replay does not check the checksums of frames."
    monkeypatch.setattr(daybook_bookie.journal.format, "check_frame", _nothing)


@mutant(
    25,
    REUSE + "test_rule_25_older_records_of_the_same_sizes_are_not_taken_for_a_torn_groups",
    not_simulated="nearly all groups of the simulator are smaller than a sector, and so whole or absent",
)
@instead_of(SpareFile, "_zeroed")
def used_files_keep_what_they_had(spare: SpareFile) -> DiskFile:
    "A file is used again as it is: behind a torn group's header lie older frames of the same sizes, with sound checksums."
    spare._disk.rename(USED, SPARE)
    spare._has_used = False
    return spare._disk.open(SPARE)


@mutant(
    26,
    "tests/unit/bookie/service/test_server_reads.py::test_rule_26_a_damaged_entry_is_named_and_never_left_out",
    slow=True,
    swarm=DAMAGE,
)
@around(RangeScan, "_from_store")
def damage_is_left_out(from_store: Any, scan: RangeScan, first: int, end: int, room_bytes: int) -> Any:
    "A read passes over what it cannot read, as if it had never been there."
    blocks = from_store(scan, first, end, room_bytes)
    scan.damaged = NO_ENTRY
    return blocks


@by_test(23, JOURNAL + "test_rule_23_a_failed_write_or_fsync_stops_the_bookie_for_good")
def journal_goes_on_after_a_failed_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    "A journal whose fsync failed accepts the next write, as if the lost pages were still dirty."
    monkeypatch.setattr(Journal, "_check_alive", _nothing)


@mutant(
    23,
    REPLAY + "test_rule_23_what_a_failed_sync_left_readable_is_written_again_before_it_counts",
    swarm=FAILED_SYNCS,
)
@instead_of(JournalReplay, "rewrite")
def replays_sync_what_they_read(replay: JournalReplay) -> None:
    "What a replay read is synced, and not written: the kernel calls the pages of a failed sync clean."
    for file_id, _, _ in replay._to_rewrite:
        replay._disk.open(file_name(file_id)).fdatasync()
    replay._to_rewrite.clear()


@by_test(
    23,
    (OPENING + "test_rule_23_the_newest_page_is_written_again_before_the_checkpoint_says_that_it_is_there"),
)
def the_newest_page_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    "The checkpoint calls a commit certain whose page was only read."
    monkeypatch.setattr(Environment, "rewrite_meta_pages", _nothing)


@by_test(23, STORE + "test_rule_23_a_failed_commit_or_checkpoint_stops_the_bookie_for_good")
def store_takes_a_failed_commit_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    "A failed commit is answered like a full disk, so the store commits again."
    monkeypatch.setattr(Environment, "is_full", lambda *_: True)


@mutant(24, STORE + "test_rule_24_what_comes_after_the_swap_is_replayed", swarm=JOURNALS)
@instead_of(Storage, "flush")
def checkpoint_is_taken_after_the_flush(storage: Storage, generation: Any, *_: Any) -> None:
    "The flush claims the journal up to where it is now, not to where it was at the swap."
    flushing.flush(storage.store, generation, storage.journal.durable)
    storage.journal.trim(storage.store.checkpoint)


@mutant(
    24, STORE + "test_rule_24_a_crash_between_any_two_commits_of_a_flush_loses_nothing", swarm=BROKEN_FLUSHES
)
def checkpoint_moves_with_the_first_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    "Every commit of a flush carries the checkpoint that only the last one may."
    flush = flushing.flush

    class AtTheEnd:
        """The store, with the checkpoint that the flush will end with."""

        def __init__(self, store: EntryStore, checkpoint: Position) -> None:
            self._store, self.checkpoint = store, checkpoint

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def flush_at_the_end(store: EntryStore, generation: Any, checkpoint: Position, *rest: Any) -> Any:
        return flush(cast("EntryStore", AtTheEnd(store, checkpoint)), generation, checkpoint, *rest)

    monkeypatch.setattr(flushing, "flush", flush_at_the_end)


@mutant(25, JOURNAL + "test_rule_25_damage_before_a_durable_position_is_refused", swarm=DAMAGE)
def damage_is_a_torn_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    "Any damage is taken for a torn tail."
    monkeypatch.setattr(JournalReplay, "_refuse_if_durable", _nothing)


@by_test(25, JOURNAL + "test_rule_25_a_clean_close_makes_damage_of_the_last_group_known")
def close_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    "A closed journal does not record how much of it was durable."
    monkeypatch.setattr(Journal, "close", Journal.sync)


@by_test(26, CONTRACT + "test_rule_26_what_vanished_is_an_error_and_never_an_absence")
@around(BlockReader, "read")
def a_miss_is_an_absence(
    real: Callable[..., list[bytes]], reader: BlockReader, *arguments: Any
) -> list[bytes]:
    "What LMDB does not find does not exist."
    try:
        return real(reader, *arguments)
    except CorruptStoreError:
        return []


@by_test(26, CONTRACT + "test_rule_26_a_repair_of_many_unreadable_blocks_takes_their_place")
@around(BlockReader, "readable")
def unreadable_blocks_stay(real: Any, reader: BlockReader, first: int, last: int) -> Any:
    "A flush leaves what it cannot read where it is, in front of what it puts."
    return real(reader, first, last)[0], []


@by_test(47, CONTRACT + "test_rule_47_a_removal_from_a_block_whose_last_row_is_damaged_ends_with_the_block")
@instead_of(daybook_bookie.store.reading, "bounded")
def a_damaged_block_ends_where_it_says(block: Block, _following: int) -> Block:
    "A row that nothing has checked says which entry is the block's last."
    return block


@by_test(26, STORE + "test_rule_26_a_ledger_record_or_root_that_vanished_or_changed_stops_the_start")
def records_need_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    "The root's sum of digests is not compared."
    monkeypatch.setattr(LedgerIndex, "check", _nothing)


@by_test(26, STORE + "test_rule_26_a_store_older_than_its_checkpoint_is_refused")
def the_checkpoint_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    "A store that fell back to an older meta page is opened."
    monkeypatch.setattr(daybook_bookie.store.store, "refuse_unless_current", _nothing)


@by_test(27, STORE_SPACE + "test_rule_27_space_that_deletions_free_counts_as_free")
def only_the_file_system_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    "Pages that LMDB can use again are not counted as free."
    real = Store.space
    monkeypatch.setattr(Store, "space", lambda store: Space(real(store).file_system_free, 0, 0))


@by_test(
    29,
    "tests/unit/bookie/identity/test_cookies.py::test_rule_29_whatever_is_missing_refuses_unless_a_replacement_was_authorised",
)
def an_empty_directory_is_a_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    "Whatever is missing is taken for a new bookie."
    import tests.unit.bookie.identity.test_cookies

    monkeypatch.setattr(
        tests.unit.bookie.identity.test_cookies, "check_cookies", lambda *_, **__: Start.FIRST
    )


@by_test(30, JOURNAL + "test_rule_30_no_room_for_a_file_is_read_only_and_ends_when_there_is_room")
def a_full_disk_poisons(monkeypatch: pytest.MonkeyPatch) -> None:
    "No space at preallocation stops the bookie."
    monkeypatch.setattr(daybook_bookie.journal.journal, "FULL", frozenset())


@by_test(30, OPENING + "test_rule_30_a_full_disk_that_copies_on_write_refuses_commits_and_opens")
def a_checkpoint_without_room_poisons(monkeypatch: pytest.MonkeyPatch) -> None:
    "No room for the checkpoint stops the bookie, at each start again."
    monkeypatch.setattr(daybook_bookie.store.checkpoint, "FULL", frozenset())


@by_test(
    30,
    (
        REPLAY
        + "test_rule_30_a_journal_that_finds_no_room_to_write_again_starts_and_promises_nothing_until_it_does"
    ),
)
def what_is_owed_counts_as_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    "What a replay had no room to write again is answered for all the same."
    monkeypatch.setattr(JournalReplay, "needs_rewrite", False)


@by_test(44, STORE + "test_rule_44_a_raised_lac_is_noticed_even_under_a_sound_outer_checksum")
def lac_and_length_have_no_checksum_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    "The pair's checksum is a constant."
    monkeypatch.setattr(daybook_bookie.store.stored_ledger, "pair_crc", lambda *_: 0)


@mutant(
    54, STORE + "test_rule_54_a_resend_is_journalled_although_the_first_is_in_the_cache", swarm=FULL_JOURNALS
)
@around(Storage, "accept")
def a_duplicate_is_not_journalled(real: Any, storage: Storage, data: Any, header: FrameHeader) -> Record:
    "A frame that the cache has already is answered without a sync of its own."
    known = storage.cache.next_from(header.ledger_id, header.first_entry)
    record = real(storage, data, header)
    return record if known is None else fence_record(10**9)


@mutant(
    43,
    "tests/unit/bookie/store/test_write_cache.py::test_rule_43_an_entry_is_found_before_the_journal_has_it_during_the_flush_and_after",
    swarm=JOURNALS,
)
def the_cache_lets_go_at_the_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    "A generation that is being flushed is no longer readable."
    monkeypatch.setattr(
        WriteCache,
        "pending",
        lambda cache, ledger_id: [
            generation.ledgers[ledger_id]
            for generation in cache.generations[-1:]
            if ledger_id in generation.ledgers
        ],
    )


@by_test(47, CONTRACT + "test_rule_47_removed_replicas_are_gone_and_what_was_added_since_stays")
def a_removal_forgets_what_shares_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    "Whole blocks go, with entries that metadata still places here."
    monkeypatch.setattr(removing, "cut_rows", _nothing)


@by_test(47, REMOVAL + "test_rule_47_what_a_repair_brings_back_stays_though_its_removal_has_to_wait")
def late_removals_take_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    "A removal that waits for a later flush also takes what a repair brought with the flush before."
    monkeypatch.setattr(flushing, "_held", lambda _: IntervalSet())


@by_test(24, REMOVAL + "test_rule_24_a_repeated_flush_removes_nothing_that_came_after_the_removal")
def a_repeated_flush_removes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    "The checkpoint is past the frames that the same flush brought back: a crash loses them."
    remove = flushing._remove

    def forgetful(store: EntryStore, generation: Generation, on_progress: Callable[[], None]) -> None:
        removed = {key: pending.removed for key, pending in generation.ledgers.items()}
        remove(store, generation, on_progress)
        for ledger_id, entries in removed.items():
            generation.ledgers[ledger_id].removed = entries

    monkeypatch.setattr(flushing, "_remove", forgetful)
