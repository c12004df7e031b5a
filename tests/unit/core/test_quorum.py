"""Quorum arithmetic against its definition, spelled out slowly, for every small (E, Qw, Qa)."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import QuorumError
from daybook.core.quorum import (
    DENSE,
    Quorum,
    Stripe,
    can_still_ack,
    check_quorum,
    covers_every_write_set,
    is_ack_quorum,
    mask_of,
    stripe_of,
    write_set,
    write_set_masks,
)

QUORUMS = [Quorum(e, w, a) for e, w, a in product(range(1, 7), repeat=3) if e >= w >= a]
quorums = pytest.mark.parametrize("quorum", QUORUMS, ids=lambda q: f"{q[0]}/{q[1]}/{q[2]}")


@pytest.mark.parametrize("numbers", [(3, 2, 3), (2, 3, 1), (3, 3, 0), (65, 3, 2), (0, 0, 0), (3, 2, -1)])
def test_impossible_quorums_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(QuorumError, match="ensemble size ≥ write quorum ≥ ack quorum"):
        check_quorum(*numbers)


def test_write_sets_go_round() -> None:
    assert [write_set(Quorum(5, 3, 2), n) for n in range(6)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 1, 2),
    ]


@quorums
def test_stripes_are_the_write_sets_seen_from_a_bookie(quorum: Quorum) -> None:
    for position in range(quorum.ensemble_size):
        stripe = stripe_of(quorum, position)
        assert [stripe.holds(n) for n in range(20)] == [position in write_set(quorum, n) for n in range(20)]
    if quorum.ensemble_size == quorum.write_quorum:
        assert stripe_of(quorum, 0) == DENSE


@given(st.integers(1, 64), st.data())
def test_a_stripe_counts_what_it_holds(period: int, data: st.DataObject) -> None:
    stripe = Stripe(period, data.draw(st.integers(1, (1 << period) - 1)))
    first = data.draw(st.integers(0, 200))
    last = data.draw(st.integers(first - 1, first + 200))
    assert stripe.count_between(first, last) == sum(stripe.holds(n) for n in range(first, last + 1))


@quorums
def test_rule_01_fence_covers_every_ack_quorum_of_every_write_set(quorum: Quorum) -> None:
    """A set of answers covers if and only if no ack quorum of any write set can avoid it, for every subset."""
    ensemble = range(quorum.ensemble_size)
    for size in range(quorum.ensemble_size + 1):
        for answered in combinations(ensemble, size):
            avoidable = any(
                not set(acks) & set(answered)
                for n in ensemble
                for acks in combinations(write_set(quorum, n), quorum.ack_quorum)
            )
            assert covers_every_write_set(quorum, mask_of(set(answered))) is not avoidable


@quorums
def test_an_ack_quorum_is_qa_of_each_write_set_met(quorum: Quorum) -> None:
    for acked, first, length in product(range(1 << quorum.ensemble_size), range(2), (1, 2, 7)):
        last = first + length - 1
        slowly = all(
            sum(acked >> position & 1 for position in write_set(quorum, n)) >= quorum.ack_quorum
            for n in range(first, last + 1)
        )
        assert is_ack_quorum(quorum, acked, first, last) is slowly
        if length >= quorum.ensemble_size:
            assert can_still_ack(quorum, acked) is slowly


@quorums
def test_there_are_as_many_masks_as_write_sets(quorum: Quorum) -> None:
    assert set(write_set_masks(quorum)) == {mask_of(set(write_set(quorum, n))) for n in range(12)}


def test_an_empty_range_holds_nothing() -> None:
    assert Stripe(3, 0b011).count_between(5, 4) == 0
    assert Stripe(3, 0b011).count_between(3, 5) == 2
