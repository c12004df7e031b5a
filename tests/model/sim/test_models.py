"""The simulator's own parts, before anything rests on them: time, messages, sessions, disks, the fault atlas."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from daybook.core.bookie.decisions import LimboMarked
from daybook.core.bookie.ledger import LedgerRecord
from daybook.core.bookie.life import LifeState
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from tests.model.sim.atlas import may_lose
from tests.model.sim.cluster import Cluster
from tests.model.sim.disk import Disk, FrameWritten, RecordWritten
from tests.model.sim.disk_swarm import DiskSwarm
from tests.model.sim.metadata_model import LOST, Session
from tests.model.sim.network import Network
from tests.model.sim.swarm import Swarm, draw
from tests.model.sim.topics.swarm import TopicSwarm
from tests.model.sim.world import MS, Process, ViolationError, World

QUIET = replace(
    draw(Random(0)),
    quorum=Quorum(3, 3, 2),
    bookies=4,
    loss=0.0,
    duplicate=0.0,
    reorder=0.0,
    slow=0.0,
    zk_request_loss=0.0,
    zk_reply_loss=0.0,
    zk_slow=0.0,
    fsync_stall=0.0,
    read_error=0.0,
    short_listing=0.0,
    refusal=0.0,
    disks=DiskSwarm(),
)


def quiet_cluster(swarm: Swarm = QUIET) -> Cluster:
    """Bookies that run and are registered, without faults of their own."""
    cluster = Cluster(1, swarm=swarm)
    cluster.boot()
    return cluster


def ledger(*bookies: str, ledger_id: int = 0) -> LedgerMetadata:
    """Metadata of an open ledger."""
    return LedgerMetadata(ledger_id, Quorum(3, 3, 2), (Fragment(0, 0, bookies),), password_hash="key")


# Time


def test_a_crash_drops_what_was_on_its_way() -> None:
    world = World(1)
    process = Process(world, "p")
    seen: list[str] = []
    process.later(10, seen.append, "dropped")
    process.stop()
    process.later(10, seen.append, "for the next incarnation")
    world.run(100)
    assert seen == ["for the next incarnation"]


def test_a_paused_process_gets_its_events_later_in_their_order() -> None:
    world = World(1)
    process = Process(world, "p")
    seen: list[tuple[str, int]] = []
    for delay, name in ((5, "a"), (7, "b"), (50, "c")):
        process.later(delay, lambda name: seen.append((name, world.now_us)), name)
    process.pause(50)
    world.run(100)
    assert seen == [("a", 50), ("b", 50), ("c", 50)]


def test_a_run_without_end_is_a_failure() -> None:
    world = World(1)

    def again() -> None:
        world.at(world.now_us, None, again)

    again()
    with pytest.raises(ViolationError, match="repeats for ever"):
        world.run(1)


# Messages


def ends(**faults: Any) -> tuple[World, Network, Process, Process]:
    """A client and a bookie, and the network between them."""
    world = World(1)
    return world, Network(world, replace(QUIET, **faults)), Process(world, "c"), Process(world, "b")


def test_a_lost_message_breaks_its_stream_for_good() -> None:
    _, network, client, bookie = ends(loss=1.0)
    stream = network.open(client, bookie)
    assert not stream.send(bookie, lambda: None)
    network.is_faulty = False
    assert not stream.send(bookie, lambda: None)


def test_a_stream_keeps_its_order_and_calls_are_reordered_and_doubled() -> None:
    world, network, client, bookie = ends(reorder=0.5, slow=0.5, duplicate=0.5)
    stream = network.open(client, bookie)
    sent: list[int] = []
    called: list[int] = []
    for number in range(50):
        stream.send(bookie, sent.append, number)
        network.call(client, bookie, called.append, number)
    world.run(1000 * MS)
    assert sent == list(range(50))
    assert len(called) > 50
    assert called != sorted(called)


def test_a_cut_is_one_way() -> None:
    world, network, client, bookie = ends()
    network.cut("c", "b", 100 * MS)
    seen: list[str] = []
    network.call(client, bookie, seen.append, "there")
    network.call(bookie, client, seen.append, "back")
    world.run(50 * MS)
    assert seen == ["back"]


# Metadata


def ask(cluster: Cluster, session: Session, operation: object, *args: object) -> list[object]:
    """Carry out a request to its end; the one answer, in a list."""
    answers: list[object] = []
    assert callable(operation)
    cluster.store.request(session, answers.append, operation, *args)
    cluster.world.run(cluster.world.now_us + 200 * MS)
    return answers


@pytest.mark.parametrize(("fault", "version"), [("zk_reply_loss", 1), ("zk_request_loss", 0)])
def test_a_lost_reply_leaves_the_change_made_and_a_lost_request_changes_nothing(
    fault: str, version: int
) -> None:
    ratios: dict[str, Any] = {fault: 1.0}
    cluster = quiet_cluster(replace(QUIET, **ratios))
    cluster.store.create(ledger("b0", "b1", "b2"))
    session = cluster.store.connect(Process(cluster.world, "c"))
    answers = ask(cluster, session, cluster.store.cas, ledger("b0", "b1", "b2").in_recovery(), 0)
    assert answers == [LOST]
    assert cluster.store.ledgers[0].version == version


def test_an_expired_session_changes_nothing_any_more_and_holds_nothing() -> None:
    cluster = quiet_cluster()
    session = cluster.store.connect(Process(cluster.world, "c"))
    assert ask(cluster, session, cluster.store.lock, session, "l") == [True]
    cluster.expire(session)
    assert ask(cluster, session, cluster.store.create, ledger("b0", "b1", "b2")) == [LOST]
    assert not cluster.store.ledgers
    assert not cluster.store.locks


def test_the_requests_of_a_session_keep_their_order() -> None:
    cluster = quiet_cluster(replace(QUIET, zk_slow=0.5))
    session = cluster.store.connect(Process(cluster.world, "c"))
    order: list[int] = []
    for number in range(30):
        cluster.store.request(session, lambda _: None, order.append, number)
    cluster.world.run(3000 * MS)
    assert order == list(range(30))


# Disks


def test_a_crash_keeps_what_was_synced_and_any_subset_of_the_rest() -> None:
    outcomes = set()
    for seed in range(200):
        disk = Disk()
        for entry in range(4):
            disk.write(FrameWritten(0, {entry: b"x"}, -1, 0), lambda: None)
        disk.sync(1)
        disk.crash(Random(seed), 0.5)
        outcomes.add(frozenset(disk.ledgers[0].entries))
    assert all(0 in outcome for outcome in outcomes)
    assert len(outcomes) == 8


def test_the_atlas_keeps_one_copy_of_what_may_be_acknowledged() -> None:
    cluster = quiet_cluster()
    cluster.store.create(ledger("b0", "b1", "b2"))
    first = cluster.bookies["b0"]
    assert may_lose(cluster.checkers, "b0")
    first.crash()
    first.wipe()
    assert may_lose(cluster.checkers, "b0"), "it is lost already"
    assert not may_lose(cluster.checkers, "b1"), "with Qa = 2 an entry may be on these two only"
    assert not may_lose(cluster.checkers, "b3"), "a writer that does not know yet may name it next"


@pytest.mark.parametrize(
    ("ack_quorum", "replaced", "may"), [(1, 0, False), (2, 0, True), (2, 1, False), (3, 1, True)]
)
def test_a_ledger_whose_creation_is_under_way_may_name_fewer_than_qa_lost_disks(
    ack_quorum: int, replaced: int, may: bool
) -> None:
    swarm = replace(QUIET, quorum=Quorum(3, 3, ack_quorum), topics=TopicSwarm(topics=1))
    cluster = Cluster(1, swarm=swarm)
    for name in ("b0", "b1")[:replaced]:
        cluster.bookies[name].replaced = True
    assert may_lose(cluster.checkers, "b3") is may


def test_an_entry_that_a_bookie_has_lost_without_limbo_counts_as_lost() -> None:
    cluster = quiet_cluster()
    cluster.store.create(ledger("b0", "b1", "b2"))
    for name in ("b0", "b1"):
        cluster.bookies[name].disk.write(FrameWritten(0, {0: b"x"}, -1, 0), lambda: None)
        cluster.bookies[name].disk.sync(1)
        cluster.checkers.became_durable(name, 0, [0])
    assert may_lose(cluster.checkers, "b1")
    cluster.bookies["b0"].disk.wipe()
    assert not may_lose(cluster.checkers, "b1")


def test_a_bookie_that_is_taken_for_dead_vouches_for_a_ledger_that_it_does_not_know() -> None:
    cluster = quiet_cluster()
    known, marked = cluster.bookies["b0"], cluster.bookies["b1"]
    for bookie in (known, marked):
        bookie.doomed = True
        assert bookie.is_in_limbo(0)
        assert bookie.vouches(0)
    known.queue([known.machine.mark_limbo(0, "n")])
    assert not known.vouches(0)
    marked.disk.write(RecordWritten(LedgerRecord(0, limbo_nonce="n"), LimboMarked(0, "n")), lambda: None)
    marked.disk.sync(1)
    assert not marked.vouches(0), "its process has forgotten the mark"


@pytest.mark.parametrize("starts_after_ms", [0, 50])
@pytest.mark.parametrize("is_lost_again", [False, True])
def test_a_stamp_that_arrives_late_is_of_the_disk_that_was_marked(
    is_lost_again: bool, starts_after_ms: int
) -> None:
    cluster = quiet_cluster()
    world, bookie = cluster.world, cluster.bookies["b0"]
    cluster.store.create(ledger("b0", "b1", "b2"))
    bookie.crash()
    bookie.wipe()
    bookie.start()
    while bookie.life.state is not LifeState.STAMPING:
        world.run(world.now_us + 100)
    bookie.crash()
    if is_lost_again:
        bookie.wipe()
    world.at(world.now_us + starts_after_ms * MS, None, bookie.start)
    world.run(world.now_us + 100 * MS)
    assert bookie.needs_stamp is is_lost_again, "the stamp arrived after its process had died"
    world.run(world.now_us + 1000 * MS)
    assert bookie.serving
    assert not bookie.needs_stamp
    assert bookie.limbo_nonce(0) is not None, "its disk was lost (rule 29)"
