"""Deletion without recovery: who must be fenced, who counts as lost, and what stops it (rule 61)."""

from itertools import product

import pytest

from daybook.core.effects import CasMetadata, DeletionReady, DeletionRefused, ReadMetadata, SendFence
from daybook.core.errors import Code, DeletionRefusedError, NoSuchLedgerError
from daybook.core.events import (
    BookieFailed,
    BookiesChanged,
    CasAnswered,
    CasOutcome,
    FenceAnswered,
    MetadataRead,
    MetadataUnreadable,
    Tick,
)
from daybook.core.ledger.metadata import LedgerState
from daybook.core.placement.policy import BookieInfo
from daybook.core.recovery.deletion import DeletionFence, DeletionPolicy
from tests.unit.core.one_ledger import LEDGER
from tests.unit.core.small_cluster import Cluster, Run

DELAY_MS = 60_000
POLICY = DeletionPolicy(DELAY_MS, patience_ms=15_000, retry_ms=500)


class Deletion(Run):
    """A deletion of a cluster's ledger, in which time passes when nothing else happens."""

    def __init__(self, cluster: Cluster, registered: set[str], *, hears_all: bool = False) -> None:
        self.machine = DeletionFence(
            LEDGER,
            policy=POLICY,
            bookies={name: BookieInfo(name) for name in sorted(registered)},
            hears_all=hears_all,
        )
        self.now_ms = 0
        super().__init__(cluster, self.machine.step, self.machine.start())

    def wait(self, ms: int, step_ms: int = 500) -> None:
        """Let time pass and whatever it leads to happen."""
        ends_ms = self.now_ms + ms
        while self.now_ms < ends_ms:
            self.finish()
            self.now_ms = min(ends_ms, self.now_ms + step_ms)
            self.feed(Tick(self.now_ms))
        self.finish()

    def register(self, *names: str) -> None:
        self.feed(BookiesChanged({name: BookieInfo(name) for name in names}))

    @property
    def ready(self) -> DeletionReady:
        (result,) = self.results
        assert isinstance(result, DeletionReady)
        return result

    @property
    def error(self) -> Exception:
        (result,) = self.results
        assert isinstance(result, DeletionRefused)
        return result.error


UP, LIMBO, SILENT, LOST = "up", "limbo", "registered and silent", "lost"


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (3, 2, 1), (4, 3, 2)])
def test_rule_61_after_it_no_bookie_that_may_live_can_help_the_writer_to_a_quorum(
    shape: tuple[int, int, int],
) -> None:
    """Every way in which each bookie is up, in limbo, silent though registered, or lost."""
    for states in product((UP, LIMBO, SILENT, LOST), repeat=shape[0]):
        cluster = Cluster(*shape)
        names = cluster.meta.last_fragment.bookies
        state = dict(zip(names, states, strict=True))
        for name in names:
            if state[name] == LIMBO:
                cluster.wipe(name)
        cluster.down = {name for name in names if state[name] in (SILENT, LOST)}
        deletion = Deletion(cluster, {name for name in names if state[name] != LOST})
        deletion.wait(2 * DELAY_MS, step_ms=5_000)
        alive = [name for name in names if state[name] != LOST]
        if isinstance(deletion.results[0], DeletionRefused):
            assert SILENT in states
            continue
        assert cluster.meta.state is LedgerState.IN_RECOVERY
        assert deletion.ready.version == cluster.version
        for entry_id in range(shape[0]):
            holders = [name for name in cluster.holders(entry_id) if name in alive]
            answers = cluster.write(entry_id, holders)
            assert list(answers.values()).count(Code.OK) < shape[2], (states, entry_id, answers)


def test_rule_61_a_registered_bookie_that_does_not_fence_stops_it() -> None:
    cluster = Cluster()
    cluster.down = {"b1", "b2"}
    deletion = Deletion(cluster, {"b1", "b3"})
    deletion.wait(DELAY_MS)
    assert isinstance(deletion.error, DeletionRefusedError)
    assert "b1: CONNECTION_LOST" in str(deletion.error)
    assert "b2" not in str(deletion.error)


def test_rule_61_a_bookie_that_is_away_is_waited_for_as_long_as_one_may_be_before_it_is_lost() -> None:
    cluster = Cluster()
    cluster.down = {"b1", "b2"}
    deletion = Deletion(cluster, {"b3"})
    deletion.wait(DELAY_MS - 1_000)
    assert deletion.results == []
    deletion.wait(2_000)
    assert deletion.ready.unfenced == ("b1", "b2")
    late = Deletion(cluster, {"b3"})
    late.wait(DELAY_MS - 1_000)
    late.register("b2", "b3")
    cluster.down = {"b1"}
    late.wait(1_000)
    assert late.ready.unfenced == (), "the one that came back was fenced, which is enough"


def test_a_bookie_that_comes_and_goes_is_away_since_it_went() -> None:
    cluster = Cluster()
    cluster.down = {"b1", "b2"}
    deletion = Deletion(cluster, {"b3"})
    deletion.wait(DELAY_MS - 1_000)
    deletion.register("b2", "b3")
    deletion.register("b3")
    deletion.wait(DELAY_MS - 1_000)
    assert deletion.results == []
    deletion.wait(2_000)
    assert deletion.ready.unfenced == ("b1", "b2")


def test_enough_fences_are_not_kept_waiting_by_the_others() -> None:
    cluster = Cluster()
    cluster.silent = {"b1"}
    deletion = Deletion(cluster, {"b1", "b2", "b3"})
    deletion.finish()
    assert deletion.ready.unfenced == ()
    assert deletion.step(Tick(5)) == []


