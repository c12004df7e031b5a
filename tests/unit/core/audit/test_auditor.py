"""The auditor: who is lost, what is wrong with a ledger, what mends it, and when all is well again."""

import random
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.audit.auditor import (
    Auditor,
    CycleReport,
    DecommissionStep,
    PacedReads,
    decommission_step,
)
from daybook.core.audit.judgement import Findings, LedgerAudit, Reason
from daybook.core.audit.task import RepairTask, RetryBucket
from daybook.core.effects import CasMetadata, RepairFinished
from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.repair.repair import LedgerRepair
from tests.unit.core.audit.audit_kit import audit, listing, up
from tests.unit.core.repair.repair_model import Cluster, closed_ledger

Todo: TypeAlias = list[Callable[[], None]]


# Unrecoverable ledgers (rule 35).


def test_rule_35_an_unrecoverable_ledger_blocks_no_other() -> None:
    bucket = RetryBucket(first_ms=1_000, max_ms=8_000)
    tasks = [1, 2, 3]
    repaired: set[int] = set()
    tried_1: list[int] = []
    for now_ms in range(0, 20_000, 100):
        ready = bucket.due([t for t in tasks if t not in repaired], now_ms)
        if not ready:
            continue
        if ready[0] == 1:
            tried_1.append(now_ms)
            bucket.failed(1, "entry 4 is nowhere", now_ms, unrecoverable=True)
        else:
            repaired.add(ready[0])
            bucket.repaired(ready[0])
    assert repaired == {2, 3}
    assert tried_1 == [0, 1_000, 3_000, 7_000, 15_000], "pauses double up to the longest"
    (setback,) = bucket.unrecoverable()
    assert (setback.ledger_id, setback.failures, setback.why) == (1, 5, "entry 4 is nowhere")
    bucket.repaired(1)
    assert bucket.unrecoverable() == []


# Pace (rule 37).


def test_rule_37_fifty_thousand_ledgers_are_read_at_the_pace_of_the_metadata_store() -> None:
    reads = PacedReads(per_second=500, in_flight_max=50)
    reads.begin(range(50_000), 0)
    now_ms = in_flight = 0
    per_second: dict[int, int] = {}
    seen: list[int] = []
    while not reads.is_over:
        batch = reads.next(now_ms)
        in_flight += len(batch)
        assert in_flight <= 50
        per_second[now_ms // 1000] = per_second.get(now_ms // 1000, 0) + len(batch)
        seen += batch
        while in_flight and (now_ms % 20 == 0):
            reads.answered()
            in_flight -= 1
        now_ms += 10
    assert seen == list(range(50_000))
    assert max(per_second.values()) <= 500 + 125
    assert 99_000 <= now_ms <= 101_000


def test_rule_37_a_cycle_that_follows_at_once_does_not_exceed_the_pace() -> None:
    reads = PacedReads(per_second=100, in_flight_max=1000)
    handed_out = 0
    for _ in range(50):
        reads.begin(range(1000), 0)
        handed_out += len(reads.next(0))
    assert handed_out == 25


# Cycles, tasks, decommission.


def cycle(
    auditor: Auditor, judged: dict[int, tuple[LedgerMetadata, Findings]], now_ms: int = 0
) -> CycleReport:
    auditor.begin(now_ms, judged)
    while not auditor.cycle_is_over:
        for ledger_id in auditor.next_reads(now_ms):
            auditor.judge(*judged[ledger_id], now_ms)
    return auditor.report()


def test_a_report_sorts_ledgers_by_what_is_left_of_them() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    metadata = closed_ledger(3, 3, 2, [(0, "abc")], 9)
    sound = Cluster(metadata)
    report = cycle(
        auditor,
        {7: (metadata, Findings(up("abc"), listed=listing(sound)))},
    )
    assert report.is_fully_replicated
    assert report.healthy == (7,)
    assert not report.tasks
    assert report.named == frozenset("abc")
    for alive, (none, ack, write) in {
        "ab": ((), (), (7,)),
        "a": ((), (7,), (7,)),
        "": ((7,), (7,), (7,)),
    }.items():
        report = cycle(auditor, {7: (metadata, Findings(up(alive), lost=frozenset("abc") - set(alive)))})
        assert (report.without_replica, report.below_ack_quorum, report.below_write_quorum) == (
            none,
            ack,
            write,
        )
        assert not report.is_fully_replicated


def test_a_ledger_that_could_not_be_read_is_never_called_replicated() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    auditor.begin(0, [1, 2])
    assert auditor.next_reads(0) == [1, 2]
    auditor.skip(1, deleted=True)
    assert not auditor.cycle_is_over
    auditor.skip(2, deleted=False)
    report = auditor.report()
    assert report.unread == (2,)
    assert not report.is_fully_replicated


def test_tasks_survive_their_json_and_merge() -> None:
    one = RepairTask(7, (Reason.GAP,), ("a", "b"), (), (0, 10))
    two = RepairTask(7, (Reason.LOST,), ("c",), ("c",), (10, 20), recover=True)
    both = one.merged(two)
    assert both == RepairTask(
        7, (Reason.GAP, Reason.LOST), ("a", "b", "c"), ("c",), (0, 10, 20), recover=True
    )
    assert RepairTask.from_json(both.to_json()) == both
    for bad in (
        b"",
        b"[]",
        b"{}",
        both.to_json().replace(b"gap", b"gab"),
        both.to_json().replace(b":1,", b":2,"),
    ):
        with pytest.raises(MetadataError):
            RepairTask.from_json(bad)


def test_a_bookie_is_drained_read_only_until_no_ledger_names_it() -> None:
    auditor = Auditor(make_policy(), random.Random(1))
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "bcd")], 30), "e")
    assert cluster.metadata is not None
    everyone = up("abcde")
    assert decommission_step("b", everyone.keys(), None) is DecommissionStep.MAKE_READ_ONLY
    writable = everyone.keys() - {"b"}
    assert decommission_step("b", writable, None) is DecommissionStep.DRAIN
    leaving = frozenset("b")
    report = cycle(auditor, {7: (cluster.metadata, Findings(everyone, leaving=leaving))})
    assert decommission_step("b", writable, report) is DecommissionStep.DRAIN
    assert [task.reasons for task in report.tasks] == [(Reason.LEAVING,)]
    heal(cluster, everyone, leaving=leaving)
    report = cycle(auditor, {7: (cluster.metadata, Findings(everyone, leaving=leaving))})
    assert decommission_step("b", writable, report) is DecommissionStep.REMOVE
    auditor.begin(0, [7])
    auditor.next_reads(0)
    auditor.skip(7, deleted=False)
    assert decommission_step("b", writable, auditor.report()) is DecommissionStep.DRAIN


