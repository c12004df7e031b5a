"""`operator.finalizers=false`: no finalizer of ours stays, and no deletion waits, whether or not ZooKeeper answers."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_operator.kube.queue import Key
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import PatchMeta, Report
from daybook_operator.plan.finalizers import FinalizerRules
from daybook_operator.plan.ledger.plan import decide as decide_ledger
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool.delete import deletion
from daybook_operator.plan.topic.plan import decide as decide_topic
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.ledger import LedgerReconciler
from daybook_operator.reconcile.topic import TopicReconciler
from daybook_operator.settings import OperatorSettings

from tests.unit.operator import test_ledger_plan as ledgers
from tests.unit.operator import test_topic_plan as topics
from tests.unit.operator.pool_sim import grown

NOW_MS = 1_700_000_000_000
OFF = FinalizerRules(used=False)
Plan = Callable[..., Decision]
Reconciler = type[LedgerReconciler] | type[TopicReconciler]


def held(manifest: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """The resource with our finalizer."""
    return {**manifest, "metadata": {**manifest["metadata"], "finalizers": [FINALIZER], **meta}}


def ledger(**meta: Any) -> Decision:
    observed = ledgers.world(None, manifest=held(ledgers.manifest(), **meta), finalizers=OFF)
    return decide_ledger(observed, NOW_MS)


def topic(**meta: Any) -> Decision:
    there = topics.created(reclaimPolicy="Delete")
    changed = replace(there, manifest=held(dict(there.manifest), **meta), cluster=None, finalizers=OFF)
    return decide_topic(changed, NOW_MS)


@pytest.mark.parametrize("plan", [ledger, topic])
def test_a_resource_that_stays_loses_its_finalizer_while_zookeeper_is_unavailable(plan: Plan) -> None:
    (effect,) = plan().effects
    assert isinstance(effect, PatchMeta)
    assert effect.remove_finalizer == FINALIZER


@pytest.mark.parametrize("plan", [ledger, topic])
def test_a_deletion_that_waits_for_zookeeper_is_released_and_says_why(plan: Plan) -> None:
    report, off = plan(deletionTimestamp=iso(NOW_MS - 1000)).effects
    assert isinstance(report, Report)
    assert (report.reason, "operator.finalizers is false" in report.message) == ("LeftBehind", True)
    assert "namespace" not in report.message, "that stays"
    assert isinstance(off, PatchMeta)
    assert off.remove_finalizer == FINALIZER


def test_a_pool_that_waits_for_zookeeper_is_released() -> None:
    sim = grown()
    sim.manifest["spec"]["reclaimPolicy"] = "Delete"
    sim.manifest["metadata"]["deletionTimestamp"] = iso(sim.now_ms)
    sim.has_zookeeper = False
    seen = sim.world()
    assert not [each for each in deletion(seen, sim.now_ms).effects if isinstance(each, PatchMeta)]
    off = replace(seen, defaults=replace(seen.defaults, uses_finalizers=False))
    (effect,) = deletion(off, sim.now_ms).effects
    assert isinstance(effect, PatchMeta)
    assert effect.remove_finalizer == FINALIZER


@pytest.mark.parametrize(
    ("reconciler", "manifest"),
    [(LedgerReconciler, ledgers.manifest()), (TopicReconciler, topics.manifest())],
)
async def test_a_deletion_is_released_without_the_cluster(
    reconciler: Reconciler, manifest: dict[str, Any]
) -> None:
    """It may be gone, or its metadata unreadable."""
    going = held(manifest, deletionTimestamp=iso(NOW_MS - 1000))
    released: list[Decision] = []

    async def find(kind: str, *_: str) -> Any:
        return going if kind == going["kind"] else None

    async def carry_out(decision: Decision) -> None:
        released.append(decision)

    services: Any = SimpleNamespace(
        kube=SimpleNamespace(find=find),
        clusters=None,
        performer=SimpleNamespace(carry_out=carry_out, brokers=None),
        settings=OperatorSettings(finalizers=False),
        inventory=Inventory(),
        metrics=SimpleNamespace(topic_conditions_of=lambda *_: None),
        now_ms=lambda: NOW_MS,
    )
    await reconciler(services).reconcile(Key(going["kind"], "data", "orders"))
    (decision,) = released
    assert isinstance(decision.effects[-1], PatchMeta)
    assert decision.effects[-1].remove_finalizer == FINALIZER