def test_rule_61_a_close_without_recovery_is_told_the_highest_lac_of_all_who_answer() -> None:
    cluster = Cluster(start=(2, 6))
    cluster.write_everywhere(2, 3)
    cluster.write(4, ["b1"], lac=3)
    cluster.wipe("b3")
    cluster.silent = {"b1"}
    closing = Deletion(cluster, {"b1", "b2", "b3"}, hears_all=True)
    closing.finish()
    assert closing.results == [], "two fences are enough, and the third bookie may know a higher LAC"
    (held,) = cluster.held
    cluster.silent = set()
    for answer in cluster.send(held, closing.stream):  # type: ignore[arg-type]  # what was held is a request
        closing.feed(answer)
    closing.finish()
    assert (closing.ready.last_add_confirmed, closing.ready.length_at_lac) == (3, 12)


def test_rule_61_a_close_without_recovery_is_refused_while_no_disk_is_lost() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 2)
    closing = Deletion(cluster, {"b1", "b2", "b3"}, hears_all=True)
    closing.finish()
    assert "none has lost its disk" in str(closing.error)
    cluster.down = {"b2"}
    restarting = Deletion(cluster, {"b1", "b3"}, hears_all=True)
    restarting.wait(DELAY_MS - 1_000)
    assert restarting.results == [], "the fences of two suffice, and the third may only restart"
    silent = Deletion(cluster, {"b1", "b2", "b3"}, hears_all=True)
    silent.wait(DELAY_MS)
    assert "b2: CONNECTION_LOST" in str(silent.error)


def test_rule_61_a_close_without_recovery_remembers_the_lac_of_who_has_gone_since() -> None:
    cluster = Cluster()
    cluster.write_everywhere(0, 2)
    cluster.write(3, ["b1"], lac=2)
    cluster.down = {"b2", "b3"}
    closing = Deletion(cluster, {"b1"}, hears_all=True)
    closing.finish()
    cluster.down = {"b1", "b2", "b3"}
    closing.wait(2 * DELAY_MS, step_ms=5_000)
    assert closing.ready.unfenced == ("b2", "b3")
    assert (closing.ready.last_add_confirmed, closing.ready.length_at_lac) == (2, 9)


def test_rule_61_a_close_without_recovery_keeps_what_was_before_the_last_ensemble() -> None:
    cluster = Cluster(start=(5, 15))
    cluster.down = {"b1", "b2", "b3"}
    closing = Deletion(cluster, set(), hears_all=True)
    closing.wait(2 * DELAY_MS, step_ms=5_000)
    assert (closing.ready.last_add_confirmed, closing.ready.length_at_lac) == (4, 15)


def test_a_fence_that_failed_is_asked_for_again_and_one_that_was_taken_counts_on() -> None:
    cluster = Cluster()
    cluster.down = {"b1", "b2"}
    deletion = Deletion(cluster, {"b1", "b2", "b3"})
    deletion.finish()
    cluster.down = {"b3"}
    deletion.wait(500)
    assert deletion.ready.unfenced == ()


def test_the_loss_of_a_connection_answers_for_what_was_asked() -> None:
    cluster = Cluster()
    cluster.silent = {"b1", "b2"}
    deletion = Deletion(cluster, {"b2", "b3"})
    deletion.feed(BookieFailed("b1"))
    deletion.finish()
    for name in ("b1", "b2"):
        deletion.feed(BookieFailed(name))
    cluster.silent = set()
    deletion.wait(500)
    assert deletion.ready.unfenced == ()


def test_a_closed_ledger_is_ready_and_one_that_is_gone_is_an_error() -> None:
    cluster = Cluster()
    cluster.metadata = cluster.meta.closed(-1, 0)
    closed = Deletion(cluster, set())
    closed.finish()
    assert (closed.ready.version, closed.ready.unfenced) == (cluster.version, ())
    cluster.metadata = None
    gone = Deletion(cluster, set())
    gone.finish()
    assert isinstance(gone.error, NoSuchLedgerError)


def test_metadata_that_changes_or_cannot_be_read_is_read_again() -> None:
    cluster = Cluster()
    machine = DeletionFence(LEDGER, policy=POLICY, bookies={})
    (read,) = machine.start()
    assert isinstance(read, ReadMetadata)
    assert machine.step(MetadataUnreadable(read.request_id)) == []
    assert machine.step(MetadataUnreadable(read.request_id)) == [], "nobody waits for this one any more"
    assert machine.step(BookiesChanged({})) == []
    assert machine.step(BookieFailed("b1")) == []
    assert machine.step(FenceAnswered("b1", 9, Code.OK)) == []
    assert machine.step(Tick(499)) == []
    (read,) = machine.step(Tick(500))
    assert isinstance(read, ReadMetadata)
    (cas,) = machine.step(MetadataRead(read.request_id, cluster.meta, 1))
    assert isinstance(cas, CasMetadata)
    assert cas.metadata.state is LedgerState.IN_RECOVERY
    (read,) = machine.step(CasAnswered(cas.request_id, CasOutcome.CONFLICT))
    assert isinstance(read, ReadMetadata)
    fences = machine.step(MetadataRead(read.request_id, cas.metadata, 2))
    assert [type(fence) for fence in fences] == [SendFence] * 3, "somebody else marked it meanwhile"
    assert machine.step(FenceAnswered("b1", 10**6, Code.OK)) == [], "nobody asked for it"
    assert machine.step(BookieFailed("b9")) == [], "nobody asked it"
