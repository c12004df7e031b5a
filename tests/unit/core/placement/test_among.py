"""Placement among named bookies, and among those of a ledger's pool: rule 69 of docs/protocol.md."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId, check_pool, pool_of
from daybook.core.placement.among import among_named, in_pool, rated_in_pool
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum

BOOKIES = {f"b{n}": BookieInfo(f"b{n}", rack="xy"[n % 2]) for n in range(6)}
QUORUM = Quorum(3, 3, 2)
AMONG = among_named(["b0", "b1", "b2", "b3", "not-registered"], make_policy())


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
        among_named([], make_policy())
    with pytest.raises(ValueError, match="cannot name a bookie"):
        among_named(["a/b"], make_policy())


# Pools


@pytest.mark.parametrize(
    ("bookie", "pool"),
    [
        ("data.bk-0", "data.bk"),
        ("data.bk-12", "data.bk"),
        ("data.bk-1-0", "data.bk-1"),
        ("data.bk-01", ""),
        ("data.bk", ""),
        ("b7", ""),
    ],
)
def test_a_bookies_pool_is_its_id_without_the_ordinal(bookie: str, pool: str) -> None:
    assert pool_of(bookie) == pool
    assert not pool or check_pool(pool) == pool


@st.composite
def clusters(draw: st.DrawFn) -> Mapping[BookieId, BookieInfo]:
    """Two pools of up to five bookies, and some bookies of none, over few racks; some are read-only."""
    names = [
        f"{pool}-{ordinal}"
        for pool in ("data.bk", "data.bk-1")
        for ordinal in range(draw(st.integers(0, 5), label=pool))
    ]
    names += [f"b{number}" for number in range(draw(st.integers(0, 2)))]
    return {
        name: BookieInfo(name, rack=draw(st.sampled_from(["", "x", "y"])), writable=draw(st.booleans()))
        for name in names
    }


def subsets(bookies: Mapping[BookieId, BookieInfo]) -> st.SearchStrategy[frozenset[BookieId]]:
    return st.frozensets(st.sampled_from(sorted(bookies))) if bookies else st.just(frozenset())


SETTINGS = st.builds(
    PlacementSettings,
    policy=st.sampled_from(["random", "rack"]),
    enforce=st.booleans(),
    weigh_by_free_space=st.booleans(),
)


@given(clusters(), SETTINGS, st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_rule_69_an_ensemble_is_of_the_pool_or_there_is_none(
    bookies: Mapping[BookieId, BookieInfo],
    settings: PlacementSettings,
    size: int,
    seed: int,
    data: st.DataObject,
) -> None:
    exclude = data.draw(subsets(bookies))
    alone = {name: info for name, info in bookies.items() if pool_of(name) == "data.bk"}
    try:
        expected = make_policy(settings).choose(
            Quorum(size, size, 1), alone, random.Random(seed), exclude=exclude
        )
    except NotEnoughBookiesError:
        expected = ()
    try:
        chosen = in_pool("data.bk", make_policy(settings)).choose(
            Quorum(size, size, 1), bookies, random.Random(seed), exclude=exclude
        )
    except NotEnoughBookiesError:
        chosen = ()
    assert {pool_of(name) for name in chosen} <= {"data.bk"}
    assert chosen == expected, "other pools change nothing"


@given(clusters(), SETTINGS, st.integers(0, 2**32), st.data())
def test_rule_69_whoever_replaces_a_bookie_is_of_the_pool_whoever_stays(
    bookies: Mapping[BookieId, BookieInfo], settings: PlacementSettings, seed: int, data: st.DataObject
) -> None:
    ensemble = tuple(data.draw(st.permutations([*sorted(bookies), "data.gone-0"])))[:3]
    quorum = Quorum(len(ensemble), len(ensemble), 1)
    positions = data.draw(st.frozensets(st.sampled_from(range(len(ensemble))), min_size=1))
    exclude = data.draw(subsets(bookies))
    free = [
        name
        for name, info in bookies.items()
        if pool_of(name) == "data.bk" and info.writable and name not in exclude and name not in ensemble
    ]
    policy = in_pool("data.bk", make_policy(settings))
    try:
        replaced = policy.replace(quorum, ensemble, positions, bookies, random.Random(seed), exclude=exclude)
    except NotEnoughBookiesError:
        assert settings.enforce or len(free) < len(positions)
        return
    for position, (old, new) in enumerate(zip(ensemble, replaced, strict=True)):
        assert new in free if position in positions else new == old


def test_rule_69_too_few_bookies_of_the_pool_are_an_error_that_says_which_pool_and_what_to_do() -> None:
    bookies = {name: BookieInfo(name) for name in ("data.bk-0", "data.bk-1", "data.big-0", "data.big-1")}
    with pytest.raises(
        NotEnoughBookiesError,
        match=r"the ledger stays in pool data.bk, which has 2 of the 4 registered bookies: raise that pool's replicas",
    ):
        in_pool("data.bk", make_policy()).choose(QUORUM, bookies, random.Random(1))


def test_rule_69_a_bookie_of_another_pool_is_worse_than_a_missing_rack() -> None:
    bookies = {f"data.bk-{n}": BookieInfo(f"data.bk-{n}", rack="x") for n in range(3)}
    bookies["data.big-0"] = BookieInfo("data.big-0", rack="y")
    policy = rated_in_pool("data.bk", make_policy())
    inside, outside = ("data.bk-0", "data.bk-1", "data.bk-2"), ("data.bk-0", "data.bk-1", "data.big-0")
    assert policy.misplacement(QUORUM, inside, bookies) < policy.misplacement(QUORUM, outside, bookies)
    assert policy.misplacement(QUORUM, inside, bookies) == policy.least_misplacement(QUORUM, bookies)
    assert "data.big-0 is not of pool data.bk" in policy.problems(QUORUM, outside, bookies)
    assert policy.replace(QUORUM, outside, {2}, bookies, random.Random(1)) == inside


def test_without_a_pool_the_policy_stays_what_it_was() -> None:
    policy = make_policy()
    assert in_pool("", policy) is policy
    assert rated_in_pool("", policy) is policy
