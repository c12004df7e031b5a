"""Every CEL rule of crds/ refuses what it is for, with a message that says what to do, and nothing beside it."""

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.crd_cases import CASES
from tests.kubernetes.api.crd_rules import RULES, Case, Rule, merged
from tests.kubernetes.api.rest import Object, RefusedError, Resources

INVALID = 422


@pytest.fixture(scope="module")
def resources(control_plane: ControlPlane) -> Resources:
    """Resources of a namespace in which nothing is kept: what is created here is deleted by its test."""
    return Resources(control_plane, "default")


def test_every_rule_has_a_case() -> None:
    covered = {case.rule for case in CASES}
    missing = [f"{rule.kind} at {rule.place}: {rule.message}" for rule in RULES if rule not in covered]
    assert not missing, "\n".join(missing)
    assert len(RULES) >= 34


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.kind}-{rule.place}-{rule.message[:20]}")
def test_each_message_says_what_to_do(rule: Rule) -> None:
    """A message names the field, and an advice follows the reason."""
    assert len(rule.message) > 40
    advice = ("create", "use ", "set ", "like ", "give ", "raise ", "may have", "choose", "must be", "leave")
    assert any(word in rule.message for word in advice), rule.message


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_refuses_its_case_and_lets_the_neighbour_pass(resources: Resources, case: Case) -> None:
    if case.before is None and not case.rule.is_transition:
        accept, refuse = case.object(case.accepted), case.object(case.refused)
        assert resources.create(accept, dry_run=True)
        with pytest.raises(RefusedError) as refused:
            resources.create(refuse, dry_run=True)
    else:
        refused = _refused_change(resources, case)
    assert refused.value.code == INVALID
    assert case.rule.message in refused.value.message
    assert (case.rule.place or "metadata.name") in refused.value.message
    messages = {rule.message for rule in RULES} - {case.rule.message}
    others = [message for message in messages if message in refused.value.message]
    assert not others, "other rules object too: the case is not about this one alone"


def _refused_change(resources: Resources, case: Case) -> pytest.ExceptionInfo[RefusedError]:
    """Create what was before, make both changes, and take it away again."""
    before: Object = case.object(case.before)
    before["metadata"] = {"name": "changing"}
    created = resources.create(before)
    try:
        base = {**before, "metadata": created["metadata"]}
        assert resources.replace(merged(base, case.accepted), dry_run=True)
        with pytest.raises(RefusedError) as refused:
            resources.replace(merged(base, case.refused), dry_run=True)
    finally:
        resources.delete(case.kind, "changing")
    return refused
