"""What several pools say of their one cluster: the oldest one's word holds, whoever is looked at when."""

from dataclasses import replace
from typing import Any

from daybook_operator.plan.conditions import find
from daybook_operator.plan.effects import SetLostBookieDelay, SetStatus
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.observed import ObservedPool
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import PoolSim

NOW_MS = 1_000_000


def pool(name: str, created: str, delay_s: int | None) -> dict[str, Any]:
    recovery = {} if delay_s is None else {"recovery": {"lostBookieDelaySeconds": delay_s}}
    found = pool_manifest(**recovery)
    found["metadata"] |= {"name": name, "uid": name, "creationTimestamp": created}
    return found


def world(mine: dict[str, Any], others: list[dict[str, Any]], cluster_s: float | None) -> ObservedPool:
    seen = PoolSim(mine).world()
    assert seen.cluster is not None
    cluster = replace(seen.cluster, lost_bookie_delay_s=cluster_s)
    return replace(seen, cluster=cluster, others=tuple(others))


def delays(seen: ObservedPool) -> list[float]:
    return [each.delay_s for each in decide(seen, NOW_MS).effects if isinstance(each, SetLostBookieDelay)]


def said(seen: ObservedPool) -> Any:
    (status,) = [each.status for each in decide(seen, NOW_MS).effects if isinstance(each, SetStatus)]
    return find(status["conditions"], "ClusterSettingsAccepted")


def test_the_oldest_pools_delay_holds_and_the_other_says_so() -> None:
    old = pool("old", "2026-01-01T00:00:00Z", 600)
    new = pool("new", "2026-02-01T00:00:00Z", 30)
    assert delays(world(old, [new], None)) == [600.0]
    assert delays(world(new, [old], 600.0)) == []
    assert delays(world(new, [old], 60.0)) == [], "nor while the old one has not been looked at"
    told = said(world(new, [old], 600.0))
    assert (told["status"], told["reason"]) == ("False", "HeldByAnotherPool")
    assert "30 here and 600 in BookiePool data/old" in told["message"]
    assert said(world(old, [new], 600.0))["status"] == "True"


def test_a_pool_that_names_no_delay_has_no_say_and_no_complaint() -> None:
    silent = pool("silent", "2025-01-01T00:00:00Z", None)
    new = pool("new", "2026-02-01T00:00:00Z", 30)
    assert delays(world(new, [silent], 60.0)) == [30.0]
    assert delays(world(silent, [new], 60.0)) == []
    assert said(world(silent, [new], 30.0))["status"] == "True"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 3)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=12),
)
def test_reconciles_in_any_order_settle_and_fight_no_more(
    pools: list[tuple[int, int | None]], order: list[int]
) -> None:
    made = [
        pool(f"p{number}", f"2026-01-0{age + 1}T00:00:00Z", delay_s)
        for number, (age, delay_s) in enumerate(pools)
    ]
    value: float | None = None

    def look(number: int) -> bool:
        nonlocal value
        mine = made[number % len(made)]
        told = delays(world(mine, [each for each in made if each is not mine], value))
        value = told[0] if told else value
        return bool(told)

    for number in order:
        look(number)
    for number in range(len(made)):
        look(number)
    assert not any(look(number) for number in range(len(made))), "once everybody was looked at, nobody writes"
    naming = [(age, number, delay_s) for number, (age, delay_s) in enumerate(pools) if delay_s is not None]
    assert value == (min(naming)[2] if naming else None)
