"""A rule in miniature and tests around it, for test_runner.py: mutants of these must get every verdict there is."""

import pytest


def limit() -> int:
    """The rule."""
    return 3


@pytest.fixture
def half_limit() -> int:
    """Fails, rather than the test, when the rule is gone."""
    assert limit() == 3
    return limit() // 2


@pytest.mark.parametrize("size", [1, 3])
def test_pins_the_limit(size: int) -> None:
    """Turns red without the rule, for one of its parameters."""
    assert size <= limit()


def test_pins_nothing() -> None:
    """Stays green without the rule."""
    assert limit()


def test_depends_on_a_fixture(half_limit: int) -> None:
    """Never gets to its own body without the rule."""
    assert half_limit == 1


def test_is_red_anyway() -> None:
    """Red with and without the rule."""
    assert not limit()