# Everything together.


def heal(
    cluster: Cluster,
    registered: dict[BookieId, BookieInfo],
    *,
    lost: frozenset[BookieId] = frozenset(),
    leaving: frozenset[BookieId] = frozenset(),
) -> LedgerAudit:
    """Audit and repair in turn, as a worker does, until nothing is left to do; the last audit."""
    for _ in range(60):
        assert cluster.metadata is not None
        limbo = frozenset(name for name, bookie in cluster.bookies.items() if bookie.limbo)
        findings = Findings(registered, lost, leaving, limbo=limbo, listed=listing(cluster))
        found = audit(cluster.metadata, findings)
        if not found.plans:
            return found
        repair = LedgerRepair(cluster.metadata, cluster.version, found.plans[0], unavailable=lost)
        verdict = cluster.run(repair)
        assert isinstance(verdict, RepairFinished), verdict
    raise AssertionError("it never ends")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), e=st.integers(2, 4))
def test_whatever_happens_short_of_the_last_replica_everything_is_fully_replicated_in_the_end(
    data: st.DataObject, e: int
) -> None:
    qw = data.draw(st.integers(2, e))
    names = "abcdefgh"
    ensembles = st.permutations(list(names)).map(lambda order: "".join(order[:e]))
    starts = sorted(data.draw(st.sets(st.integers(1, 30), max_size=2)) | {0})
    last = data.draw(st.integers(starts[-1] - 1, 35))
    cluster = Cluster(closed_ledger(e, qw, 1, [(s, data.draw(ensembles)) for s in starts], last), names)
    hurt = data.draw(st.sampled_from(names))
    kind = data.draw(st.sampled_from(["lost", "leaving", "limbo", "gaps"]))
    if kind == "limbo":
        cluster.bookies[hurt].wipe(named=True, nonce="n")
    if kind == "gaps":
        for entry in sorted(cluster.bookies[hurt].entries):
            if data.draw(st.booleans()):
                del cluster.bookies[hurt].entries[entry]
    racks = {name: data.draw(st.sampled_from(["r1", "r2", ""])) for name in names}
    alive = up("".join(name for name in names if not (kind == "lost" and name == hurt)), **racks)
    found = heal(
        cluster,
        alive,
        lost=frozenset(hurt if kind == "lost" else ""),
        leaving=frozenset(hurt if kind == "leaving" else ""),
    )
    assert found.is_fully_replicated, found
    assert not found.problems
    assert not any(cluster.lacks(name) for name in names)
    assert not any(bookie.limbo for bookie in cluster.bookies.values())
    assert cluster.metadata is not None
    if kind in {"lost", "leaving"}:
        assert hurt not in cluster.metadata.bookies()


def test_a_change_that_the_repair_writes_is_one_that_metadata_allows() -> None:
    cluster = Cluster(closed_ledger(3, 3, 2, [(0, "abc"), (10, "abd")], 20), "e")
    heal(cluster, up("acde"), lost=frozenset("b"))
    changes = [effect.metadata for effect in cluster.log if isinstance(effect, CasMetadata)]
    assert len(changes) == 2
    assert cluster.metadata == changes[-1]
