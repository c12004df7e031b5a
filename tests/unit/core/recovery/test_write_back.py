"""Write-back: what recovery found is held by an ack quorum before the close, with the LAC it started from."""

import random

from daybook.core.effects import RecoveryFailed, SendFence, SendFrame
from daybook.core.errors import (
    Code,
)
from daybook.core.events import BookieFailed
from daybook.core.format.entries import Entry
from daybook.core.format.frame import decode_header
from daybook.core.ledger.metadata import Fragment, LedgerState
from daybook.core.machine import RequestIds
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import write_set
from daybook.core.recovery.policy import RecoveryPolicy
from daybook.core.recovery.write_back import Spares, WriteBack
from tests.unit.core.in_order import InOrder
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.recovery.recovery_kit import recover, run_of
from tests.unit.core.small_cluster import ENTRY_BYTES, Cluster, entry


def test_a_striped_write_back_sends_a_bookie_only_what_it_holds() -> None:
    cluster = Cluster(5, 3, 2)
    for entry_id in range(12):
        cluster.write(entry_id, cluster.holders(entry_id)[:2], lac=-1)
    assert recover(cluster).last_entry == 11
    for position, bookie in enumerate(cluster.bookies.values()):
        owed = {i for i in range(12) if position in write_set(cluster.quorum, i)}
        assert set(bookie.entries) == owed


def test_rule_09_ensemble_changes_of_recovery_reach_metadata_only_with_the_close() -> None:
    """A first recovery puts a spare in b1's place and dies; the second must still read from b1, b2 and b3."""
    cluster = Cluster(spares=1)
    cluster.write(0, ["b2", "b3"])
    original = cluster.meta.last_fragment
    first = run_of(cluster)
    first.until(SendFrame)
    cluster.down = {"b1"}
    close = first.up_to_the_cas()
    assert close.metadata.last_fragment.bookies == ("b4", "b2", "b3")
    assert cluster.bookies["b4"].entries == {0: entry(0)}
    assert cluster.meta.fragments == (original,)  # and here the first recoverer dies
    cluster.down = set()
    second = run_of(cluster)
    second.until(SendFence)
    assert [e.bookie for e in second.queue if isinstance(e, SendFence)] == list(original.bookies)
    second.finish()
    assert cluster.meta.last_entry == 0


def test_acks_of_a_replaced_bookie_do_not_count() -> None:
    """b3 acks the first frame and fails the second: the spare in its place has neither."""
    cluster = Cluster(spares=1)
    write_back = write_back_of(cluster, " ".join(cluster.bookies))
    sent = [{e.bookie: e.send_id for e in write_back.add([Entry(i, entry(i))])} for i in range(2)]
    write_back.acked(sent[0]["b3"])
    to_spare = write_back.failed(sent[1]["b3"], Code.IO_ERROR)
    assert [(effect.bookie, decode_header(effect.frame).first_entry) for effect in to_spare] == [
        ("b4", 0),
        ("b4", 1),
    ]
    write_back.acked(sent[0]["b1"])
    assert write_back.recovered_to == -1
    write_back.acked(to_spare[0].send_id)
    assert (write_back.recovered_to, write_back.length) == (0, ENTRY_BYTES)
    assert write_back.changes == [Fragment(0, 0, ("b1", "b2", "b4"))]


def test_too_few_takers_for_write_back_fail_recovery_and_lose_nothing() -> None:
    cluster = Cluster()
    cluster.write(0, ["b2"])
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"b1", "b3"}
    run.finish()
    assert isinstance(run.results[-1], RecoveryFailed)
    assert cluster.meta.state is LedgerState.IN_RECOVERY
    cluster.down = set()
    assert recover(cluster).last_entry == 0


def test_rule_10_write_back_passes_the_fence() -> None:
    cluster = Cluster()
    cluster.write(0, ["b1"])
    assert recover(cluster).last_entry == 0
    frames = [decode_header(frame) for frame in cluster.frames["b2"]]
    assert [header.is_recovery for header in frames] == [True]


def test_rule_12_write_back_keeps_the_lac_that_recovery_started_from() -> None:
    """Two recoverers: the first finds more and dies before its close; no bookie may report a LAC beyond the second's end."""
    cluster = Cluster()
    cluster.write_everywhere(0, 1, lac=0)
    cluster.write(2, ["b1"], lac=0)
    cluster.write(3, ["b1"], lac=0)
    first = run_of(cluster, RecoveryPolicy(window_bytes=ENTRY_BYTES))
    first.until(SendFence)
    first.up_to_the_cas()  # it has written 1, 2 and 3 back and dies before the close
    headers = [
        decode_header(frame)
        for frames in cluster.frames.values()
        for frame in frames
        if decode_header(frame).is_recovery
    ]
    assert len(headers) == 9
    assert {(h.last_add_confirmed, h.length_at_lac) for h in headers} == {(0, ENTRY_BYTES)}
    assert {b.ledger.last_add_confirmed().last_add_confirmed for b in cluster.bookies.values()} == {0}


