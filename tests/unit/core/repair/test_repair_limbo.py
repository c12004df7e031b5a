"""Repair and disks that are lost: a successor's before it is named, and limbo (rule 29)."""

import pytest

from daybook.core.effects import (
    CasMetadata,
    ClearLimbo,
    Effect,
    ReadLimbo,
    ReadMetadata,
    RepairFailed,
    RepairFinished,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code
from daybook.core.events import BookieFailed, LimboRead, RepairEvent
from daybook.core.ledger.metadata import LedgerMetadata
from tests.fixtures.memory_bookie import Request, fails
from tests.unit.core.repair.repair_kit import limbo_repair, named, on_first, one, repair_of
from tests.unit.core.repair.repair_model import Cluster, closed_ledger, open_ledger


def test_rule_29_a_successor_wiped_before_it_is_named_is_copied_again() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    on_first(cluster, CasMetadata, lambda: cluster.bookies["e"].lose_disk(None))
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()


def test_rule_18_a_second_answer_to_a_look_at_a_successor_ends_no_copy() -> None:
    """It would say of the copy that just began anew that it is done: nothing is in limbo, so nothing is left to do."""
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    on_first(cluster, CasMetadata, lambda: cluster.bookies["e"].lose_disk(None))

    def before(effect: Effect) -> list[RepairEvent] | None:
        if isinstance(effect, ReadLimbo):
            return [LimboRead("e", effect.request_id, Code.OK, None, cluster.bookies["e"].boot_id)] * 2
        return wiping(effect)

    wiping, cluster.before = cluster.before, before
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()


def test_a_successor_that_restarts_between_two_frames_is_copied_again_before_it_is_named() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 99), "e")
    frames: list[Effect] = []

    def before(effect: Effect) -> list[RepairEvent] | None:
        if isinstance(effect, SendFrame):
            frames.append(effect)
            if len(frames) == 3:
                cluster.bookies["e"].lose_disk(None)
        if isinstance(effect, CasMetadata):
            assert len(cluster.bookies["e"].entries) == 100
        return None

    cluster.before = before
    assert isinstance(cluster.run(repair_of(cluster, one(0, 1, "b", "e"))), RepairFinished)
    assert cluster.lacks("e") == set()


def test_a_successor_that_cannot_be_asked_after_it_is_named_leaves_the_task_undone() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "e")
    on_first(cluster, ReadLimbo, lambda: [BookieFailed("e")])
    verdict = cluster.run(repair_of(cluster, one(0, 1, "b", "e")))
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable


# Limbo (rule 29).


def test_rule_29_limbo_ends_after_everything_owed_is_copied_back() -> None:
    cluster = Cluster(closed_ledger(4, 3, 2, [(0, "abcd"), (20, "eafg"), (30, "bcde")], 40))
    cluster.bookies["a"].lose_disk("n1")
    lacks_when_cleared: list[set[int]] = []
    on_first(cluster, ClearLimbo, lambda: lacks_when_cleared.append(cluster.lacks("a")))
    assert isinstance(cluster.run(limbo_repair(cluster, "a")), RepairFinished)
    assert lacks_when_cleared == [set()]
    assert cluster.bookies["a"].limbo is None
    assert (cluster.version, named(cluster)) == (3, ["abcd", "eafg", "bcde"])


def test_rule_29_the_nonce_is_read_before_the_first_copy() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 20))
    cluster.bookies["b"].lose_disk("n1")
    cluster.run(limbo_repair(cluster, "b"))
    kinds = [type(effect) for effect in cluster.log]
    assert kinds.index(ReadLimbo) < kinds.index(SendRead)


@pytest.mark.parametrize("request_kind", [ReadLimbo, ClearLimbo])
def test_rule_29_limbo_stays_where_the_bookie_gives_no_answer(request_kind: type[Request]) -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    cluster.bookies["b"].lose_disk("n1")
    cluster.bookies["b"].fault = fails(request_kind, Code.UNAVAILABLE)
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert "b does not answer (UNAVAILABLE)" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n1"


