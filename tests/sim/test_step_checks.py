"""The checks that look at each step of a writer or a repair, on histories that are known to be bad, beside good ones."""

from random import Random

import pytest

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import Code
from daybook.core.frame import encode_frame, entry_crcs
from daybook.core.ids import BookieId, EntryId
from daybook.core.placement_policies import make_policy
from daybook.core.repair import LedgerRepair
from daybook.core.repair_plan import CopyJob, FragmentRepair, RepairPlan
from daybook.core.writer import LedgerWriter
from tests.sim.repair_checks import RepairChecks
from tests.sim.scene import OPEN, TICK, Scene, violated
from tests.sim.writer_checks import WriterChecks


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
    metadata = scene.checkers.ghosts[0].metadata
    repair.stepped(ev.MetadataRead(1, metadata, 2), [frame_to("b3", 1, 0)])
    repair.stepped(ev.MetadataRead(2, metadata.with_replica(0, "b1", "b4"), 3), [])
    with violated("what someone else changed is left alone"):
        repair.stepped(TICK, [frame_to("b3", 2, 0)])
    with violated("what someone else changed is left alone"):
        repair.stepped(TICK, [fx.CasMetadata(3, metadata, 3)])


def test_a_repair_may_find_its_own_change_and_copy_once_more(scene: Scene, repair: RepairChecks) -> None:
    metadata = scene.checkers.ghosts[0].metadata
    repair.stepped(ev.MetadataRead(1, metadata.with_replica(0, "b2", "b3"), 2), [frame_to("b3", 1, 0)])


def test_a_repair_that_copies_nothing_again_after_a_conflict_is_seen(
    scene: Scene, repair: RepairChecks
) -> None:
    cas = fx.CasMetadata(1, scene.checkers.ghosts[0].metadata, 1)
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
