"""Every field that a plan writes into a status is declared in the CRD, where the API server would drop any other; and back."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pytest
import yaml
from daybook_operator.plan.effects import ClusterRef, Effect, SetStatus
from daybook_operator.plan.ledger.plan import decide as decide_ledger
from daybook_operator.plan.lost_ledgers import Verdict
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.pool import delete as pool_delete
from daybook_operator.plan.pool import status as pool_status
from daybook_operator.plan.pool.decide import decide
from daybook_operator.plan.pool.observed import ObservedAddress
from daybook_operator.plan.recovery.jobs import ObservedJob, ObservedTask
from daybook_operator.plan.recovery.plan import ObservedAudit, ObservedRecovery, recovery_status
from daybook_operator.plan.stored import Failure
from daybook_operator.plan.topic.plan import decide as decide_topic

from daybook.core.repair.task import RepairTask
from daybook.core.topics.ledger_list import ListedLedger
from tests.paths import ROOT
from tests.unit.operator import test_ledger_plan as ledgers
from tests.unit.operator import test_topic_plan as topics
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.pool_sim import PoolSim, grown
from tests.unit.operator.test_topic_jobs import COMPACTED
from tests.unit.operator.test_topic_status import REPORTS

CRDS: Final = ROOT / "crds"
Schema = Mapping[str, Any]


@cache
def status_schema(plural: str) -> Schema:
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text(encoding="utf-8"))
    schema: Schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    return schema


def written(place: str, schema: Schema, value: Any) -> Iterator[str]:
    """The places of a value's leaves. Raises AssertionError at one that the schema does not know."""
    if isinstance(value, Mapping) and "additionalProperties" in schema:
        yield place
    elif isinstance(value, Mapping):
        for name, each in value.items():
            assert name in schema.get("properties", {}), (
                f"{place}.{name} is not declared: it would be dropped"
            )
            yield from written(f"{place}.{name}", schema["properties"][name], each)
    elif isinstance(value, list | tuple):
        yield place
        for each in value:
            yield from written(f"{place}[]", schema["items"], each)
    else:
        yield place


def test_every_phase_that_is_declared_is_one_that_a_plan_sets() -> None:
    text = status_schema("bookiepools")["properties"]["phase"]["description"]
    phases = re.findall(r"[A-Z]\w+", text.partition(":")[2])
    told = "".join(inspect.getsource(each) for each in (pool_status.phase, pool_delete))
    assert phases
    assert [each for each in phases if f'"{each}"' not in told] == []


def declared(place: str, schema: Schema) -> Iterator[str]:
    """The places of all leaves that the schema knows."""
    if "properties" in schema:
        for name, each in schema["properties"].items():
            yield from declared(f"{place}.{name}", each)
        return
    yield place
    if "items" in schema:
        yield from declared(f"{place}[]", schema["items"])


def places(plural: str, statuses: Iterable[Mapping[str, Any]]) -> set[str]:
    """The leaves that any of the statuses has."""
    schema = status_schema(plural)
    return {place for status in statuses for place in written("status", schema, status)}


def statuses_in(effects: Iterable[Effect]) -> list[Mapping[str, Any]]:
    return [each.status for each in effects if isinstance(each, SetStatus)]


class Audited(PoolSim):
    """An auditor and Jobs that have found all there is to find."""

    def _audits(self) -> dict[str, Any]:
        audit = ObservedAudit(self.now_ms, 1_000, is_clean=True, ledgers=4)
        seen = ObservedRecovery(
            ClusterRef("zk:2181", "daybook"),
            (ObservedTask(1, 0, 5, ("lost",)), ObservedTask(2, 0, 5, ("missing",))),
            (ObservedJob("job", "data", "uid", ("1:0:5",)),),
            lost_bookies=("data.bk-9",),
            verdicts=(Verdict(2, gone=("data.bk-9",)), Verdict(1, awaited=("data.bk-8",))),
            misplaced=1,
            blocked=1,
            last_audit=audit,
            last_full_audit=audit,
        )
        return recovery_status(seen, self.now_ms)


