"""Which bundles leave a busy broker: not too soon, not too many, and never in circles."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.ownership.bundles import Bundle, bundles_of
from daybook.core.topics.ownership.load import BrokerLoad
from daybook.core.topics.ownership.shedding import Move, Shedder, SheddingPolicy

BUNDLES = bundles_of("t", "n")
AT_ONCE = SheddingPolicy(cycles_min=1, history=0.0)
CYCLE_MS = 60_000


def load_of(costs: dict[Bundle, float], scale: float = 1.0) -> BrokerLoad:
    """The report of a broker whose bundles take these shares of a core, as estimated with a wrong scale."""
    heaviest = sorted(((bundle, cost * scale) for bundle, cost in costs.items()), key=lambda each: -each[1])
    return BrokerLoad(sum(costs.values()), len(costs), sum(cost for _, cost in heaviest), tuple(heaviest))


def even(number: int, total: float) -> dict[Bundle, float]:
    return dict.fromkeys(BUNDLES[:number], total / number)


def test_a_busy_broker_sheds_to_an_idle_one_after_some_cycles_only() -> None:
    loads = {"a": load_of(even(16, 0.8)), "b": load_of({})}
    shedder = Shedder()
    assert shedder.cycle(loads, 0) == []
    assert shedder.cycle(loads, 1) == []
    moves = shedder.cycle(loads, 2)
    assert moves == [Move(bundle, "a", "b") for bundle in BUNDLES[:4]], "moves_max at once"
    assert shedder.cycle(loads, 3) == [], "and then it counts anew"


def test_a_peak_is_no_reason() -> None:
    calm, peak = load_of(even(16, 0.3)), load_of(even(16, 0.9))
    other = load_of({})
    shedder = Shedder(SheddingPolicy(history=0.0))
    for load in (peak, peak, replace(calm, busy=0.1), peak, peak):
        assert shedder.cycle({"a": load, "b": other}, 0) == []


def test_brokers_that_are_equally_busy_or_nearly_idle_or_alone_keep_what_they_have() -> None:
    for loads in (
        {"a": load_of(even(8, 0.9)), "b": load_of(even(8, 0.85))},
        {"a": load_of(even(8, 0.29)), "b": load_of({})},
        {"a": load_of(even(8, 0.99))},
        {},
    ):
        assert Shedder(AT_ONCE).cycle(loads, 0) == []


def test_a_bundle_as_busy_as_its_broker_stays() -> None:
    loads = {"a": load_of({BUNDLES[0]: 0.9}), "b": load_of({})}
    assert Shedder(replace(AT_ONCE, share_max=1.0)).cycle(loads, 0) == []
    loads = {"a": load_of({BUNDLES[0]: 0.5, BUNDLES[1]: 0.1}), "b": load_of({})}
    assert Shedder(replace(AT_ONCE, share_max=1.0)).cycle(loads, 0) == [Move(BUNDLES[1], "a", "b")]


def test_what_leaves_at_once_is_bounded_and_a_bundle_that_moved_rests() -> None:
    policy = replace(AT_ONCE, moves_max=100, share_max=0.26, rest_ms=1000)
    loads = {"a": load_of(even(20, 1.0), scale=50.0), "b": load_of({})}
    shedder = Shedder(policy)
    first = [move.bundle for move in shedder.cycle(loads, 0)]
    assert len(first) == 5, "a quarter, whatever the scale of the costs"
    second = [move.bundle for move in shedder.cycle(loads, 999)]
    assert not set(first) & set(second)
    assert [move.bundle for move in shedder.cycle(loads, 1000)] == first


def test_a_report_without_costs_moves_nothing() -> None:
    load = BrokerLoad(0.9, 1, 0.0, ((BUNDLES[0], 0.0),))
    assert Shedder(AT_ONCE).cycle({"a": load, "b": BrokerLoad()}, 0) == []


@given(
    st.lists(st.lists(st.floats(0.0, 0.3), max_size=10), min_size=2, max_size=4),
    st.integers(1, 3),
)
def test_shedding_comes_to_an_end_and_nobody_gets_busier_than_the_busiest_was(
    shares: list[list[float]], cycles_min: int
) -> None:
    numbered = iter(BUNDLES * 2)
    brokers: dict[str, dict[Bundle, float]] = {}
    for index, costs in enumerate(shares):
        brokers[f"b{index}"] = {Bundle("t", f"n{index}", next(numbered).number): cost for cost in costs}
    policy = SheddingPolicy(cycles_min=cycles_min)
    shedder = Shedder(policy)
    busiest = max(sum(costs.values()) for costs in brokers.values())
    moved: set[Bundle] = set()
    quiet = 0
    for cycle in range(300):
        loads = {name: load_of(costs) for name, costs in brokers.items()}
        moves = shedder.cycle(loads, cycle * CYCLE_MS // 100)
        assert len(moves) <= policy.moves_max
        for bundle, source, target in moves:
            assert source != target
            assert bundle not in moved, "it rests"
            moved.add(bundle)
            brokers[target][bundle] = brokers[source].pop(bundle)
        assert max(sum(costs.values()) for costs in brokers.values()) <= busiest + 1e-9
        quiet = 0 if moves else quiet + 1
    assert quiet > 100
