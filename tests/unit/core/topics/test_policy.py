"""What is set for topics, and what it means for a ledger: rule 8 and rule 45 of docs/protocol.md."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import PolicyError
from daybook.core.ids import MAX_ID
from daybook.core.quorum import Quorum
from daybook.core.topics import policy as policies
from daybook.core.topics.policy import (
    UNLIMITED,
    BacklogAction,
    Degrade,
    Durability,
    LedgerTerms,
    Policy,
    PolicyLayer,
    applied,
    merged,
)
from daybook.core.topics.trimming import Retention


def layer(**values: Any) -> PolicyLayer:
    return PolicyLayer(**values)


def bookies(count: int, pool: str = "data.bk") -> list[str]:
    return [f"{pool}-{ordinal}" for ordinal in range(count)]


def test_a_topics_value_counts_before_its_namespaces_and_that_before_the_brokers() -> None:
    default = Policy(ttl_ms=1, retention_ms=1, backlog_bytes=1)
    namespace = layer(ttl_ms=2, retention_ms=2)
    found = merged(default, namespace, layer(ttl_ms=3, degrade=Degrade.NEVER))
    assert (found.ttl_ms, found.retention_ms, found.backlog_bytes) == (3, 2, 1)
    assert found.degrade is Degrade.NEVER
    assert merged(default) == default
    assert merged(default, layer(ttl_ms=0)).ttl_ms == 0, "0 is a value"


def test_a_record_comes_back_with_the_fields_of_a_later_release() -> None:
    record = {
        "formatVersion": 1,
        "durability": "sync",
        "degrade": "never",
        "ensembleSize": 5,
        "writeQuorum": 3,
        "retentionMs": -1,
        "retentionBytes": 10**12,
        "ttlMs": 60_000,
        "backlogBytes": 5,
        "backlogMs": -1,
        "backlogAction": "consumer_backlog_eviction",
        "inactiveMs": 7,
        "pool": "data.bk",
        "later": {"a": [1]},
    }
    found = PolicyLayer.from_record(record)
    assert found.to_record() == record
    assert found.backlog_action is BacklogAction.EVICT
    assert found.unknown_fields == {"later": {"a": [1]}}
    assert PolicyLayer.from_record({}) == PolicyLayer()
    assert PolicyLayer().to_record() == {"formatVersion": 1}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"durability": "always"}, "durability='always' is not possible: use sync or semi-sync or async"),
        ({"degrade": 1}, "use never or to-ack-quorum"),
        ({"retentionMs": "1"}, "retentionMs='1' is not possible: use a whole number"),
        ({"ttlMs": True}, "use a whole number"),
        ({"ttlMs": 1.5}, "use a whole number"),
        ({"ttlMs": 2**70}, "use a whole number"),
        ({"ttlMs": -1}, "ttlMs=-1: at least 0"),
        ({"retentionBytes": -2}, "at least -1 is needed, which means no limit"),
        ({"ensembleSize": 0}, "at least 1"),
        ({"backlogAction": []}, "producer_request_hold"),
        ({"pool": 1}, "pool='1' is not possible: use the name of a pool"),
        ({"pool": "data/bk"}, "cannot name a pool: use the ids of its bookies without their ordinals"),
        ({"formatVersion": 2}, "upgrade it first"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused_with_what_can(record: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        PolicyLayer.from_record(record)


@pytest.mark.parametrize("name", policies._MINIMA)
def test_a_number_that_could_not_be_read_again_is_refused(name: str) -> None:
    most = layer(**{name: MAX_ID})
    assert PolicyLayer.from_record(most.to_record()) == most
    for number in (MAX_ID + 1, 10**4300, -(10**4300)):
        with pytest.raises(PolicyError, match=f"has more than 64 bits: use at most {MAX_ID}"):
            layer(**{name: number})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"durability": Durability.SYNC}, "set degrade=never, or durability=semi-sync"),
        ({"write_quorum": 1, "ensemble_size": 1}, "without any copy"),
        ({"write_quorum": 4}, "ensemble size ≥ write quorum"),
        ({"ensemble_size": 65}, "64 ≥ ensemble size"),
        ({"pool": "-"}, "cannot name a pool"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        merged(Policy(), layer(**values))


@pytest.mark.parametrize(
    ("default", "values", "expected"),
    [
        ({}, {"durability": Durability.SYNC}, {"degrade": Degrade.NEVER}),
        (
            {"durability": Durability.SYNC, "degrade": Degrade.NEVER},
            {"degrade": Degrade.TO_ACK_QUORUM},
            {"degrade": Degrade.NEVER},
        ),
        ({}, {"write_quorum": 5}, {"ensemble_size": 5}),
        ({"ensemble_size": 5, "write_quorum": 4}, {"ensemble_size": 3}, {"ensemble_size": 4}),
        (
            {},
            {"ensemble_size": 1, "write_quorum": 1},
            {"durability": Durability.SYNC, "degrade": Degrade.NEVER},
        ),
    ],
)
def test_policies_that_contradict_each_other_hold_with_more_copies_than_were_asked_for(
    default: dict[str, Any], values: dict[str, Any], expected: dict[str, Any]
) -> None:
    others = {"retention_ms": UNLIMITED, "ttl_ms": 7}
    found = applied(Policy(**default), layer(**values, **others))
    assert found.policy == replace(Policy(), **{**default, **values, **others, **expected})
    with pytest.raises(PolicyError) as caught:
        merged(Policy(**default), layer(**values))
    assert found.contradiction == str(caught.value)


def test_policies_that_go_together_hold_as_they_are() -> None:
    values = layer(durability=Durability.SYNC, degrade=Degrade.NEVER, retention_ms=5)
    assert applied(Policy(), values) == (merged(Policy(), values), "")


def test_a_value_that_is_wrong_in_itself_holds_nowhere() -> None:
    with pytest.raises(PolicyError, match="64 ≥ ensemble size"):
        applied(Policy(), layer(ensemble_size=65))


@pytest.mark.parametrize(
    ("durability", "quorum", "is_weak"),
    [
        (Durability.SYNC, Quorum(3, 3, 3), False),
        (Durability.SEMI_SYNC, Quorum(3, 3, 2), False),
        (Durability.ASYNC, Quorum(3, 3, 1), True),
    ],
)
def test_rule_08_a_weak_durability_has_a_warning(
    durability: Durability, quorum: Quorum, *, is_weak: bool
) -> None:
    policy = Policy(durability, Degrade.NEVER)
    assert policy.quorum == quorum
    assert (policy.warning is not None) is is_weak


@pytest.mark.parametrize(
    ("available", "quorum", "is_degraded"),
    [
        (9, Quorum(5, 3, 2), False),
        (5, Quorum(5, 3, 2), False),
        (4, Quorum(4, 3, 2), True),
        (2, Quorum(2, 2, 2), True),
        (1, Quorum(2, 2, 2), True),
        (0, Quorum(2, 2, 2), True),
    ],
)
def test_rule_45_a_ledger_shrinks_to_the_bookies_that_are_there_never_below_qa(
    available: int, quorum: Quorum, *, is_degraded: bool
) -> None:
    policy = Policy(ensemble_size=5)
    assert policies.ledger_terms(policy, bookies(available)) == LedgerTerms(
        quorum, go_on_without_spare=True, is_degraded=is_degraded
    )


def test_rule_45_a_topic_that_must_not_degrade_keeps_its_quorum() -> None:
    policy = Policy(Durability.SYNC, Degrade.NEVER)
    assert policies.ledger_terms(policy, bookies(1)) == LedgerTerms(
        Quorum(3, 3, 3), go_on_without_spare=False, is_degraded=False, durability=Durability.SYNC
    )


@pytest.mark.parametrize(
    ("places", "quorum", "is_degraded"),
    [
        (5, Quorum(5, 3, 2), False),
        (3, Quorum(3, 3, 2), True),
        (2, Quorum(2, 2, 2), True),
        (1, Quorum(2, 2, 2), True),
    ],
)
def test_rule_45_a_ledger_shrinks_to_what_can_be_placed_never_below_qa(
    places: int, quorum: Quorum, *, is_degraded: bool
) -> None:
    """Five bookies that stand on fewer nodes."""
    whole = policies.ledger_terms(Policy(ensemble_size=5), bookies(5))
    found = policies.placeable(whole, lambda asked: asked.ensemble_size <= places)
    assert found == whole._replace(quorum=quorum, is_degraded=is_degraded)


def test_rule_45_a_topic_that_must_not_degrade_keeps_what_cannot_be_placed() -> None:
    whole = policies.ledger_terms(Policy(Durability.SYNC, Degrade.NEVER), bookies(3))
    assert policies.placeable(whole, lambda _: False) == whole


def test_rule_69_a_ledger_of_a_pool_shrinks_to_the_bookies_of_that_pool() -> None:
    there = [*bookies(2), *bookies(5, "data.big"), *bookies(4, "data.bk-1"), "unpooled"]
    terms = policies.ledger_terms(Policy(pool="data.bk"), there)
    assert terms == LedgerTerms(Quorum(2, 2, 2), go_on_without_spare=True, is_degraded=True, pool="data.bk")
    terms = policies.ledger_terms(Policy(pool="data.big"), there)
    assert (terms.quorum, terms.is_degraded, terms.pool) == (Quorum(3, 3, 2), False, "data.big")
    assert policies.ledger_terms(Policy(), there).pool == "", "a topic without a pool lies anywhere"


def test_a_topic_may_leave_the_pool_of_its_namespace_and_a_policy_without_a_pool_stores_nothing() -> None:
    namespace = layer(pool="data.bk")
    assert merged(Policy(), namespace).pool == "data.bk"
    assert merged(Policy(), namespace, layer(pool="")).pool == ""
    assert layer(pool="").to_record() == {"formatVersion": 1, "pool": ""}
    assert "pool" not in layer(ttl_ms=1).to_record()


@given(
    st.sampled_from(Durability),
    st.sampled_from(Degrade),
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(0, 9),
)
def test_whatever_is_allowed_acknowledges_with_the_same_copies_however_few_bookies_are_there(
    durability: Durability, degrade: Degrade, ensemble_size: int, write_quorum: int, available: int
) -> None:
    try:
        policy = Policy(durability, degrade, ensemble_size, write_quorum)
    except PolicyError:
        return
    terms = policies.ledger_terms(policy, bookies(available))
    assert terms.quorum.ack_quorum == policy.quorum.ack_quorum
    assert terms.quorum.ensemble_size <= max(policy.ensemble_size, terms.quorum.ack_quorum)
    assert terms.is_degraded == (terms.quorum != policy.quorum)
    assert (terms.durability, terms.degrade) == (durability, degrade)


@pytest.mark.parametrize(
    ("time_ms", "size_bytes", "retention"),
    [
        (0, 0, Retention(0, None)),
        (UNLIMITED, UNLIMITED, Retention(None, None)),
        (5, UNLIMITED, Retention(5, None)),
        (UNLIMITED, 7, Retention(None, 7)),
        (5, 7, Retention(5, 7)),
        (5, 0, Retention(5, None)),
        (0, 7, Retention(None, 7)),
    ],
)
def test_a_retention_of_zero_and_zero_keeps_nothing_and_a_limit_alone_keeps_up_to_it(
    time_ms: int, size_bytes: int, retention: Retention
) -> None:
    assert Policy(retention_ms=time_ms, retention_bytes=size_bytes).retention == retention
