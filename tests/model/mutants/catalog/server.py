"""Mutants of the bookie's server: what rests on the order in which its parts are called."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import pytest
from daybook_bookie.disk import watch as disk_watch
from daybook_bookie.disk.errors import BookieMustStopError
from daybook_bookie.identity import boot, rollback
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.format import Record, RecordKind, frame_record
from daybook_bookie.journal.journal import Journal
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.service.append import AppendStream, LacTableItem, MessageItem
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.reads import Reads

from daybook.core.bookie.deletion import DeletionCycle
from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.life import BookieLife, MarkLimbo
from daybook.core.bookie.listing import Known
from daybook.core.bookie.machine import BookieMachine
from daybook.core.bookie.open_ledgers import OpenLedgers
from daybook.core.bookie.over_replicated import OverReplicatedRemoval
from daybook.core.bookie.watch import Watch, Watches
from daybook.core.errors import Code
from daybook.core.format.frame import Buffer, FrameHeader, decode_header
from daybook.metadata.ledgers import LedgerManager
from tests.model.mutants.catalog.swarms import REPAIRS
from tests.model.mutants.registry import around, mutant

_SERVER = "it is in the server's threads, sockets and boot, which the simulator models"
by_slow_test = partial(mutant, slow=True, not_simulated=_SERVER)
_NEVER_BACK = "the simulator's metadata store never goes back in time"

TABLES = "tests/unit/bookie/service/test_server_lac_tables.py::"
APPEND = "tests/unit/bookie/service/test_server_append.py::"
ATTACH = "tests/unit/bookie/service/test_server_attach.py::"
FENCE = "tests/unit/bookie/service/test_server_fence.py::"
RECOVERING = "tests/unit/bookie/service/test_server_recovering.py::"
READS = "tests/unit/bookie/service/test_server_reads.py::"
GC = "tests/unit/bookie/upkeep/test_server_gc.py::"
BOOT = "tests/unit/bookie/identity/test_server_boot.py::"
SPACE = "tests/unit/bookie/upkeep/test_server_space.py::"
ROLLBACK = "tests/unit/bookie/identity/test_server_rollback.py::"


@by_slow_test(2, FENCE + "test_rule_02_a_recovery_read_fences")
@around(Reads, "read")
def recovery_reads_only_read(read: Callable[..., Any], self: Reads, request: Any) -> Any:
    """A recovery read is served like any other."""
    request.fence = False
    return read(self, request)


@by_slow_test(2, RECOVERING + "test_rule_02_each_read_of_the_call_fences")
@around(Fencer, "fence_each")
def reads_among_many_only_read(fence_each: Any, self: Fencer, wanted: Any) -> Any:
    """Where several ledgers are recovered in one call, nothing is fenced for those that are read."""
    single = fence_each(self, wanted) if len(wanted) == 1 else None
    return single or [(Code.OK, LacAnswer(-1, 0, limbo=False, fenced=True))] * len(wanted)


@by_slow_test(4, RECOVERING + "test_rule_04_the_call_is_answered_only_when_all_its_fences_are_durable")
@around(Fencer, "_wait")
def fences_of_many_do_not_wait(wait: Any, self: Fencer, fences: Any) -> Any:
    """A call that fences several ledgers is answered while their records are still queued."""
    if len(fences) == 1:
        return wait(self, fences)
    return [(Code.OK, fence.lac) for _, decided in fences for fence, _ in decided]


@by_slow_test(3, FENCE + "test_rule_03_a_ledger_that_was_never_seen_is_created_and_fenced")
@around(Fencer, "fence_each")
def unknown_ledgers_are_not_fenced(fence_each: Any, self: Fencer, wanted: Any) -> Any:
    """A fence of a ledger that the bookie does not know is answered and forgotten."""
    with self._table.lock:
        is_known = [self._table.machine.ledgers.find(ledger_id) is not None for ledger_id, _ in wanted]
    fenced = iter(fence_each(self, list(compress(wanted, is_known))))
    forgotten = Code.OK, LacAnswer(-1, 0, limbo=False, fenced=True)
    return [next(fenced) if known else forgotten for known in is_known]


@by_slow_test(4, FENCE + "test_rule_04_a_fence_is_answered_only_when_it_is_durable")
def fences_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence is answered while its record is still queued."""
    monkeypatch.setattr(Barrier, "wait", lambda self, timeout_s: Code.OK)


@mutant(
    20,
    GC + "test_rule_20_a_writer_of_a_deleted_and_collected_ledger_writes_no_more",
    slow=True,
    not_simulated="no check of the simulator sees frames of a deleted ledger whose object stays; "
    "bookie.collection_keeps_attachments is the same fault where one does",
)
def writers_stay_attached_to_deleted_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection leaves the ledger's object, and with it the attachments, in place."""
    monkeypatch.setattr(OpenLedgers, "forget", lambda self, ledger_id: None)


