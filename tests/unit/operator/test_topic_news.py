"""Events about a Topic: the operator's own writes are no news, and no change on which the plan depends is left out."""

from typing import Any

import pytest
from daybook_operator.plan.effects import ClusterRef, PatchMeta, SetStatus
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.names import ADOPT, CLUSTER_ANNOTATION, FINALIZER, PAUSE
from daybook_operator.plan.news import facts_of, is_news
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster
from daybook_operator.plan.topic.plan import decide
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.manager import Manager
from daybook.core.topics.policy import PolicyLayer
from tests.unit.operator.test_topic_plan import DELETED, NOW_MS, POOL, REF, created, manifest, node

CLAIMED = {"finalizers": [FINALIZER], "annotations": {CLUSTER_ANNOTATION: REF.text}}
BARE: dict[str, Any] = {"finalizers": [], "annotations": {}}


def news(before: dict[str, Any], after: dict[str, Any], claimed_for: str = REF.text) -> bool:
    return is_news(facts_of(manifest(meta=before)), facts_of(manifest(meta=after)), claimed_for)


def test_what_was_never_seen_is_news_and_what_stays_as_it_was_is_not() -> None:
    assert is_news(None, facts_of(manifest()), REF.text)
    assert not news(CLAIMED, CLAIMED)
    assert not news(CLAIMED, {**CLAIMED, "resourceVersion": "9", "labels": {"team": "a"}})
    assert not news(CLAIMED, {**CLAIMED, "finalizers": [FINALIZER, "example.org/other"]})


def test_the_claim_of_the_last_reconcile_is_no_news() -> None:
    assert not news(BARE, CLAIMED)
    assert not news({**BARE, "finalizers": [FINALIZER]}, CLAIMED)
    assert not news({**CLAIMED, "annotations": {CLUSTER_ANNOTATION: "old@zk:2181"}}, CLAIMED)
    assert not news(BARE, {**CLAIMED, "finalizers": []}), "where finalizers are not used"


@pytest.mark.parametrize(
    "after",
    [
        {"uid": "uid-2"},
        {"generation": 2},
        DELETED,
        {"finalizers": []},
        {"annotations": {}},
        {"annotations": {CLUSTER_ANNOTATION: "daybook@elsewhere:2181"}},
        {"annotations": {CLUSTER_ANNOTATION: REF.text, PAUSE: "true"}},
        {"annotations": {CLUSTER_ANNOTATION: REF.text, ADOPT: "true"}},
    ],
)
def test_each_change_that_a_plan_depends_on_is_news(after: dict[str, Any]) -> None:
    assert news(CLAIMED, {**CLAIMED, **after})


def test_a_claim_that_another_one_writes_and_one_that_comes_with_a_change_are_news() -> None:
    assert news(BARE, CLAIMED, claimed_for="daybook@elsewhere:2181")
    assert news(BARE, CLAIMED, claimed_for="")
    assert news(BARE, {**CLAIMED, "generation": 2})
    assert news({**CLAIMED, "annotations": {}}, {**CLAIMED, "finalizers": []}), "the finalizer goes"
    assert news({**BARE, **DELETED}, {**CLAIMED, **DELETED}), "the finalizer has to go again"


CLUSTER_TEXTS = st.sampled_from(["", REF.text, "daybook@elsewhere:2181"])
METAS = st.fixed_dictionaries(
    {
        "uid": st.sampled_from(["uid-1", "uid-2"]),
        "generation": st.integers(1, 2),
        "deletionTimestamp": st.sampled_from([None, DELETED["deletionTimestamp"]]),
        "labels": st.dictionaries(st.sampled_from(["team", "daybook.dev/pool"]), st.just("a")),
        "finalizers": st.lists(st.sampled_from([FINALIZER, "example.org/other"]), unique=True),
        "annotations": st.tuples(
            CLUSTER_TEXTS,
            st.dictionaries(
                st.sampled_from([PAUSE, ADOPT, "example.org/note"]), st.sampled_from(["true", "false"])
            ),
        ).map(lambda drawn: {**({CLUSTER_ANNOTATION: drawn[0]} if drawn[0] else {}), **drawn[1]}),
    }
)


@given(METAS, METAS, CLUSTER_TEXTS, st.sampled_from(["new", "own", "theirs", "others"]), st.booleans())
def test_after_an_event_that_is_no_news_the_plan_is_the_one_of_before_without_its_claim(
    before: dict[str, Any], after: dict[str, Any], claimed_for: str, whose: str, managed: bool
) -> None:
    """The reconcile of before has carried its plan out, so nothing is left to do that it did not do."""
    if news(before, after, claimed_for):
        return
    managers = {"own": Manager("data", "orders", before["uid"]), "others": Manager("data", "x", "uid-9")}
    found = None if whose == "new" else node(PolicyLayer(managed_by=managers.get(whose)))

    def plan(meta: dict[str, Any]) -> tuple[list[object], float | None]:
        observed = ObservedTopic(
            manifest(meta=meta, managed=managed),
            POOL,
            ClusterRef.from_text(claimed_for),
            TopicInCluster(plain=found) if claimed_for else None,
            finalizers=FinalizerRules(),
        )
        decision = decide(observed, NOW_MS)
        return list(decision.effects), decision.requeue_after_s

    effects_before, again_before = plan(before)
    effects_after, again_after = plan(after)
    own_claim = [each for each in effects_before if isinstance(each, PatchMeta)]
    if before != after and any(each.add_finalizer not in ("", *after["finalizers"]) for each in own_claim):
        return  # one patch writes the claim and the finalizer: no event has one alone
    left = [each for each in effects_before if each not in own_claim]
    assert [each for each in effects_after if each not in own_claim] == left
    assert again_after == again_before


def test_a_status_that_was_written_leaves_nothing_to_do() -> None:
    """So its event, which is no news, would have changed nothing."""
    there = created()
    (written,) = [each for each in decide(there, NOW_MS).effects if isinstance(each, SetStatus)]
    said = {**there.manifest, "status": dict(written.status)}
    assert facts_of(said) == facts_of(there.manifest)
    observed = ObservedTopic(said, there.pool, there.cluster_ref, there.cluster)
    assert decide(observed, NOW_MS).effects == ()
