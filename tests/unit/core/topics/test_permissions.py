"""Who may do what in a namespace: every combination of actions, operations and roles."""

from itertools import chain, combinations

import pytest

from daybook.core.errors import PolicyError
from daybook.core.topics.permissions import (
    ROLE_BYTES_MAX,
    ROLES_MAX,
    Action,
    Operation,
    actions_of,
    check_role,
    is_allowed,
    permissions_of,
)
from daybook.core.topics.policy import Policy, PolicyLayer, merged

SETS = [frozenset(found) for found in chain.from_iterable(combinations(Action, size) for size in range(4))]
NEEDED = {
    Operation.PRODUCE: Action.PRODUCE,
    Operation.CONSUME: Action.CONSUME,
    Operation.MANAGE: Action.ADMIN,
    Operation.MAINTAIN: Action.ADMIN,
}


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("actions", SETS)
def test_a_role_may_do_what_its_actions_say_and_nothing_else(
    operation: Operation, actions: frozenset[Action]
) -> None:
    permissions = {"app": actions, "other": frozenset(Action)}
    expected = bool(actions) if operation is Operation.LOOK else NEEDED.get(operation) in actions
    assert is_allowed("app", operation, permissions, ()) is expected
    for stranger in ("", "APP", "app ", "nobody"):
        assert not is_allowed(stranger, operation, permissions, {"root"})
    for role in ("root", "app"):
        assert is_allowed(role, operation, permissions, {"root", "app"})
    assert not is_allowed("app", operation, {}, {"root"})


def test_jobs_see_all_topics_and_ask_for_upkeep_and_do_nothing_else() -> None:
    allowed = {each for each in Operation if is_allowed("spark", each, {}, {"root"}, {"spark"})}
    assert allowed == {Operation.LOOK, Operation.OBSERVE, Operation.MAINTAIN}
    assert not any(is_allowed("app", each, {}, {"root"}, {"spark"}) for each in Operation)


def test_permissions_are_stored_with_the_policy_and_are_none_of_its_values() -> None:
    record = {"formatVersion": 1, "permissions": {"a": ["consume", "produce"], "b": []}, "later": 1}
    layer = PolicyLayer.from_record(record)
    assert layer.permissions == {"a": {Action.PRODUCE, Action.CONSUME}, "b": frozenset()}
    assert layer.to_record() == record
    assert merged(Policy(), layer) == Policy()


@pytest.mark.parametrize("found", [None, {}, "produce", ["read"], [["produce"]], [1]])
def test_what_is_no_list_of_actions_is_refused_with_those_that_are(found: object) -> None:
    with pytest.raises(PolicyError, match="produce, consume, admin"):
        actions_of(found)
    with pytest.raises(PolicyError, match="produce, consume, admin"):
        PolicyLayer.from_record({"permissions": {"app": found}})


def test_roles_have_bounds() -> None:
    assert check_role("a" * ROLE_BYTES_MAX)
    for role in ("", " ", "é" * ROLE_BYTES_MAX):
        with pytest.raises(PolicyError, match="cannot be a role"):
            check_role(role)
    with pytest.raises(PolicyError, match="are no permissions"):
        permissions_of([])
    many = {f"role-{number}": frozenset[Action]() for number in range(ROLES_MAX + 1)}
    with pytest.raises(PolicyError, match="share a role"):
        PolicyLayer(permissions=many)