@pytest.mark.parametrize("moment", [SendRead, SendFrame, ReadMetadata, ClearLimbo])
def test_rule_29_a_disk_lost_again_during_the_repair_keeps_its_limbo(moment: type) -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 20))
    cluster.bookies["b"].lose_disk("n1")
    hit = on_first(cluster, moment, lambda: cluster.bookies["b"].lose_disk("n2"))
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert hit
    assert isinstance(verdict, RepairFailed)
    assert not verdict.unrecoverable
    assert "lost its disk again" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n2"
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFinished)
    assert cluster.bookies["b"].limbo is None
    assert not cluster.lacks("b")


MOVED_ON = open_ledger(3, 3, 2, [(0, "abc"), (10, "acd")])
"""An open ledger whose writer replaced b."""


@pytest.mark.parametrize(
    "metadata", [open_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")]), MOVED_ON.in_recovery()]
)
def test_rule_29_limbo_does_not_end_while_the_bookie_is_written_to_or_the_ledger_is_recovered(
    metadata: LedgerMetadata,
) -> None:
    cluster = Cluster(metadata)
    cluster.bookies["b"].lose_disk("n1")
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert "CLOSED, or OPEN with a last fragment that does not name b" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_limbo_of_an_open_ledger_ends_once_its_writer_has_replaced_the_bookie_and_the_rest_is_copied() -> (
    None
):
    cluster = Cluster(MOVED_ON)
    cluster.bookies["b"].lose_disk("n1")
    lacks_when_cleared: list[set[int]] = []
    on_first(cluster, ClearLimbo, lambda: lacks_when_cleared.append(cluster.lacks("b")))
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFinished)
    assert lacks_when_cleared == [set()]
    assert sorted(cluster.bookies["b"].entries) == list(range(10))
    assert cluster.bookies["b"].limbo is None


@pytest.mark.parametrize(
    "now",
    [
        MOVED_ON.in_recovery(),
        open_ledger(3, 3, 2, [(0, "abc"), (10, "abd")]),
        open_ledger(3, 3, 2, [(0, "abc"), (10, "acd"), (15, "bcd"), (20, "acd")]),
    ],
    ids=["a recovery", "the writer names it again", "the writer named it for a while"],
)
def test_rule_29_an_open_ledger_that_changed_during_the_repair_keeps_limbo(now: LedgerMetadata) -> None:
    cluster = Cluster(MOVED_ON)
    cluster.bookies["b"].lose_disk("n1")
    on_first(cluster, ReadMetadata, lambda: cluster.change(now))
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert "it stays in limbo" in str(verdict.error)
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_a_close_during_the_repair_of_an_open_ledger_ends_limbo_all_the_same() -> None:
    cluster = Cluster(MOVED_ON)
    cluster.bookies["b"].lose_disk("n1")
    on_first(cluster, ReadMetadata, lambda: cluster.change(MOVED_ON.in_recovery().closed(20, 200)))
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFinished)
    assert cluster.bookies["b"].limbo is None


def test_rule_29_an_entry_that_cannot_be_copied_back_keeps_limbo() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9))
    cluster.bookies["b"].lose_disk("n1")
    for name in "ac":
        cluster.bookies[name].damaged.add(9)
    verdict = cluster.run(limbo_repair(cluster, "b"))
    assert isinstance(verdict, RepairFailed)
    assert verdict.unrecoverable
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_a_fragment_won_during_the_repair_keeps_limbo() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "acd")], 20))
    cluster.bookies["b"].lose_disk("n1")
    on_first(
        cluster, ReadMetadata, lambda: cluster.change(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 20))
    )
    assert isinstance(cluster.run(limbo_repair(cluster, "b")), RepairFailed)
    assert cluster.bookies["b"].limbo == "n1"


def test_rule_29_limbo_without_a_debt_ends_and_without_a_mark_nothing_is_done() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc")], 9), "z")
    cluster.bookies["z"].lose_disk("n1")
    assert isinstance(cluster.run(limbo_repair(cluster, "z")), RepairFinished)
    assert cluster.bookies["z"].limbo is None
    cluster.log.clear()
    assert isinstance(cluster.run(limbo_repair(cluster, "z")), RepairFinished)
    assert not [effect for effect in cluster.log if isinstance(effect, ClearLimbo)]
