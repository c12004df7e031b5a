"""Each check on a history that is known to be bad, beside one that is good: a check that cannot fail is none."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import (
    Code,
    DaybookError,
    EntryTooLargeError,
    LedgerFencedError,
    NotEnoughBookiesError,
)
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.repair.judgement import Findings, LedgerJudge
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.writer.writer import LedgerWriter
from tests.model.sim import queues
from tests.model.sim.audit_checks import LOST_DELAY_MS, OPEN_GRACE_MS, ReadPace, rack_deficit
from tests.model.sim.healed_checks import misplaced, orphans
from tests.model.sim.scene import CLOSED, LATER, OPEN, RECOVERING, TICK, Scene, violated
from tests.model.sim.transitions import Party, why_illegal
from tests.model.sim.writer_checks import WriterChecks


@pytest.fixture
def scene() -> Scene:
    """A new one."""
    return Scene()


# Replication, placement, orphans


def test_a_replica_that_is_missing_or_in_limbo_is_seen_after_healing(scene: Scene) -> None:
    scene.close()
    assert scene.checkers.under_replicated() == []
    scene.disks["b1"].held[0] = {0, 2}
    assert scene.checkers.under_replicated() == ["b1 lacks [1] of ledger 0"]
    scene.disks["b1"].held[0] = {0, 1, 2}
    scene.disks["b1"].limbo = True
    assert scene.checkers.under_replicated() == ["b1 is in limbo for ledger 0"]


def test_what_a_deletion_or_a_move_leaves_behind_is_an_orphan(scene: Scene) -> None:
    scene.close()
    assert orphans(scene.checkers) == []
    scene.disks["b3"].held[0] = {1}
    assert orphans(scene.checkers) == ["b3 still has [1] of ledger 0, which it does not owe"]
    scene.checkers.ledger_deleted(0)
    assert len(orphans(scene.checkers)) == 4


def racks(*names: str) -> dict[BookieId, BookieInfo]:
    """b0, b1, … in these racks."""
    return {f"b{i}": BookieInfo(f"b{i}", rack=name) for i, name in enumerate(names)}


def test_a_fragment_in_one_rack_is_misplaced_only_if_a_move_would_help(scene: Scene) -> None:
    scene.close()
    assert misplaced(scene.checkers, racks("r0", "r0", "r1", "r0")) == []
    assert misplaced(scene.checkers, racks("r0", "r0", "r0", "r0")) == []
    assert len(misplaced(scene.checkers, racks("r0", "r0", "r0", "r1"))) == 1
    assert rack_deficit(OPEN, ("b0", "b1", "b2"), racks("r0", "r0", "r0", "r1")) == 1


# Metadata

REPAIRED = CLOSED.with_replica(0, "b2", "b4")
OTHER_TOKEN = replace(OPEN, writer_token="other")
LEGAL = [
    (Party.WRITER, OPEN, LATER),
    (Party.WRITER, LATER, LATER.with_ensemble(2, 2, ("b0", "b4", "b3"))),
    (Party.WRITER, OPEN, OPEN.closed(1, 1)),
    (Party.WRITER, replace(OPEN, writer_token=None), OPEN),
    (Party.RECOVERY, OPEN, OPEN.in_recovery()),
    (Party.RECOVERY, RECOVERING, RECOVERING),
    (Party.RECOVERY, RECOVERING, RECOVERING.with_ensemble(3, 3, ("b0", "b1", "b4")).closed(3, 4)),
    (Party.REPAIR, LATER, LATER.with_replica(0, "b2", "b4")),
    (Party.REPAIR, CLOSED, REPAIRED),
    (Party.COLLECTOR, CLOSED, CLOSED),
]
ILLEGAL = [
    (Party.WRITER, RECOVERING, CLOSED, "rule 11"),
    (Party.WRITER, LATER, OPEN, "rule"),
    (Party.WRITER, LATER, LATER.with_replica(0, "b2", "b4"), "rule"),
    (Party.WRITER, LATER, LATER.with_replica(0, "b2", "b4").with_ensemble(3, 3, ("b0", "b1", "b2")), "rule 19"),
    (Party.WRITER, OPEN, OTHER_TOKEN, "rule 53"),
    (Party.RECOVERY, OPEN, OPEN.closed(1, 1), "mark"),
    (Party.RECOVERY, RECOVERING, RECOVERING.with_ensemble(3, 3, ("b0", "b1", "b4")), "rule 9"),
    (Party.RECOVERY, RECOVERING, CLOSED.with_replica(0, "b2", "b4"), "rule 56"),
    (Party.RECOVERY, CLOSED, CLOSED, "rule 11"),
    (Party.REPAIR, CLOSED, CLOSED.closed(4, 5), "rule 11"),
    (Party.REPAIR, LATER, LATER.with_replica(2, "b3", "b4"), "rule 31"),
    (Party.REPAIR, CLOSED, REPAIRED.with_replica(2, "b3", "b4"), "one fragment"),
    (Party.REPAIR, CLOSED, replace(CLOSED, fragments=(Fragment(0, 0, ("b1", "b0", "b4")), CLOSED.fragments[1])), "32"),
    (Party.COLLECTOR, CLOSED, REPAIRED, "rule 47"),
    (Party.COLLECTOR, LATER, LATER, "rule 47"),
]  # fmt: skip


@pytest.mark.parametrize(("party", "old", "new"), LEGAL)
def test_a_legal_transition_passes(party: Party, old: LedgerMetadata, new: LedgerMetadata) -> None:
    assert why_illegal(party, old, new) is None


@pytest.mark.parametrize(("party", "old", "new", "why"), ILLEGAL)
def test_an_illegal_transition_is_told(
    party: Party, old: LedgerMetadata, new: LedgerMetadata, why: str
) -> None:
    assert why in (why_illegal(party, old, new) or "it passes")


# What bookies answer


def test_an_answer_before_the_sync_is_a_violation(scene: Scene) -> None:
    scene.checkers.acked_by("b0", 0, [0, 1, 2])
    with violated("what is answered is synced"):
        scene.checkers.acked_by("b3", 0, [1])


def test_a_fence_that_a_power_cut_would_undo_is_a_violation(scene: Scene) -> None:
    scene.disks["b0"].fenced = True
    scene.checkers.fence_answered("b0", 0)
    with violated("a fence is durable before it is answered"):
        scene.checkers.fence_answered("b1", 0)


# What writers say


def make_writer(scene: Scene, *, changes_max: int = 9) -> tuple[LedgerWriter, WriterChecks]:
    """A writer of the scene's ledger and its checks; three appends of one entry each are under way."""
    machine = LedgerWriter(OPEN, 0, placement=make_policy(), rng=Random(0), bookies={})
    checks = WriterChecks(scene.checkers, machine, changes_max)
    for token in range(3):
        checks.appending(token, [token])
    return machine, checks


