"""What a drain would do and how far it is; what lacks replicas and who mends it."""

from daybook.cli.kubectl.drain import drain_line, plan_drain
from daybook.cli.kubectl.recovery import recovery_line, recovery_plan
from daybook.cli.kubectl.world import World
from tests.unit.cli.kubectl.objects import bookie, condition, job, ledger, pool

FIVE = [bookie(n) for n in range(5)]


def test_the_highest_ordinals_leave_by_number_and_not_by_name() -> None:
    eleven = pool(*(bookie(n) for n in range(11)))
    plan = plan_drain(World([eleven]), eleven, 8)
    assert plan.leaving == ("data.bk-10", "data.bk-9", "data.bk-8")
    assert not plan.refusals
    assert not plan.warnings


def test_copies_must_have_a_place() -> None:
    five = pool(*FIVE)
    wide = ledger()
    wide["spec"]["ensembleSize"] = 5
    assert "striped over 5 bookies" in plan_drain(World([five], [wide]), five, 4).refusals[0]
    assert not plan_drain(World([five], [ledger()]), five, 4).refusals


def test_what_stands_in_the_way_is_said_before_anything_is_changed() -> None:
    refusing = pool(*FIVE, spec={"scaleDown": {"policy": "Refuse"}, "hibernate": True})
    refusing["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    text = " ".join(plan_drain(World([refusing]), refusing, 4).refusals)
    assert "Refuse" in text
    assert "hibernates" in text
    assert "paused" in text
    assert "below that" in plan_drain(World([refusing]), refusing, 5).refusals[0]
    assert any("at least one" in each for each in plan_drain(World([pool()]), pool(), 0).refusals)


def test_racks_space_and_replication_are_warned_about() -> None:
    full = [bookie(n, usedBytes=60 << 30) for n in range(3)]
    three = pool(
        *full,
        spec={"placement": {"minRacksPerWriteQuorum": 3}},
        conditions=[condition("FullyReplicated", "False", "GapsFound")],
    )
    racks, replication = plan_drain(World([three]), three, 2).warnings
    assert racks == "2 racks would be left, and spec.placement asks for 3"
    assert "GapsFound" in replication
    fuller = pool(*(bookie(n, usedBytes=70 << 30) for n in range(3)))
    (space,) = plan_drain(World([fuller]), fuller, 2).warnings
    assert space == "70.0 GiB are to be copied, and those who stay have 60.0 GiB free"
    away = pool(bookie(0, state="Away"), bookie(1), bookie(2))
    assert "data.bk-0 cannot take copies now" in plan_drain(World([away]), away, 2).warnings


def test_a_drain_is_followed_to_its_end() -> None:
    unseen = pool(*FIVE, spec={"replicas": 4})
    unseen["metadata"]["generation"] = 4
    assert drain_line(unseen) == ("the operator has not reconciled yet", False)
    drain = {"bookie": "data.bk-4", "stage": "Replicating", "ledgersRemaining": 0, "message": "an audit"}
    under_way = pool(*FIVE, spec={"replicas": 4}, drain=drain)
    assert drain_line(under_way) == ("data.bk-4: Replicating, 0 ledgers still name it: an audit", False)
    waits = pool(
        *FIVE, spec={"replicas": 4}, conditions=[condition("Draining", "False", "Waits", "a roll goes first")]
    )
    assert drain_line(waits) == ("a roll goes first", False)
    assert drain_line(pool(*FIVE)) == ("5 bookies, all that are wanted", True)


def test_a_repair_is_told_with_its_jobs_and_what_it_waits_for() -> None:
    recovery = {"underReplicated": 3, "activeJobs": 1, "waitingLedgers": 1, "unrecoverable": 0}
    mending = pool(
        bookie(0),
        bookie(1, state="Away"),
        bookie(2),
        recovery=recovery,
        conditions=[condition("FullyReplicated", "False", "UnderReplicated", "3 ledgers lack replicas")],
    )
    lacking = ledger(fragments=[{"firstEntry": 0, "bookies": ["data.bk-1"], "missing": ["data.bk-1"]}])
    world = World(
        [mending], [lacking, ledger("fine")], jobs=[job("recover-1", 7, 9), job("recover-0", 3, ended=True)]
    )
    plan = recovery_plan(world, mending)
    assert [each["name"] for each in plan["jobs"]] == ["recover-1"]
    assert plan["jobs"][0]["ledgers"] == [7, 9]
    assert plan["ledgers"] == [{"name": "first", "ledgerId": 7, "missing": ["data.bk-1"]}]
    assert plan["awayBookies"] == ["data.bk-1"]
    text, done = recovery_line(mending)
    assert text == "FullyReplicated False: 3 under-replicated, 1 Jobs; 3 ledgers lack replicas"
    assert not done
    assert recovery_line(pool())[1]
