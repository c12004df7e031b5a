"""The leader's choice of a broker."""

from collections import Counter

from daybook.core.topics.ownership.assignment import CHOICES_MAX, Assigner, least_loaded
from daybook.core.topics.ownership.bundles import Bundle, bundles_of
from daybook.core.topics.ownership.load import BrokerLoad

IDLE = {"a": BrokerLoad(), "b": BrokerLoad(), "c": BrokerLoad()}


def test_a_cluster_that_starts_spreads_its_bundles_before_any_report() -> None:
    assigner = Assigner()
    counts = Counter(assigner.choose(bundle, IDLE, 0) for bundle in bundles_of("public", "default"))
    assert sorted(counts.values()) == [10, 11, 11]


def test_the_less_busy_broker_is_chosen_and_of_equals_the_one_with_fewer_bundles() -> None:
    bundle = Bundle("t", "n", 0)
    assert least_loaded(bundle, {"a": BrokerLoad(0.5, 1), "b": BrokerLoad(0.2, 30)}, {}) == "b"
    assert least_loaded(bundle, {"a": BrokerLoad(0.25, 1), "b": BrokerLoad(0.2, 30)}, {}) == "a"
    assert least_loaded(bundle, {"a": BrokerLoad(0.2, 1), "b": BrokerLoad(0.2, 3)}, {"a": 3}) == "b"
    assert least_loaded(bundle, {}, {}) is None


def test_equal_brokers_are_each_the_first_for_some_bundles() -> None:
    assert {least_loaded(bundle, IDLE, {}) for bundle in bundles_of("t", "n")} == set(IDLE)


def test_a_choice_is_repeated_until_it_is_old_or_its_broker_is_gone() -> None:
    assigner = Assigner(choice_ms=100)
    bundle = Bundle("t", "n", 7)
    first = assigner.choose(bundle, {"a": BrokerLoad(bundles=5), "b": BrokerLoad()}, 0)
    assert first == "b"
    busier = {"a": BrokerLoad(), "b": BrokerLoad(0.9)}
    assert assigner.choose(bundle, busier, 99) == "b", "another client gets the same answer"
    assert assigner.choose(bundle, busier, 100) == "a"
    assert assigner.choose(bundle, {"b": BrokerLoad()}, 101) == "b"
    assert assigner.choose(bundle, {}, 102) is None
    assert assigner.choose(bundle, {"a": BrokerLoad()}, 103) == "a"


def test_the_choices_that_are_kept_in_mind_are_bounded() -> None:
    assigner = Assigner()
    first = Bundle("t", "n0", 0)
    assert assigner.choose(first, {"a": BrokerLoad()}, 0) == "a"
    for number in range(CHOICES_MAX // 32 + 1):
        for bundle in bundles_of("t", f"n{number + 1}"):
            assigner.choose(bundle, {"a": BrokerLoad()}, 0)
    assert assigner.choose(first, {"a": BrokerLoad(bundles=1), "b": BrokerLoad()}, 0) == "b", "forgotten"