@by_slow_test(
    20,
    ATTACH + "test_rule_20_the_metadata_is_read_after_a_sync_that_begins_after_the_attachment",
)
@around(LedgerManager, "read_each")
async def attachments_share_what_was_read_before_the_sync(
    read_each: Any, self: LedgerManager, ledger_ids: Any, *, sync: bool = False
) -> Any:
    """The metadata of a group of attachments is read while its sync is under way, so that it may be older."""
    found = await read_each(self, ledger_ids)
    if sync:
        await self._store.sync(self._layout.ledgers)
    return found


@by_slow_test(22, APPEND + "test_rule_22_deferred_frames_are_answered_at_once_and_a_force_after_the_sync")
def forces_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force is answered while deferred frames are still queued."""
    monkeypatch.setattr(Barrier, "wait", lambda self, timeout_s: Code.OK)


@by_slow_test(23, APPEND + "test_rule_23_nothing_is_answered_before_the_sync")
@around(JournalThread, "put")
def answers_come_when_a_message_is_queued(put: Any, self: JournalThread, item: Any) -> None:
    """A frame is answered as soon as the journal thread may see it."""
    put(self, item)
    if isinstance(item, MessageItem):
        stream, frames, item.frames = item._stream, item.frames, []
        stream.decide(item.message, frames, Code.OK)
        stream.send_answers()


@by_slow_test(23, APPEND + "test_rule_23_a_failed_sync_stops_the_bookie_without_an_answer")
@around(Journal, "sync")
def failed_syncs_are_passed_over(sync: Callable[..., Any], self: Journal) -> Any:
    """The journal continues after a failed fsync."""
    try:
        return sync(self)
    except BookieMustStopError:
        return self.written


@by_slow_test(26, READS + "test_rule_26_a_damaged_entry_is_named_and_never_left_out")
def damage_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged entry is answered as if it had never been stored."""
    monkeypatch.setattr("daybook_bookie.service.reads.add_damaged", lambda ranges, entry: None)


@mutant(28, GC + "test_rule_28_a_listing_that_leaves_a_ledger_out_deletes_nothing", slow=True)
@around(DeletionCycle, "metadata_read")
def listings_are_believed(
    metadata_read: Callable[..., bool], self: DeletionCycle, ledger_id: int, _metadata: Any
) -> bool:
    """What a listing leaves out is deleted without a direct read."""
    return metadata_read(self, ledger_id, None)


@by_slow_test(48, TABLES + "test_rule_48_a_long_poll_is_answered_once_the_row_is_durable")
@around(JournalThread, "put")
def rows_are_told_when_they_are_queued(put: Any, self: JournalThread, item: Any) -> None:
    """A long poll is answered with a row that the journal thread may see, and nothing has synced."""
    if isinstance(item, LacTableItem):
        item._shared.wake(item.news)
    put(self, item)


@by_slow_test(48, TABLES + "test_rule_48_a_long_poll_is_answered_once_the_row_is_durable")
def rows_wait_whoever_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is synced with what comes next even where a long poll waits for it."""
    monkeypatch.setattr(LacTableItem, "can_wait", True)


@mutant(
    62,
    ROLLBACK + "test_rule_62_nothing_is_collected_after_zookeeper_went_back",
    slow=True,
    not_simulated=_NEVER_BACK,
)
def metadata_is_believed_whatever_the_counter_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds what is here against the counter of ids."""
    monkeypatch.setattr(RollBackGuard, "judge", lambda self, highest_held, next_id: None)


@mutant(
    62,
    ROLLBACK + "test_rule_62_new_ledgers_that_lift_the_counter_and_a_restart_change_nothing",
    slow=True,
    not_simulated=_NEVER_BACK,
)
def a_roll_back_is_kept_in_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart forgets that ZooKeeper went back, once the counter has passed the proof."""
    monkeypatch.setattr(rollback, "read_whole", lambda *_: None)


@mutant(62, ROLLBACK + "test_rule_62_forged_fences_set_nothing_off", slow=True, not_simulated=_NEVER_BACK)
@around(LedgerTable, "known")
def a_mere_fence_proves_a_ledger(known: Callable[..., Known], self: LedgerTable) -> Known:
    """Whoever can open a connection stops the collection, by one fence."""
    found = known(self)
    return found._replace(highest_proved=max(found.ledger_ids, default=-1))


@by_slow_test(3, FENCE + "test_rule_03_a_fence_of_a_ledger_that_came_to_be_meanwhile_is_kept")
def what_happened_since_the_counter_was_read_is_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector drops the fence of a ledger that was created, and recovered, after the counter was read."""
    monkeypatch.setattr(Watches, "touched", lambda self, ledger_id: None)


