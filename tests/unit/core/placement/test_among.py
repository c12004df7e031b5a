"""Placement among some of the bookies alone."""

import random

import pytest

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.placement.among import AmongBookies
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum

BOOKIES = {f"b{n}": BookieInfo(f"b{n}", rack="xy"[n % 2]) for n in range(6)}
QUORUM = Quorum(3, 3, 2)
AMONG = AmongBookies(["b0", "b1", "b2", "b3", "not-registered"], make_policy())


def test_ensembles_and_replacements_are_of_allowed_bookies() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        ensemble = AMONG.choose(QUORUM, BOOKIES, rng, exclude={"b3"})
        assert set(ensemble) == {"b0", "b1", "b2"}
        replaced = AMONG.replace(QUORUM, ensemble, {0}, BOOKIES, rng)
        assert replaced == ("b3", *ensemble[1:])


def test_bookies_that_stay_need_not_be_allowed_and_are_reported() -> None:
    replaced = AMONG.replace(QUORUM, ("b4", "b5", "b0"), {1}, BOOKIES, random.Random(1), exclude={"b2"})
    assert replaced[::2] == ("b4", "b0")
    assert replaced[1] in {"b1", "b3"}
    assert list(AMONG.problems(QUORUM, replaced, BOOKIES)) == [
        "b4 is not one of the bookies that are allowed"
    ]
    assert list(AMONG.problems(QUORUM, ("b0", "b1", "b2"), BOOKIES)) == []


def test_too_few_allowed_bookies_are_an_error_that_says_so() -> None:
    with pytest.raises(NotEnoughBookiesError, match="only 5 named bookies are allowed"):
        AMONG.choose(Quorum(5, 3, 2), BOOKIES, random.Random(1))
    with pytest.raises(NotEnoughBookiesError, match="only 5 named bookies are allowed"):
        AMONG.replace(QUORUM, ("b0", "b1", "b2"), {0}, BOOKIES, random.Random(1), exclude={"b3"})


def test_a_set_without_bookies_is_refused() -> None:
    with pytest.raises(ValueError, match="no bookie is allowed"):
        AmongBookies([], make_policy())
    with pytest.raises(ValueError, match="cannot name a bookie"):
        AmongBookies(["a/b"], make_policy())