def test_rule_12_a_tail_reader_sees_no_entry_beyond_the_final_close() -> None:
    """The first recoverer gets its quorum from spares that no one else will ask, and dies; the second ends earlier."""
    cluster = Cluster(spares=2)
    cluster.write(0, ["b2"])
    cluster.write(1, ["b2"], lac=-1)
    first = run_of(cluster, RecoveryPolicy(window_bytes=ENTRY_BYTES))
    first.until(SendFrame)
    cluster.down = {"b1", "b3"}
    first.finish()
    assert set(cluster.bookies["b4"].entries) == {0, 1}
    assert isinstance(first.results[-1], RecoveryFailed)  # the end cannot be proven with b2 alone
    cluster.down = {"b2"}
    assert recover(cluster).last_entry == -1
    reported = max(b.ledger.last_add_confirmed().last_add_confirmed for b in cluster.bookies.values())
    assert reported == -1


def test_a_bookie_that_only_queues_is_given_up_before_it_fills_the_memory() -> None:
    cluster = Cluster(spares=1)
    cluster.write_everywhere(0, 59, lac=-1)
    run = run_of(cluster, RecoveryPolicy(window_entries=10, straggler_bytes_max=500))
    run.until(SendFrame)
    cluster.silent = {"b3"}
    run.finish()
    assert cluster.meta.is_closed
    assert cluster.meta.last_fragment.bookies == ("b1", "b2", "b4")
    queued = sum(len(e.frame) for e in cluster.held if isinstance(e, SendFrame))
    assert queued < 1000


def test_a_channel_lost_during_write_back_brings_a_spare() -> None:
    cluster = Cluster(spares=1)
    cluster.write(0, ["b1", "b2"])
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.silent = {"b2"}
    while run.queue and not cluster.held:
        run.one()
    run.feed(BookieFailed("b2"))
    run.finish()
    assert cluster.meta.last_fragment.bookies == ("b1", "b4", "b3")
    assert cluster.bookies["b4"].entries == {0: entry(0)}


def write_back_of(cluster: Cluster, spares: str = "") -> WriteBack:
    return WriteBack(
        LEDGER,
        cluster.quorum,
        cluster.meta.last_fragment,
        -1,
        0,
        Spares(InOrder(), random.Random(1), {name: BookieInfo(name) for name in spares.split()}),
        RequestIds(),
        10**6,
    )


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    write_back = write_back_of(Cluster())
    sent = {effect.bookie: effect.send_id for effect in write_back.add([Entry(0, entry(0))])}
    write_back.acked(sent["b1"])
    write_back.acked(sent["b1"])
    assert write_back.failed(sent["b1"], Code.IO_ERROR) == []
    assert write_back.bookie_failed("b9", Code.IO_ERROR) == []
    assert (write_back.recovered_to, write_back.missing) == (-1, 0)


def test_a_bookie_that_nobody_replaces_is_sent_nothing_more() -> None:
    write_back = write_back_of(Cluster())
    write_back.add([Entry(0, entry(0))])
    assert write_back.bookie_failed("b2", Code.TIMEOUT) == []
    assert [effect.bookie for effect in write_back.add([Entry(1, entry(1))])] == ["b1", "b3"]
    assert not write_back.is_stuck


def test_one_spare_for_two_failed_bookies_is_better_than_none() -> None:
    cluster = Cluster(spares=1)
    write_back = write_back_of(cluster)
    write_back.add([Entry(0, entry(0))])
    for bookie in ("b2", "b3"):
        write_back.bookie_failed(bookie, Code.TIMEOUT)
    assert write_back.is_stuck
    write_back._spares.bookies = {"b4": BookieInfo("b4")}
    assert {effect.bookie for effect in write_back.add([Entry(1, entry(1))])} == {"b1", "b4"}
    assert write_back.ensemble == ("b1", "b4", "b3")
    assert not write_back.is_stuck


def test_a_striped_replacement_gets_only_the_frames_of_its_position() -> None:
    cluster = Cluster(5, 3, 2, spares=1)
    write_back = write_back_of(cluster, "b6")
    write_back.add([Entry(0, entry(0))])
    assert write_back.bookie_failed("b4", Code.TIMEOUT) == [], "entry 0 is not its business"
    assert write_back.ensemble == ("b1", "b2", "b3", "b6", "b5")


def test_rule_69_a_recovery_writes_back_within_the_ledgers_pool_or_not_at_all() -> None:
    cluster = Cluster(called="q-0 q-1 q-2 a-0", pool="q")
    cluster.write(0, ["q-1"])
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"q-0", "q-2"}
    run.finish()
    assert isinstance(run.results[-1], RecoveryFailed), (
        "q-1 alone is no ack quorum, and a-0 is of another pool"
    )
    assert cluster.bookies["a-0"].entries == {}
    cluster = Cluster(called="q-0 q-1 q-2 a-0 q-3", pool="q")
    cluster.write(0, ["q-1"])
    run = run_of(cluster)
    run.until(SendFrame)
    cluster.down = {"q-0"}
    run.finish()
    assert cluster.meta.bookies() == {"q-3", "q-1", "q-2"}