def told(checks: WriterChecks, *effects: fx.Effect, event: ev.Event = TICK) -> None:
    """The writer takes `event` and says this."""
    checks.stepped(event, effects)


def test_nothing_is_acknowledged_twice_or_with_other_ids(scene: Scene) -> None:
    _, checks = make_writer(scene)
    told(checks, fx.Complete(0, 0, 0), fx.Complete(1, 1, 1))
    assert checks.unanswered() == [2]
    with violated("nothing is answered twice"):
        told(checks, fx.Complete(1, 1, 1))
    with violated("nothing is acknowledged with other ids"):
        told(checks, fx.Complete(2, 1, 1))


def test_nothing_is_acknowledged_after_it_failed(scene: Scene) -> None:
    _, checks = make_writer(scene)
    told(checks, fx.Fail(0, LedgerFencedError("unknown")))
    with violated("nothing is answered twice"):
        told(checks, fx.Complete(0, 0, 0))


@pytest.mark.parametrize(
    ("error", "is_lie"), [(LedgerFencedError("?"), False), (DaybookError("not written"), True)]
)
def test_what_was_said_to_be_not_written_is_not_in_the_closed_ledger(
    scene: Scene, error: DaybookError, is_lie: bool
) -> None:
    _, checks = make_writer(scene)
    told(checks, fx.Fail(1, error))
    if is_lie:
        with violated("after a fence the outcome is unknown"):
            scene.close()
    else:
        scene.close()


def test_ids_are_free_again_only_if_no_bookie_has_them(scene: Scene) -> None:
    _, checks = make_writer(scene)
    with violated("an id is given once"):
        told(checks, fx.Fail(2, EntryTooLargeError("refused")))
    for disk in scene.disks.values():
        disk.held.clear()
    scene.checkers.withdrawn(0, [2])
    scene.checkers.appended(0, 2, b"another")


