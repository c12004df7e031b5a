"""Placement: what each policy promises, and that it keeps it wherever any choice of bookies could."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import BookieId
from daybook.core.placement import search as placement_search
from daybook.core.placement.policies import PlacementSettings, make_policy
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, can_place
from daybook.core.placement.search import certain_domains, path_of, write_sets
from daybook.core.quorum import Quorum, check_quorum

E3 = check_quorum(3, 3, 2)


def cluster(*infos: BookieInfo) -> dict[BookieId, BookieInfo]:
    """Infos by id."""
    return {info.bookie: info for info in infos}


def in_racks(**racks: str) -> dict[BookieId, BookieInfo]:
    """`in_racks(a="r1")`: bookie a in rack r1."""
    return cluster(*(BookieInfo(bookie, rack=rack) for bookie, rack in racks.items()))


def rng(seed: int = 1) -> random.Random:
    """A source of its own for each call."""
    return random.Random(seed)


# The plain promises.


def test_default_policy_works_where_topology_is_unknown() -> None:
    bookies = in_racks(a="", b="", c="", d="")
    chosen = make_policy().choose(E3, bookies, rng())
    assert len(set(chosen)) == 3
    assert not list(make_policy().problems(E3, chosen, bookies))


def test_whether_an_ensemble_is_found_can_be_asked_without_one() -> None:
    bookies = in_racks(a="r1", b="r1", c="r2")
    assert can_place(make_policy(), E3, bookies, rng())
    assert not can_place(make_policy(), E3, in_racks(a="r1", b="r2"), rng())


def test_same_random_state_gives_the_same_choice() -> None:
    bookies = in_racks(**{f"b{i}": f"r{i % 3}" for i in range(9)})
    shuffled = dict(reversed(bookies.items()))
    policy = make_policy()
    assert policy.choose(E3, bookies, rng(7)) == policy.choose(E3, shuffled, rng(7))
    assert len({policy.choose(E3, bookies, rng(seed)) for seed in range(20)}) > 5


def test_three_racks_get_a_replica_each() -> None:
    bookies = in_racks(a="r1", b="r1", c="r1", d="r2", e="r3")
    for seed in range(30):
        chosen = make_policy().choose(E3, bookies, rng(seed))
        assert {bookies[b].rack for b in chosen} == {"r1", "r2", "r3"}


def test_random_policy_uses_every_bookie_alike() -> None:
    bookies = in_racks(a="r1", b="r1", c="r1", d="r2")
    policy = make_policy(PlacementSettings(policy="random"))
    counts = Counter(b for seed in range(400) for b in policy.choose(E3, bookies, rng(seed)))
    assert min(counts.values()) > 250, counts


def test_read_only_and_excluded_bookies_are_never_chosen() -> None:
    bookies = in_racks(a="", b="", c="", d="") | cluster(BookieInfo("e", writable=False))
    for seed in range(20):
        assert set(make_policy().choose(E3, bookies, rng(seed), exclude={"a"})) == {"b", "c", "d"}


def test_replacement_prefers_the_rack_that_is_missing() -> None:
    bookies = in_racks(a="r1", c="r1", d="r1", e="r1", f="r2")
    for seed in range(20):
        assert make_policy().replace(E3, ("a", "b", "c"), {1}, bookies, rng(seed)) == ("a", "f", "c")


def test_zones_come_before_racks() -> None:
    bookies = cluster(
        BookieInfo("a", zone="z1", rack="r1"),
        BookieInfo("b", zone="z1", rack="r2"),
        BookieInfo("c", zone="z1", rack="r3"),
        BookieInfo("d", zone="z2", rack="r1"),
    )
    policy = make_policy(PlacementSettings(policy="zone"))
    for seed in range(20):
        chosen = policy.choose(E3, bookies, rng(seed))
        assert {bookies[b].zone for b in chosen} == {"z1", "z2"}
        assert len({(bookies[b].zone, bookies[b].rack) for b in chosen}) == 3


def test_regions_come_before_zones() -> None:
    bookies = cluster(
        *(BookieInfo(f"eu{i}", region="eu", zone=f"z{i}") for i in range(4)),
        BookieInfo("us", region="us", zone="z0"),
    )
    policy = make_policy(PlacementSettings(policy="region"))
    for seed in range(20):
        assert "us" in policy.choose(E3, bookies, rng(seed))


def test_equal_rack_names_in_two_zones_are_two_racks() -> None:
    bookies = cluster(
        BookieInfo("a", zone="z1", rack="r"),
        BookieInfo("b", zone="z2", rack="r"),
        BookieInfo("c", zone="z2", rack="r"),
    )
    assert not list(make_policy(PlacementSettings(enforce=True)).problems(E3, ("a", "b", "c"), bookies))


def test_a_bookie_without_a_rack_adds_none() -> None:
    assert certain_domains([("r1",), ("",)]) == 1
    assert certain_domains([("",), ("",)]) == 1
    assert certain_domains([("z1", "r1"), ("z1", ""), ("z2", "")]) == 2
    assert certain_domains([("", "r1"), ("", "r2")]) == 2
    assert certain_domains([]) == 0


# Nodes.


def test_nodes_are_a_condition_even_for_best_effort() -> None:
    bookies = cluster(*(BookieInfo(f"b{i}", node=f"n{i % 2}") for i in range(6)))
    with pytest.raises(NotEnoughBookiesError, match="node for each replica"):
        make_policy().choose(E3, bookies, rng())


def test_two_bookies_on_one_node_are_a_problem_that_names_them() -> None:
    bookies = cluster(
        BookieInfo("a", rack="r1", node="n1"),
        BookieInfo("b", rack="r2", node="n1"),
        BookieInfo("c", rack="r3", node="n2"),
    )
    (problem,) = make_policy().problems(E3, ("a", "b", "c"), bookies)
    assert problem == "a and b hold the same entries on one node, n1"


# Best effort, enforcement, quarantine.


def test_one_rack_is_taken_and_reported_if_the_minimum_is_best_effort() -> None:
    bookies = in_racks(a="r1", b="r1", c="r1")
    chosen = make_policy().choose(E3, bookies, rng())
    (problem,) = make_policy().problems(E3, chosen, bookies)
    assert "1 rack(s) known, 2 wanted" in problem


def test_one_rack_is_refused_if_the_minimum_is_enforced() -> None:
    bookies = in_racks(a="r1", b="r1", c="r1")
    policy = make_policy(PlacementSettings(enforce=True))
    with pytest.raises(NotEnoughBookiesError, match=r"2 racks .*\?/\?/r1/\?.*turn enforcement off"):
        policy.choose(E3, bookies, rng())


def test_enforced_racks_need_a_topology() -> None:
    with pytest.raises(NotEnoughBookiesError, match="name their place in the topology"):
        make_policy(PlacementSettings(enforce=True)).choose(E3, in_racks(a="", b="", c=""), rng())


def test_quarantined_bookies_are_chosen_only_where_others_are_too_few() -> None:
    bookies = in_racks(a="", b="", c="", d="", e="")
    policy = make_policy()
    for seed in range(20):
        assert set(policy.choose(E3, bookies, rng(seed), avoid={"a", "b"})) == {"c", "d", "e"}
        two = set(policy.choose(E3, bookies, rng(seed), avoid={"a", "b", "c"}))
        assert {"d", "e"} < two
        assert policy.replace(E3, ("a", "b", "c"), {0}, bookies, rng(seed), avoid={"d"})[0] == "e"


def test_a_best_effort_rack_is_no_reason_to_choose_a_quarantined_bookie_but_an_enforced_one_is() -> None:
    bookies = in_racks(a="r1", b="r1", c="r1", d="r2")
    assert set(make_policy().choose(E3, bookies, rng(), avoid={"d"})) == {"a", "b", "c"}
    enforcing = make_policy(PlacementSettings(enforce=True))
    assert "d" in enforcing.choose(E3, bookies, rng(), avoid={"d"})


# Capacity.


def test_free_space_weighs_up_to_the_cap() -> None:
    one = check_quorum(1, 1, 1)
    bookies = cluster(
        *(BookieInfo(f"b{i}", free_bytes=100, capacity_bytes=1000) for i in range(4)),
        BookieInfo("big", free_bytes=100_000, capacity_bytes=100_000),
        BookieInfo("full", free_bytes=0, capacity_bytes=1000),
    )
    policy = make_policy(PlacementSettings(weigh_by_free_space=True, weight_max=3))
    source = rng()
    counts = Counter(policy.choose(one, bookies, source)[0] for _ in range(2000))
    assert counts["full"] == 0
    assert 0.37 < counts["big"] / 2000 < 0.49, "3 of a total weight of 7"
    assert set(policy.choose(check_quorum(6, 3, 2), bookies, source)) == set(bookies), "needed is needed"


def test_bookies_that_tell_no_capacity_are_weighed_alike() -> None:
    policy = make_policy(PlacementSettings(weigh_by_free_space=True))
    bookies = in_racks(a="", b="", c="", d="")
    assert len({policy.choose(E3, bookies, rng(seed)) for seed in range(40)}) > 10


# Errors.


def test_too_few_bookies_are_explained_one_by_one() -> None:
    bookies = in_racks(a="", b="") | cluster(BookieInfo("c", writable=False))
    with pytest.raises(NotEnoughBookiesError) as caught:
        make_policy().choose(E3, bookies, rng(), exclude={"b"})
    assert str(caught.value) == (
        "3 writable bookie(s) needed, 1 available of 3 registered (b failed or is in the ensemble already, "
        "c is read-only): start more bookies, or ask for a smaller ensemble"
    )


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"policy": "cloud"}, "choose one of random, rack, zone, region"),
        ({"min_racks": 0}, "min_racks=0"),
        ({"weight_max": 0.5}, "weight_max=0.5"),
    ],
)
def test_settings_without_sense_are_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PlacementSettings(**values)  # type: ignore[arg-type]  # wrong on purpose


def test_the_first_bookie_is_given_up_where_it_spoils_the_rest() -> None:
    bookies = cluster(
        BookieInfo("a", rack="r2", node="n1"),
        BookieInfo("b", rack="r1", node="n1"),
        BookieInfo("c", rack="r1"),
    )
    for seed in range(20):
        assert set(make_policy().choose(check_quorum(2, 2, 2), bookies, rng(seed))) == {"a", "c"}


# Against brute force: the best seating there is.

NAMES = st.sampled_from(["", "1", "2", "3"])
INFOS = st.builds(
    lambda zone, rack, node: BookieInfo("x", zone=zone, rack=rack, node=node),
    NAMES,
    NAMES,
    st.sampled_from(["", "", "n1", "n2", "n3", "n4"]),
)
QUORUMS = st.integers(1, 4).flatmap(
    lambda e: st.integers(1, e).map(lambda qw: check_quorum(e, qw, (qw + 1) // 2))
)


@st.composite
def clusters(draw: st.DrawFn) -> dict[BookieId, BookieInfo]:
    """Two to six bookies anywhere."""
    infos = draw(st.lists(INFOS, min_size=2, max_size=6))
    return {
        f"b{i}": BookieInfo(f"b{i}", zone=info.zone, rack=info.rack, node=info.node)
        for i, info in enumerate(infos)
    }


def shares_a_node(quorum: Quorum, infos: Sequence[BookieInfo], only: frozenset[int]) -> bool:
    """Whether one of the positions `only` holds an entry on the node of another replica."""
    return any(
        infos[p].node and infos[p].node == infos[q].node
        for members in write_sets(quorum)
        for p, q in itertools.permutations(members, 2)
        if p in only
    )


def cost(
    quorum: Quorum,
    infos: Sequence[BookieInfo],
    avoid: frozenset[BookieId],
    changed: frozenset[int],
    depths: Sequence[int],
) -> tuple[int, ...]:
    """(avoided bookies, zones missing, racks missing) over the write sets that `changed` touches."""
    affected = [members for members in write_sets(quorum) if changed & set(members)]
    wanted = min(2, quorum.write_quorum)
    return (
        sum(infos[p].bookie in avoid for p in changed),
        *(
            sum(
                max(0, wanted - certain_domains(path_of(infos[p])[:d] for p in members))
                for members in affected
            )
            for d in depths
        ),
    )


def best_cost(
    quorum: Quorum,
    seats: Sequence[BookieInfo | None],
    bookies: Mapping[BookieId, BookieInfo],
    avoid: frozenset[BookieId],
    depths: Sequence[int],
) -> tuple[int, ...] | None:
    """The cheapest of all seatings, tried one by one."""
    empty = [p for p, info in enumerate(seats) if info is None]
    costs: list[tuple[int, ...]] = []
    for picked in itertools.permutations([bookies[b] for b in sorted(bookies)], len(empty)):
        filled = list(seats)
        for position, info in zip(empty, picked, strict=True):
            filled[position] = info
        full = [info for info in filled if info is not None]
        if not shares_a_node(quorum, full, frozenset(empty)):
            costs.append(cost(quorum, full, avoid, frozenset(empty), depths))
    return min(costs, default=None)


def depths_of(policy: str, bookies: Iterable[BookieInfo]) -> list[int]:
    """The depths of the tiers that ask for something."""
    depths = {"random": [], "rack": [3], "zone": [2, 3]}[policy]
    return [depth for depth in depths if any(any(path_of(info)[:depth]) for info in bookies)]


def check_choice(
    policy: PlacementPolicy,
    name: str,
    quorum: Quorum,
    bookies: Mapping[BookieId, BookieInfo],
    avoid: frozenset[BookieId],
    seed: int,
) -> None:
    depths = depths_of(name, bookies.values())
    expected = best_cost(quorum, [None] * quorum.ensemble_size, bookies, avoid, depths)
    if expected is None:
        with pytest.raises(NotEnoughBookiesError):
            policy.choose(quorum, bookies, rng(seed), avoid=avoid)
        return
    chosen = policy.choose(quorum, bookies, rng(seed), avoid=avoid)
    assert len(set(chosen)) == quorum.ensemble_size
    infos = [bookies[b] for b in chosen]
    everyone = frozenset(range(quorum.ensemble_size))
    assert not shares_a_node(quorum, infos, everyone)
    assert cost(quorum, infos, avoid, everyone, depths) == expected
    assert bool(list(policy.problems(quorum, chosen, bookies))) == any(expected[1:])


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(["random", "rack", "zone"]),
    quorum=QUORUMS,
    bookies=clusters(),
    avoid=st.frozensets(st.sampled_from(["b0", "b1", "b2"])),
    seed=st.integers(0, 99),
)
def test_every_write_set_keeps_the_constraint_wherever_it_can(
    name: str, quorum: Quorum, bookies: dict[BookieId, BookieInfo], avoid: frozenset[BookieId], seed: int
) -> None:
    policy = make_policy(PlacementSettings(policy=name))  # type: ignore[arg-type]  # drawn from the names
    check_choice(policy, name, quorum, bookies, avoid, seed)


@settings(max_examples=150, deadline=None)
@given(quorum=QUORUMS, bookies=clusters(), data=st.data(), enforce=st.booleans(), seed=st.integers(0, 99))
def test_every_replacement_keeps_the_constraint_wherever_it_can(
    quorum: Quorum, bookies: dict[BookieId, BookieInfo], data: st.DataObject, enforce: bool, seed: int
) -> None:
    names = st.sampled_from([*bookies, "gone1", "gone2", "gone3"])
    size = quorum.ensemble_size
    ensemble = data.draw(st.lists(names, min_size=size, max_size=size, unique=True))
    positions = data.draw(st.frozensets(st.integers(0, size - 1), min_size=1))
    others = {b: info for b, info in bookies.items() if b not in ensemble}
    seats = [None if p in positions else bookies.get(b, BookieInfo(b)) for p, b in enumerate(ensemble)]
    depths = [3] if enforce else depths_of("rack", bookies.values())
    expected = best_cost(quorum, seats, others, frozenset(), depths)
    policy = make_policy(PlacementSettings(enforce=enforce))
    if expected is None or (enforce and any(expected[1:])):
        with pytest.raises(NotEnoughBookiesError):
            policy.replace(quorum, ensemble, positions, bookies, rng(seed))
        return
    changed = policy.replace(quorum, ensemble, positions, bookies, rng(seed))
    assert len(set(changed)) == size
    for position, (old, new) in enumerate(zip(ensemble, changed, strict=True)):
        assert (old == new) != (position in positions)
    infos = [bookies.get(b, BookieInfo(b)) for b in changed]
    assert not shares_a_node(quorum, infos, positions)
    assert cost(quorum, infos, frozenset(), positions, depths) == expected


def test_large_striped_ensembles_are_placed_within_the_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_search, "SEARCH_STEPS_MAX", 1000)
    bookies = cluster(*(BookieInfo(f"b{i:03}", rack=f"r{i % 5}", node=f"n{i // 2}") for i in range(80)))
    quorum = check_quorum(64, 5, 3)
    policy = make_policy(PlacementSettings(min_racks=3, enforce=True))
    for seed in range(3):
        chosen = policy.choose(quorum, bookies, rng(seed))
        assert not list(policy.problems(quorum, chosen, bookies))


def test_the_best_seating_so_far_is_taken_when_the_steps_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_search, "SEARCH_STEPS_MAX", 6)
    bookies = in_racks(**{f"b{i}": f"r{i}" for i in range(3)}) | cluster(BookieInfo("x"), BookieInfo("y"))
    quorum = check_quorum(5, 2, 2)
    chosen = make_policy().choose(quorum, bookies, rng())
    assert set(chosen) == set(bookies)
    assert list(make_policy().problems(quorum, chosen, bookies)), "five seats have no seating without a flaw"


# Rule 36.


def test_rule_36_recovery_keeps_the_racks_or_says_so() -> None:
    bookies = in_racks(a1="r1", a2="r1", b1="r2", b2="r2")
    policy = make_policy()
    chosen = policy.choose(check_quorum(2, 2, 2), bookies, rng())
    (lost_at,) = [p for p, b in enumerate(chosen) if bookies[b].rack == "r2"]
    survivors = {b: info for b, info in bookies.items() if info.rack == "r1"}
    during = policy.replace(check_quorum(2, 2, 2), chosen, {lost_at}, survivors, rng())
    assert {survivors[b].rack for b in during} == {"r1"}, "with its rack gone, it goes on in the other"
    assert list(policy.problems(check_quorum(2, 2, 2), during, bookies)), (
        "and is marked once the rack is back"
    )
    after = policy.replace(check_quorum(2, 2, 2), during, {lost_at}, bookies, rng())
    assert {bookies[b].rack for b in after} == {"r1", "r2"}
