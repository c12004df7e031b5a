"""The checks of single steps of the machines, on histories that are known to be bad, beside good ones."""

from dataclasses import replace
from random import Random

import pytest

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import Code, LedgerFencedError
from daybook.core.format.frame import encode_frame, entry_crcs
from daybook.core.ids import BookieId, EntryId
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.core.recovery.recovery import LedgerRecovery
from daybook.core.repair.judgement import Findings, LedgerJudge
from daybook.core.repair.plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.repair.repair import LedgerRepair
from daybook.core.writer.writer import LedgerWriter
from tests.model.sim.placement_checks import check_new_ledger
from tests.model.sim.recovery_checks import RecoveryChecks
from tests.model.sim.repair_checks import RepairChecks
from tests.model.sim.scene import OPEN, RECOVERING, TICK, Scene, violated
from tests.model.sim.writer_checks import WriterChecks


@pytest.fixture
def scene() -> Scene:
    """A new one."""
    return Scene()


def frame_to(bookie: BookieId, send_id: int, entry: EntryId) -> fx.SendFrame:
    """One entry of the scene's ledger on its way."""
    crcs = entry_crcs(0, [entry], [b"x"])
    return fx.SendFrame(bookie, send_id, encode_frame(0, entry, [b"x"], crcs))


# A writer


@pytest.fixture
def writer(scene: Scene) -> WriterChecks:
    """The checks of a writer with one append under way."""
    machine = LedgerWriter(OPEN, 0, placement=make_policy(), rng=Random(0), bookies={})
    checks = WriterChecks(scene.checkers, machine, 9)
    checks.appending(0, [0])
    return checks


def test_a_close_that_leaves_an_append_without_an_answer_is_seen(writer: WriterChecks) -> None:
    close = fx.CasMetadata(1, OPEN.closed(-1, 0), 0)
    with violated("a close leaves no append undecided"):
        writer.stepped(TICK, [close])
    writer.stepped(TICK, [fx.Complete(0, 0, 0), close])


@pytest.mark.parametrize(("answers_as", "is_seen"), [("boot-1", False), ("boot-2", True)])
def test_a_force_that_a_bookie_answers_after_a_restart_is_seen(
    writer: WriterChecks, answers_as: str, is_seen: bool
) -> None:
    writer.stepped(TICK, [frame_to("b0", 1, 0), fx.SendForce("b0", 7)])
    writer.stepped(ev.FrameAcked("b0", 1, "boot-1"), [])
    writer.stepped(ev.ForceAnswered("b0", 6, Code.OK, "an old answer"), [])
    answer = ev.ForceAnswered("b0", 7, Code.OK, answers_as)
    if is_seen:
        with violated("who restarted answers no force"):
            writer.stepped(answer, [fx.Forced(3, 0)])
    else:
        writer.stepped(answer, [fx.Forced(3, 0), fx.SendForce("b0", 8)])
        writer.stepped(ev.ForceAnswered("b0", 8, Code.OK, "boot-2"), [fx.Forced(4, 0)])


@pytest.mark.parametrize(
    ("answer", "is_over"),
    [(fx.Closed(5, OPEN), True), (fx.Fail(5, LedgerFencedError("?")), True), (fx.Closed(None, OPEN), False)],
)
def test_a_close_without_an_answer_is_seen_when_the_handle_is_done_with(
    writer: WriterChecks, answer: fx.Effect, is_over: bool
) -> None:
    writer.over()
    writer.stepped(ev.CloseRequested(5), [])
    writer.stepped(TICK, [answer])
    if is_over:
        writer.over()
    else:
        with violated("every close is answered"):
            writer.over()


# A recovery


@pytest.mark.parametrize(("limbo", "start"), [(False, 4), (True, 2)])
def test_a_recovery_that_starts_at_the_word_of_a_bookie_in_limbo_is_seen(
    scene: Scene, limbo: bool, start: EntryId
) -> None:
    machine = LedgerRecovery(0, placement=make_policy(), rng=Random(0), bookies={})
    machine.started_with = RECOVERING
    checks = RecoveryChecks(scene.checkers, machine)
    for name in RECOVERING.bookies():
        scene.disks[name].fenced = True
    checks.stepped(TICK, [fx.SendFence("b0", 1), fx.SendFence("b1", 2)])
    checks.stepped(ev.FenceAnswered("b0", 1, Code.OK, 2, 3), [])
    checks.stepped(ev.FenceAnswered("b1", 2, Code.OK, 4, 5, limbo), [])
    machine.start_lac = start
    read = fx.SendRead("b0", 3, start + 1, start + 1, 100, fence=True)
    checks.stepped(TICK, [read])
    again = RecoveryChecks(scene.checkers, machine)
    again.stepped(TICK, [fx.SendFence("b0", 1), fx.SendFence("b1", 2)])
    again.stepped(ev.FenceAnswered("b0", 1, Code.OK, 2, 3), [])
    again.stepped(ev.FenceAnswered("b1", 2, Code.OK, 4, 5, not limbo), [])
    with violated("a recovery starts where those say that can vouch"):
        again.stepped(TICK, [read])


# Placement, and what the auditor leaves alone