def of_pools() -> Iterator[Mapping[str, Any]]:
    """Pools that come up, lose bookies, roll, drain, grow, sleep, wait and go."""
    new = Audited(pool_manifest())
    for labels in new.nodes.values():
        labels["topology.kubernetes.io/region"] = "region"
    new.settle(16)
    for sim in (new, grown()):
        sim.bookies = {
            name: replace(info, capacity_bytes=100, free_bytes=5) for name, info in sim.bookies.items()
        }
        sim.write_ledger(1)
        sim.lose_disk(1)
        sim.kubelet(1)
        sim.reconcile()
        sim.reconcile()
        sim.settle()
        sim.manifest["spec"]["image"] = "registry/bookie:2"
        for _ in range(12):
            sim.reconcile()
            sim.controllers()
            for ordinal in list(sim.pods):
                sim.kubelet(ordinal)
            sim.audit()
        sim.settle()
        sim.write_ledger(2)
        sim.manifest["spec"]["replicas"] = 2
        sim.settle()
        sim.manifest["spec"]["storage"] = {"store": {"size": "20Gi"}}
        sim.reconcile()
        sim.manifest["spec"]["hibernate"] = True
        sim.settle()
        sim.has_zookeeper = False
        sim.manifest["spec"]["metadata"] = {"zookeeper": "other:2181"}
        moving = replace(sim.world(), address=ObservedAddress("other:2181", "instance-1"))
        yield from statuses_in(decide(moving, sim.now_ms).effects)
        sim.reconcile()
        yield from statuses_in(sim.done)
        sim.manifest["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
        yield from statuses_in(decide(sim.world(), sim.now_ms).effects)
        sim.manifest["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}
        sim.manifest["spec"]["reclaimPolicy"] = "Delete"
        yield from statuses_in(decide(sim.world(), sim.now_ms).effects)


def of_ledgers() -> Iterator[Mapping[str, Any]]:
    """Ledgers that wait, are there, closed, short of replicas, or cannot be sealed or deleted."""
    lost = RepairTask(7, ("lost data.bk-1",), ("data.bk-1",), ledgers.NOW_MS)
    worlds = [
        ledgers.world(None, cluster_ref=None, pool=None),
        ledgers.world(None),
        ledgers.world(ledgers.created(token="w")),
        ledgers.world(
            ledgers.created(closed=True, recovery_job="bk-recovery-1", problems=("gap",), task=lost)
        ),
        ledgers.world(ledgers.created(), failure=Failure("SealLedger", "nobody answers")),
        ledgers.world(replace(ledgers.created(), metadata=None)),
    ]
    for world in worlds:
        yield from statuses_in(decide_ledger(world, ledgers.NOW_MS).effects)
        going = {**world.manifest["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        gone = replace(world, manifest={**world.manifest, "metadata": going}, cluster=None)
        yield from statuses_in(decide_ledger(gone, ledgers.NOW_MS).effects)


def test_what_pools_say_is_what_their_schema_declares() -> None:
    assert places("bookiepools", of_pools()) == set(declared("status", status_schema("bookiepools")))


def of_topics() -> Iterator[Mapping[str, Any]]:
    """Topics that wait, are there, or cannot be deleted."""
    ledgers_of = (ListedLedger(1, 0, closed_at_ms=0), ListedLedger(2, 0))
    there = topics.created()
    assert there.cluster is not None
    assert there.cluster.plain is not None
    plain = topics.node(there.cluster.plain.policy.value, *ledgers_of)
    worlds = [
        replace(topics.world(), cluster=None, cluster_error="no answer"),
        replace(there, cluster=replace(there.cluster, plain=plain)),
        topics.created(partitions=2),
        replace(there, reports=REPORTS),
        replace(there, cluster=replace(there.cluster, plain=replace(plain, results=(COMPACTED,)))),
        replace(there, failure=Failure("CreateTopic", "conflict")),
    ]
    for world in worlds:
        yield from statuses_in(decide_topic(world, topics.NOW_MS).effects)


def test_what_topics_say_is_what_their_schema_declares() -> None:
    assert places("topics", of_topics()) == set(declared("status", status_schema("topics")))


def test_what_ledgers_say_is_what_their_schema_declares() -> None:
    assert places("ledgers", of_ledgers()) == set(declared("status", status_schema("ledgers")))


def test_a_field_that_is_not_declared_is_found() -> None:
    for status in (
        {"fase": "Running"},
        {"bookies": [{"id": "b", "rck": "r"}]},
        {"recovery": {"x": {"y": 1}}},
    ):
        with pytest.raises(AssertionError, match="it would be dropped"):
            places("bookiepools", [status])
