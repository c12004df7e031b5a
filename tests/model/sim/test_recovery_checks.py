"""The checks of bookies, recoveries and removals on histories that are known to be bad, beside good ones."""

from dataclasses import replace
from random import Random

import pytest

from daybook.core import effects as fx
from daybook.core import events as ev
from daybook.core.errors import Code, DaybookError
from daybook.core.format.frame import encode_frame, entry_crcs
from daybook.core.ids import EntryId
from daybook.core.placement.policies import make_policy
from daybook.core.recovery.recovery import LedgerRecovery
from tests.model.sim.recovery_checks import RecoveryChecks
from tests.model.sim.scene import CLOSED, OPEN, RECOVERING, TICK, Scene, violated


@pytest.fixture
def scene() -> Scene:
    """A new one."""
    return Scene()


def test_a_frame_past_a_fence_or_before_the_metadata_is_seen(scene: Scene) -> None:
    def take(*, recovery: bool = False, fenced: bool = False, looked: bool = True) -> None:
        scene.checkers.accepted("b0", 0, recovery=recovery, lac=-1, fenced=fenced, looked=looked)

    take()
    take(recovery=True, fenced=True, looked=False)
    with violated("a fence lets nothing normal pass"):
        take(fenced=True)
    with violated("the first frame needs the metadata"):
        take(looked=False)


def test_a_removal_without_a_raise_or_after_an_add_is_seen(scene: Scene) -> None:
    scene.close()
    scene.checkers.removed("b3", 0, [1], raised=True, added_to=False)
    with violated("a removal raises the version first"):
        scene.checkers.removed("b3", 0, [1], raised=False, added_to=False)
    with violated("an add cancels a removal"):
        scene.checkers.removed("b3", 0, [1], raised=True, added_to=True)


def test_a_successor_without_its_share_is_seen(scene: Scene) -> None:
    scene.close()
    scene.checkers.successor_holds("b2", 0, 0)
    scene.disks["b2"].held[0] = {0, 1}
    with violated("a successor has its share"):
        scene.checkers.successor_holds("b2", 0, 0)
    scene.disks["b2"].limbo = True
    scene.checkers.successor_holds("b2", 0, 0)


def test_a_read_that_passes_over_what_waits_for_its_sync_is_seen(scene: Scene) -> None:
    scene.checkers.read_meets("b0", 0, [1, 2], {0, 1, 2})
    with violated("a read meets what was accepted"):
        scene.checkers.read_meets("b0", 0, [1, 2], {0, 1})


def make_recovery(scene: Scene) -> RecoveryChecks:
    """The checks of a recovery that has fenced, or believes so."""
    machine = LedgerRecovery(0, placement=make_policy(), rng=Random(0), bookies={})
    machine.started_with = OPEN.in_recovery()
    return RecoveryChecks(scene.checkers, machine)


def test_a_recovery_that_reads_too_early_too_much_or_without_a_fence_is_seen(scene: Scene) -> None:
    checks = make_recovery(scene)
    read = fx.SendRead("b0", 1, 0, 0, 100, fence=True)
    with violated("a recovery reads when nothing can be acknowledged"):
        checks.stepped(TICK, [read])
    scene.disks["b0"].fenced = scene.disks["b1"].limbo = True
    make_recovery(scene).stepped(TICK, [read])
    with violated("a recovery read fences"):
        make_recovery(scene).stepped(TICK, [replace(read, fence=False)])
    late = make_recovery(scene)
    late._machine.started_with = RECOVERING
    with violated("a recovery begins in the last fragment"):
        late.stepped(TICK, [read])


def test_write_back_that_raises_the_lac_or_is_not_named_is_seen(scene: Scene) -> None:
    def frame(lac: EntryId) -> bytes:
        return encode_frame(
            0, 0, [b"x"], entry_crcs(0, [0], [b"x"]), last_add_confirmed=lac, length_at_lac=lac + 1
        )

    checks = make_recovery(scene)
    with violated("write-back keeps the LAC"):
        checks.stepped(TICK, [fx.SendFrame("b0", 1, frame(0))])
    closed = fx.CasMetadata(9, OPEN.in_recovery().closed(0, 1), 1)
    checks.stepped(TICK, [fx.SendFrame(name, at, frame(-1)) for at, name in enumerate(("b0", "b3"), 1)])
    for at, name in enumerate(("b0", "b3"), 1):
        checks.stepped(ev.FrameAcked(name, at), [])
    with violated("a close is proved by those that can vouch"):
        checks.stepped(TICK, [closed])
    scene.disks["b0"].fenced = scene.disks["b1"].fenced = True
    for at, name in enumerate(("b0", "b1"), 5):
        checks.stepped(TICK, [fx.SendRead(name, at, 1, 1, 100, fence=True)])
        checks.stepped(ev.ReadAnswered(name, at, Code.OK, through=1, limbo=name == "b1"), [])
    with violated("a close is proved by those that can vouch"):
        checks.stepped(TICK, [closed])
    checks.stepped(ev.ReadAnswered("b1", 6, Code.OK, through=1), [])
    with violated("a recovery names whom it wrote to"):
        checks.stepped(TICK, [closed])


def test_a_recovery_that_fails_though_it_found_a_close_is_seen(scene: Scene) -> None:
    checks = make_recovery(scene)
    failed = fx.RecoveryFailed(DaybookError("no"))
    checks.stepped(TICK, [failed])
    with violated("the loser of a close returns the winner's"):
        checks.stepped(ev.MetadataRead(1, CLOSED, 3), [failed])
