"""Which topics a job takes, by names and by policies."""

from typing import Any

import pytest

from daybook.core.errors import PolicyError
from daybook.core.topics.job_selection import Selection, schedule_of
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Durability, PolicyLayer

ORDERS = TopicName("public", "default", "orders")
OTHERS = TopicName("public", "other", "orders")
NOTHING = PolicyLayer()
NIGHTLY = "0 3 * * *"


def policy(**record: Any) -> PolicyLayer:
    """A topic's policy as it is stored."""
    return PolicyLayer.from_record(record)


def test_without_anything_set_every_topic_is_taken() -> None:
    assert Selection().covers(ORDERS)
    assert Selection().takes("retention", ORDERS, NOTHING, NOTHING)


def test_a_topic_is_taken_by_its_name_or_its_namespace() -> None:
    by_name = Selection(topics=(ORDERS,))
    by_namespace = Selection(namespaces=(("public", "default"),))
    for selection in (by_name, by_namespace):
        assert selection.takes("retention", ORDERS, NOTHING, NOTHING)
        assert not selection.takes("retention", OTHERS, NOTHING, NOTHING)


@pytest.mark.parametrize(
    ("namespace", "own", "is_taken"),
    [
        (NOTHING, NOTHING, False),
        (NOTHING, policy(pool="data.fast"), True),
        (policy(pool="data.fast"), NOTHING, True),
        (policy(pool="data.fast"), policy(pool=""), False),
        (policy(pool="data.fast"), policy(pool="data.slow"), False),
    ],
)
def test_a_pool_takes_the_topics_that_are_written_to_it(
    namespace: PolicyLayer, own: PolicyLayer, is_taken: bool
) -> None:
    assert Selection(pool="data.fast").takes("retention", ORDERS, namespace, own) is is_taken


@pytest.mark.parametrize(
    ("namespace", "own", "is_taken"),
    [
        (NOTHING, NOTHING, True),
        (policy(pool="data.fast"), NOTHING, True),
        (policy(pool="data.slow"), policy(pool=""), True),
        (policy(pool="data.slow"), NOTHING, False),
    ],
)
def test_a_pool_may_take_what_names_no_pool_too(
    namespace: PolicyLayer, own: PolicyLayer, is_taken: bool
) -> None:
    selection = Selection(pool="data.fast", with_poolless=True)
    assert selection.takes("retention", ORDERS, namespace, own) is is_taken


def test_a_topic_whose_policy_contradicts_the_releases_defaults_fails_no_job() -> None:
    own = PolicyLayer(pool="data.fast", durability=Durability.SYNC)
    assert Selection(pool="data.fast").takes("retention", ORDERS, NOTHING, own)


@pytest.mark.parametrize(
    ("terms", "found"),
    [
        (None, None),
        ("@daily", None),
        ({}, None),
        ({"schedule": 3}, None),
        ({"schedule": NIGHTLY}, f"{NIGHTLY} Etc/UTC"),
        ({"schedule": "0  3 * * *", "timeZone": "Europe/Berlin"}, f"{NIGHTLY} Europe/Berlin"),
        ({"schedule": "@daily"}, "@daily Etc/UTC"),
        ({"schedule": "@daily", "timeZone": "Europe/Berlin"}, "@daily Europe/Berlin"),
    ],
)
def test_a_schedule_is_what_the_policy_stores(terms: object, found: str | None) -> None:
    assert schedule_of("sorting", policy(sorting=terms)) == found
    assert schedule_of("cleaning", policy(sorting=terms)) is None


def test_a_schedule_takes_the_topics_of_its_pool_that_name_it() -> None:
    nightly = policy(pool="data.fast", sorting={"schedule": NIGHTLY})
    for schedule, is_taken in [(NIGHTLY, True), (f"{NIGHTLY} Etc/UTC", True), ("@daily", False)]:
        selection = Selection(pool="data.fast", schedule=schedule)
        assert selection.takes("sorting", ORDERS, NOTHING, nightly) is is_taken
        assert not selection.takes("cleaning", ORDERS, NOTHING, nightly)
        assert not Selection(pool="data.slow", schedule=schedule).takes("sorting", ORDERS, NOTHING, nightly)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topics": (ORDERS,), "pool": "data.fast"}, "not several"),
        ({"topics": (ORDERS,), "namespaces": (("a", "b"),)}, "not several"),
        ({"schedule": "@daily"}, "name the pool"),
        ({"pool": "a pool"}, "pool="),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        Selection(**fields)