@pytest.mark.parametrize(
    ("racks", "members", "violation"),
    [
        (("r0", "r0", "r1", "r1"), ("b0", "b2", "b3"), None),
        (("r0", "r0", "r0", "r1"), ("b0", "b1", "b2"), "a new ensemble is placed as well as can be"),
        (("r0", "r0", "r0", "r0"), ("b0", "b1", "b2"), None),
    ],
)
def test_a_new_ledger_within_one_rack_is_seen_where_there_are_others(
    scene: Scene, racks: tuple[str, ...], members: tuple[BookieId, ...], violation: str | None
) -> None:
    registered = {f"b{i}": BookieInfo(f"b{i}", rack=rack) for i, rack in enumerate(racks)}
    metadata = OPEN.with_ensemble(0, 0, members)
    if violation is None:
        check_new_ledger(scene.checkers, make_policy(), metadata, registered)
    else:
        with violated(violation):
            check_new_ledger(scene.checkers, make_policy(), metadata, registered)


def test_a_bad_place_that_nobody_tells_of_is_seen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy()
    monkeypatch.setattr(type(policy), "problems", lambda *_: [])
    racks = {f"b{i}": BookieInfo(f"b{i}", rack="r1" if i == 3 else "r0", writable=i < 3) for i in range(4)}
    with violated("what is placed badly is reported"):
        check_new_ledger(scene.checkers, policy, OPEN, racks)


def test_a_weak_ack_quorum_without_a_warning_is_seen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    weak = replace(OPEN, quorum=Quorum(3, 3, 1))
    here = {name: BookieInfo(name) for name in ("b0", "b1", "b2")}
    check_new_ledger(scene.checkers, make_policy(), weak, here)
    monkeypatch.setattr("daybook.core.writer.policy.quorum_warning", lambda _: None)
    with violated("a weak ack quorum is warned about"):
        check_new_ledger(scene.checkers, make_policy(), weak, here)


def test_an_open_ledger_that_is_left_in_limbo_is_seen_where_it_could_be_closed(scene: Scene) -> None:
    here = {name: BookieInfo(name) for name in ("b0", "b1", "b2")}
    audit = LedgerJudge(make_policy(), Random(0)).audit(
        OPEN, Findings(here, limbo=frozenset({"b1", "b2"})), grace_is_over=True
    )
    judged = scene.checkers.audits.judged
    judged(OPEN, Findings(here, limbo=frozenset({"b1", "b2"})), audit, 0)
    with violated("limbo ends sooner or later"):
        judged(OPEN, Findings(here, limbo=frozenset({"b2"})), audit, 0)


def test_a_successor_that_is_in_the_fragment_is_seen(scene: Scene) -> None:
    plan = RepairPlan((FragmentRepair(0, (CopyJob(2, "b2", "b1"),)),))
    with violated("a successor is new to the fragment"):
        scene.checkers.audits.planned(scene.close(), plan, {}, 0)


# A repair: b3 follows b2


@pytest.fixture
def repair(scene: Scene) -> RepairChecks:
    """The checks of a repair that puts b3 in the place of b2."""
    closed = scene.close()
    plan = RepairPlan((FragmentRepair(0, (CopyJob(2, "b2", "b3"),)),))
    machine = LedgerRepair(closed, 1, plan)
    machine.copied_entries = 3
    return RepairChecks(scene.checkers, "worker", closed, plan, machine)


def test_a_repair_that_goes_on_in_a_fragment_that_someone_else_changed_is_seen(
    scene: Scene, repair: RepairChecks
) -> None:
    metadata = scene.checkers.oracles[0].metadata
    repair.stepped(ev.MetadataRead(1, metadata, 2), [frame_to("b3", 1, 0)])
    repair.stepped(ev.MetadataRead(2, metadata.with_replica(0, "b1", "b4"), 3), [])
    with violated("what someone else changed is left alone"):
        repair.stepped(TICK, [frame_to("b3", 2, 0)])
    with violated("what someone else changed is left alone"):
        repair.stepped(TICK, [fx.CasMetadata(3, metadata, 3)])


def test_a_repair_may_find_its_own_change_and_copy_once_more(scene: Scene, repair: RepairChecks) -> None:
    metadata = scene.checkers.oracles[0].metadata
    repair.stepped(ev.MetadataRead(1, metadata.with_replica(0, "b2", "b3"), 2), [frame_to("b3", 1, 0)])


def test_a_repair_that_copies_nothing_again_after_a_conflict_is_seen(
    scene: Scene, repair: RepairChecks
) -> None:
    cas = fx.CasMetadata(1, scene.checkers.oracles[0].metadata, 1)
    conflict = ev.CasAnswered(1, ev.CasOutcome.CONFLICT)
    repair.stepped(TICK, [cas])
    repair.stepped(conflict, [])
    repair.stepped(ev.FrameAcked("b3", 1), [cas])
    repair.stepped(conflict, [])
    with violated("after a conflict the copies are made anew"):
        repair.stepped(TICK, [cas])


def test_a_repair_that_goes_on_without_its_lock_is_seen(repair: RepairChecks) -> None:
    with violated("a worker without its lock stops"):
        repair.stepped(ev.LockLost(), [])