def test_what_cannot_be_appended_is_refused_in_the_same_step(scene: Scene) -> None:
    _, checks = make_writer(scene)
    for token in (7, 8):
        checks.must_refuse(token)
    told(checks, fx.Fail(7, EntryTooLargeError("refused")), event=ev.AppendRequested(7, [b""]))
    with violated("what cannot be appended is refused at once"):
        told(checks, event=ev.AppendRequested(8, [b""]))


def test_a_bookie_is_not_blamed_for_a_frame_that_all_would_refuse(scene: Scene) -> None:
    _, checks = make_writer(scene)
    told(checks, fx.Quarantined("b0", 9), event=ev.FrameFailed("b0", 1, Code.IO_ERROR))
    with violated("a bookie is blamed only for its own faults"):
        told(checks, fx.Quarantined("b0", 9), event=ev.FrameFailed("b0", 1, Code.BAD_FRAME))


def test_ensemble_changes_beyond_the_cap_are_seen(scene: Scene) -> None:
    _, checks = make_writer(scene, changes_max=1)
    changed = fx.EnsembleChanged(0, ("b0", "b1", "b3"))
    told(checks, changed, event=ev.CasAnswered(1, ev.CasOutcome.UNKNOWN))
    told(checks, changed)
    with violated("ensemble changes are capped"):
        told(checks, changed)


def test_a_bookie_that_returns_into_the_old_fragment_is_seen(scene: Scene) -> None:
    machine, checks = make_writer(scene)
    machine._state.last_add_confirmed = 1
    told(checks, fx.Degraded(("b0", "b1")))
    machine._state.version += 1
    told(checks, fx.Degraded(("b0",)))
    with violated("who returns begins a new fragment"):
        told(checks, fx.Degraded(()))


def test_a_handle_that_ends_though_a_quorum_answers_is_seen(scene: Scene) -> None:
    _, checks = make_writer(scene)
    told(checks, fx.HandleEnded(LedgerFencedError("another recovers it")))
    with violated("a writer goes on while a quorum answers"):
        told(checks, fx.HandleEnded(NotEnoughBookiesError("none is spare")))


# Auditor and workers


def listed(*entries: EntryId) -> IntervalSet:
    """A bookie's listing."""
    held = IntervalSet()
    held.add_ids(entries)
    return held


def audit_of(
    metadata: LedgerMetadata, findings: Findings, *, grace_is_over: bool = True
) -> Callable[[Scene, int], None]:
    """Judge `metadata` as the auditor does, then tell the checkers at some time; the verdict may be bent before."""
    verdict = LedgerJudge(make_policy(), Random(0)).audit(metadata, findings, grace_is_over=grace_is_over)
    return lambda scene, now_ms: scene.checkers.audits.judged(metadata, findings, verdict, now_ms)


def test_an_audit_that_overlooks_a_missing_entry_is_seen(scene: Scene) -> None:
    here = racks("", "", "")
    whole = {name: listed(0, 1, 2) for name in here}
    audit_of(scene.close(), Findings(here, listed=whole))(scene, 0)
    gap = Findings(here, listed={**whole, "b1": listed(0, 2)})
    audit = LedgerJudge(make_policy(), Random(0)).audit(scene.close(), gap, grace_is_over=True)
    scene.checkers.audits.judged(scene.close(), gap, audit, 0)
    with violated("FullyReplicated is true when it is said"):
        scene.checkers.audits.judged(scene.close(), gap, replace(audit, problems=()), 0)


def test_a_writer_is_stopped_only_after_its_grace_and_only_for_a_spare(scene: Scene) -> None:
    audits = scene.checkers.audits
    audits.unregistered("b2", 0)
    away = {name: info for name, info in racks("", "", "", "").items() if name != "b2"}
    stop = audit_of(OPEN, Findings(away, lost=frozenset({"b2"})))
    with violated("an open fragment gets its grace"):
        stop(scene, LOST_DELAY_MS + 1)
    stop(scene, 10 * LOST_DELAY_MS)
    del away["b3"]
    verdict = LedgerJudge(make_policy(), Random(0)).audit(
        OPEN, Findings(racks("", "", "", ""), lost=frozenset({"b2"})), grace_is_over=True
    )
    with violated("a writer is not stopped for nothing"):
        audits.judged(OPEN, Findings(away, lost=frozenset({"b2"})), verdict, 10 * LOST_DELAY_MS)


