"""An entry as it is delivered."""

import pytest

from daybook.core.topics.dispatch.entries import messages_left
from daybook.core.topics.dispatch.policy import DispatchPolicy


@pytest.mark.parametrize(
    ("words", "messages"),
    [((), 0), ((0,), 0), ((0b1011,), 3), ((-1,), 64), ((-1, 1), 65), ((1, -(2**63)), 2)],
)
def test_the_bits_that_are_set_are_the_messages_that_are_left(words: tuple[int, ...], messages: int) -> None:
    assert messages_left(words) == messages


def test_the_limits_are_pulsars() -> None:
    policy = DispatchPolicy()
    assert (policy.unacked_per_consumer_max, policy.unacked_per_subscription_max) == (50_000, 200_000)
    assert policy.switch_delay_ms == 1_000