@by_slow_test(29, BOOT + "test_rule_29_an_authorised_replacement_is_in_limbo_for_all_that_names_it")
@around(BookieLife, "step")
def replacements_vouch_for_everything(step: Callable[..., list[Any]], self: BookieLife, event: Any) -> Any:
    """A replaced bookie starts without limbo marks."""
    return [MarkLimbo(()) if isinstance(each, MarkLimbo) else each for each in step(self, event)]


@by_slow_test(29, BOOT + "test_rule_29_an_old_copy_of_the_directories_is_refused_after_a_replacement")
def incarnations_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any directory with the right name fits, however old."""
    monkeypatch.setattr(boot, "is_one_incarnation", lambda found, registered: True)


@mutant(30, SPACE + "test_rule_30_hysteresis", not_simulated=_SERVER)
def space_has_no_hysteresis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writable again as soon as usage falls below the full mark."""
    monkeypatch.setattr(disk_watch, "may_become_writable", lambda ratio, limits: ratio < limits.full)


@mutant(30, SPACE + "test_rule_30_a_full_bookie_keeps_a_reserve_for_recovery_fences_and_deletions", slow=True)
@around(BookieMachine, "set_space")
def space_keeps_no_reserve(
    set_space: Callable[..., None], self: BookieMachine[Record], *, takes_all: bool, keeps_reserve: bool
) -> None:
    """A read-only bookie refuses recovery's frames, too."""
    set_space(self, takes_all=takes_all, keeps_reserve=False)


@by_slow_test(43, FENCE + "test_rule_43_an_add_in_the_journal_queue_is_found_by_whoever_comes_later")
def frames_are_cached_when_they_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted frame becomes readable only after its sync."""
    cache: Callable[[BookieMachine[Record], FrameHeader, Buffer], Record] = BookieMachine._cache_frame
    settle = MessageItem.settle

    def later(self: BookieMachine[Record], header: FrameHeader, frame: Buffer) -> Record:
        return frame_record(frame)

    def settle_and_cache(self: MessageItem, code: Code) -> AppendStream:
        table = self._stream.shared.table
        with table.lock:
            for record in self.records:
                if record.kind is RecordKind.FRAME:
                    cache(table.machine, decode_header(record.body), record.body)
        return settle(self, code)

    monkeypatch.setattr(BookieMachine, "_cache_frame", later)
    monkeypatch.setattr(MessageItem, "settle", settle_and_cache)


@mutant(47, GC + "test_rule_47_an_add_since_the_metadata_was_read_keeps_everything", slow=True, swarm=REPAIRS)
@around(OverReplicatedRemoval, "may_remove")
def removals_do_not_look_for_adds(may_remove: Callable[..., bool], self: OverReplicatedRemoval) -> bool:
    """Over-replicated entries go even if the ledger was added to since its metadata was read."""
    return may_remove(replace(self, watch=Watch(self.watch.ledger_id)))


@by_slow_test(49, APPEND + "test_rule_49_mixed_success_and_error_in_one_message")
@around(AppendStream, "decide")
def refusals_are_not_told(
    decide: Any, self: AppendStream, message: int, frames: list[int], code: Code
) -> None:
    """A refused frame counts as decided, but its error is never sent."""
    decide(self, message, frames, Code.OK)


@by_slow_test(54, APPEND + "test_rule_54_a_resend_is_answered_only_when_it_is_durable")
@around(AppendStream, "_accept")
def resends_are_answered_at_once(
    accept: Any, self: AppendStream, item: MessageItem, message: bytes, frames: Any, refused: Any
) -> None:
    """A frame whose entries are in the cache already is answered without a sync."""
    cache = self.shared.table.storage.cache
    with self.shared.table.lock:
        known = [
            index
            for index, (header, _) in enumerate(frames)
            if (hit := cache.next_from(header.ledger_id, header.first_entry)) is not None
            and hit[0] == header.first_entry
        ]
    if len(known) == len(frames):
        self.decide(item.message, known, Code.OK)
        self.send_answers()
        self.shared.budget.give_back(item.size_bytes)
        # in order: what was sent before counts as durable as well
        for number in list(self._answers._undecided):
            self.decide(number, [0], Code.OK)
        self.send_answers()
    else:
        accept(self, item, message, frames, refused)


@by_slow_test(
    29,
    (
        "tests/unit/bookie/service/test_server_limbo.py::"
        "test_rule_29_a_mark_that_is_flushed_while_marks_are_listed_is_listed"
    ),
)
@around(LedgerTable, "limbo_marks")
def marks_are_looked_for_in_the_store_first(
    limbo_marks: Callable[..., dict[int, str]], self: LedgerTable
) -> dict[int, str]:
    """A mark that is flushed between two looks is met by neither."""
    stored = self.storage.store.limbo_marks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(self.storage.store), "limbo_marks", lambda _: stored)
        return limbo_marks(self)