def test_the_grace_is_of_the_ledger_whichever_bookie_it_lacks(scene: Scene) -> None:
    audits = scene.checkers.audits
    audits.unregistered("b2", 0)
    audits.registered("b2", LOST_DELAY_MS)
    audits.unregistered("b1", OPEN_GRACE_MS - 1)
    away = {name: info for name, info in racks("", "", "", "").items() if name != "b1"}
    stop = audit_of(OPEN, Findings(away, lost=frozenset({"b1"})))
    with violated("an open fragment gets its grace"):
        stop(scene, LOST_DELAY_MS + OPEN_GRACE_MS - 1)
    stop(scene, LOST_DELAY_MS + OPEN_GRACE_MS)
    audits.ensemble_changed(OPEN, LOST_DELAY_MS + OPEN_GRACE_MS)
    with violated("an open fragment gets its grace"):
        stop(scene, LOST_DELAY_MS + 2 * OPEN_GRACE_MS - 1)
    stop(scene, LOST_DELAY_MS + 2 * OPEN_GRACE_MS)


MOVE = RepairPlan((FragmentRepair(0, (CopyJob(2, "b2", "b3"),)),))


def test_only_lost_or_misplaced_replicas_are_moved(scene: Scene) -> None:
    audits, closed = scene.checkers.audits, scene.close()
    with violated("only lost bookies are replaced"):
        audits.planned(closed, MOVE, racks("", "", "", ""), 0)
    audits.planned(closed, MOVE, racks("r0", "r0", "r0", "r1"), 0)
    audits.unregistered("b2", 0)
    away = {name: info for name, info in racks("", "", "", "").items() if name != "b2"}
    with violated("only lost bookies are replaced"):
        audits.planned(closed, MOVE, away, LOST_DELAY_MS - 1)
    audits.planned(closed, MOVE, away, LOST_DELAY_MS)


def test_a_copy_outside_its_stripe_is_seen(scene: Scene) -> None:
    striped = LedgerMetadata(0, Quorum(3, 2, 2), OPEN.fragments).closed(2, 3)
    scene.checkers.audits.copied(striped, MOVE, "b3", [1, 2])
    with violated("copies keep the stripe"):
        scene.checkers.audits.copied(striped, MOVE, "b3", [0])


def test_a_failed_repair_that_is_tried_at_once_is_seen(scene: Scene) -> None:
    audits = scene.checkers.audits
    audits.began(0, 10)
    audits.failed(0, 20)
    audits.began(1, 20)
    audits.began(0, 50)
    audits.failed(0, 60)
    with violated("a failed repair waits"):
        audits.began(0, 70)


def test_a_repair_that_ends_without_a_look_is_seen(scene: Scene) -> None:
    scene.checkers.audits.finished(0, has_looked=True)
    with violated("a repair ends with a look at the metadata"):
        scene.checkers.audits.finished(0, has_looked=False)


def read_at(pace: ReadPace, times_ms: Iterable[int]) -> None:
    """Read at these times."""
    for now_ms in times_ms:
        pace.read(now_ms)


def test_reads_above_the_pace_are_seen(scene: Scene) -> None:
    read_at(ReadPace(scene.checkers.fail, 20, 0), range(0, 1000, 50))
    with violated("metadata is read at a pace"):
        read_at(ReadPace(scene.checkers.fail, 20, 0), range(0, 1000, 20))


# Queues


def test_a_queue_that_grows_beyond_its_limit_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, _ = make_writer(scene)
    assert queues.over_limit(machine) is None
    machine.step(ev.AppendRequested(1, [b"x"] * 3))
    machine.step(ev.FlushRequested())
    assert queues.over_limit(machine) is None
    monkeypatch.setitem(queues.LIMITS, "Member", queues.limits_of({"outstanding": 0}))
    assert queues.over_limit(machine) == "Member.outstanding holds 1, at most 0 are allowed"


def test_a_queue_without_a_limit_is_found(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, _ = make_writer(scene)
    assert queues.unlisted(machine) == set()
    monkeypatch.delitem(queues.QUEUES, ("BatchWindow", "lagging"))
    assert queues.unlisted(machine) == {("BatchWindow", "lagging")}
