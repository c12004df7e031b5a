"""A BookiePool on a real API server: what is created, kept, placed, rolled, grown, replaced, stopped and let go."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from daybook_operator.plan.effects import ClusterRef, Evict, Ref
from daybook_operator.reconcile.performer import EffectError
from kubernetes import client as kubernetes

from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.bookies import BookieDirectory, Location
from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.kubernetes.api.operator_kit import Noted
from tests.kubernetes.api.policy import asking_in_vain, refusing
from tests.kubernetes.api.pool_kit import CLUSTER, Operator, PretendBookies, Site, drive_killed, killable

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_APPLIED = re.compile(r"^Apply\(.*?'kind': '(\w+)'")
_STOPPED = re.compile(r"^Evict\(ref=Ref\(api_version='v1', kind='Pod', namespace='[^']*', name='([^']*)'")

Scene: TypeAlias = Callable[[Site, PretendBookies], Coroutine[Any, Any, None]]


@asynccontextmanager
async def pretended(site: Site) -> AsyncIterator[PretendBookies]:
    """Bookies with a session of their own."""
    store = await ZooKeeperStore.open(site.zookeeper)
    try:
        await ensure_cluster(store, Layout(CLUSTER), created_at_ms=0)
        yield PretendBookies(site, store)
    finally:
        await store.close()


def play(site: Site, scene: Scene) -> None:
    """Run a scene."""

    async def run() -> None:
        async with pretended(site) as bookies:
            await scene(site, bookies)

    asyncio.run(run())


def read(site: Site, work: Callable[[BookieDirectory], Awaitable[Any]]) -> Any:
    """What ZooKeeper says."""
    return asyncio.run(site.with_directory(work))


def test_a_pool_comes_up_placed_is_mended_and_rolls_although_the_operator_is_killed_before_every_write(
    site: Site, tmp_path: Path
) -> None:
    site.create(replicas=2)
    operator = killable(site, tmp_path)

    async def scene(site: Site, bookies: PretendBookies) -> None:
        done = await drive_killed(site, bookies, operator, lambda: site.is_running(2), "created")
        order = [f"{each.kind} {_kind_in(each)}".strip() for each in done]
        assert order[:4] == ["PatchMeta", "Apply ServiceAccount", "Apply Service", "Apply StatefulSet"]
        assert "SetLocations" in order
        await _drifts(site, bookies)
        bookies.downs.clear()
        site.change(image="local/bookie:2")
        done = await drive_killed(site, bookies, operator, lambda: _runs(site, "local/bookie:2"), "rolled")
        stopped = [match[1] for each in done if (match := _STOPPED.search(each.effect))]
        assert stopped == ["bk-1", "bk-0"], "the highest first, each once"
        assert bookies.downs == [frozenset({1}), frozenset({0})], "never two at once"

    play(site, scene)
    assert read(site, lambda directory: directory.topology()) == {
        site.bookie(n): Location("", f"zone-{n + 1}", f"zone-{n + 1}", f"{site.namespace}-n{n}")
        for n in range(2)
    }
    assert {n: pod.metadata.labels["daybook.dev/rack"] for n, pod in site.pods().items()} == {
        0: "zone-1",
        1: "zone-2",
    }
    status = site.status
    assert status["racks"] == {"zone-1/zone-1": 1, "zone-2/zone-2": 1}
    assert status["currentImage"] == "local/bookie:2"
    budgets = kubernetes.PolicyV1Api(site.api).list_namespaced_pod_disruption_budget(site.namespace).items
    assert {each.metadata.name: each.spec.min_available for each in budgets} == {"bk.bookies": 1}
    reasons = {event.reason for event in site.core.list_namespaced_event(site.namespace).items}
    assert {"BookieStopped", "RollingOut"} <= reasons


async def _drifts(site: Site, bookies: PretendBookies) -> None:
    """What others change or delete is put right, and a resync of what is right writes nothing."""
    site.core.patch_namespaced_service("bk", site.namespace, {"spec": {"publishNotReadyAddresses": False}})
    site.core.delete_namespaced_service_account("bk-bookie", site.namespace)
    site.apps.patch_namespaced_stateful_set_scale("bk", site.namespace, {"spec": {"replicas": 1}})
    async with Operator(site, bookies) as operator:
        await operator.drive(lambda: site.stateful_set().spec.replicas == 2, "scaled back")
        assert site.core.read_namespaced_service("bk", site.namespace).spec.publish_not_ready_addresses
        assert site.core.read_namespaced_service_account("bk-bookie", site.namespace)
        await operator.drive(lambda: site.is_running(2), "whole again")


def _kind_in(noted: Noted) -> str:
    """The kind of what was applied; "" for other effects."""
    found = _APPLIED.search(noted.effect)
    return found[1] if found else ""


def _runs(site: Site, image: str) -> bool:
    status = site.status
    return bool(
        status.get("currentImage") == image and status.get("updatedReplicas") == 2 and site.is_running(2)
    )


def test_volumes_grow_although_a_bookie_is_down_and_the_stateful_set_is_made_anew(site: Site) -> None:
    grows, stays = f"{site.namespace}-grows", f"{site.namespace}-stays"
    site.nodes.create_storage_class(grows)
    site.nodes.create_storage_class(stays, can_grow=False)
    site.create(
        replicas=2,
        storage={
            "store": {"size": "1Gi", "storageClass": grows},
            "journal": {"size": "1Gi", "storageClass": stays},
        },
    )

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            for claim in site.claims():
                site.nodes.bind_claim(site.namespace, claim)
            before, pods = site.stateful_set().metadata.uid, {p.metadata.uid for p in site.pods().values()}
            bookies.unhealthy_images.add("local/bookie:1")
            await bookies.stop(1)
            site.change(storage={"store": {"size": "2Gi"}})
            await operator.drive(lambda: _template_sizes(site)["store"] == "2Gi", "made anew")
            assert site.stateful_set().metadata.uid != before
            assert {p.metadata.uid for p in site.pods().values()} == pods, "no pod was touched"
            assert site.claims()["store-bk-1"].spec.resources.requests["storage"] == "2Gi"
            assert site.condition("StorageResizing")["reason"] == "Growing"
            bookies.unhealthy_images.clear()
            for ordinal in (0, 1):
                site.nodes.grow_volume(site.namespace, f"store-bk-{ordinal}")
            await operator.drive(lambda: site.is_running(2), "grown")
            assert {p.metadata.uid for p in site.pods().values()} == pods
            site.change(storage={"journal": {"size": "2Gi"}})
            await operator.drive(
                lambda: site.condition("StorageResizing")["reason"] == "NotExpandable", "refused"
            )
            assert "allowVolumeExpansion" in site.condition("StorageResizing")["message"]

    play(site, scene)


def _template_sizes(site: Site) -> dict[str, str]:
    try:
        templates = site.stateful_set().spec.volume_claim_templates
    except kubernetes.ApiException:
        return {"store": ""}
    return {each.metadata.name: each.spec.resources.requests["storage"] for each in templates}


def test_a_lost_disk_is_replaced_by_policy_and_a_hibernated_pool_wakes_with_its_disks(site: Site) -> None:
    site.create(replicas=2, lostDisk={"policy": "Manual"})

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            await bookies.lose_disk(1)
            await operator.drive(lambda: site.condition("Ready")["reason"] == "DiskLost", "told")
            assert f"daybook bookie replace {site.bookie(1)}" in site.condition("Ready")["message"]
            assert site.status["bookies"][1]["state"] == "DiskLost"
            site.change(lostDisk={"policy": "Replace"})
            await operator.drive(lambda: site.is_running(2), "replaced")
            site.change(hibernate=True)
            await operator.drive(lambda: site.status["phase"] == "Hibernated", "stopped")
            assert (site.pods(), len(site.claims()), site.stateful_set().spec.replicas) == ({}, 4, 0)
            site.change(hibernate=False)
            await operator.drive(lambda: site.is_running(2), "awake")

    play(site, scene)


def test_a_spec_that_cannot_be_met_is_told_and_harms_nothing(site: Site) -> None:
    site.create(replicas=3, placement={"policy": "Rack", "minRacksPerWriteQuorum": 5})

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(3), "it runs all the same")
            said = site.condition("RackPlacementSatisfied")
            assert (said["status"], said["reason"]) == ("False", "TooFewRacks")
            assert "5 racks" in said["message"]
            assert "are in 3" in said["message"]
            pods = {pod.metadata.uid for pod in site.pods().values()}
            site.nodes.label_node(f"{site.namespace}-n2", {"topology.kubernetes.io/zone": None})
            await operator.drive(
                lambda: site.condition("RackPlacementSatisfied")["reason"] == "TopologyMissing",
                "the node is named",
            )
            assert f"{site.namespace}-n2" in site.condition("RackPlacementSatisfied")["message"]
            assert {pod.metadata.uid for pod in site.pods().values()} == pods
            assert len(await site.with_directory(lambda directory: directory.topology())) == 3, (
                "who serves stays placed"
            )

    play(site, scene)


def test_what_the_api_server_refuses_is_told_and_holds_nothing_else_up(site: Site) -> None:
    site.create(replicas=2)

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            site.change(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
            _delete_budget(site)
            await operator.drive(
                lambda: site.condition("Ready")["reason"] == "ObjectsRefused" and _has_budget(site),
                "told, and the rest is done",
            )
            said = site.condition("Ready")["message"]
            assert "StatefulSet bk: " in said
            assert "must be less than or equal to cpu limit" in said
            assert "Apply: " in operator.trouble, "the queue hears of it, and makes pauses"
            site.change(resources={"requests": {"cpu": "1"}})
            await operator.drive(lambda: site.is_running(2) and _has_cpu(site, "1"), "mended")

    play(site, scene)


def test_a_webhook_that_does_not_answer_is_told_and_holds_nothing_else_up(site: Site) -> None:
    site.create(replicas=2)

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            with asking_in_vain(site.plane, site.namespace, "statefulsets"):
                site.change(resources={"requests": {"cpu": "1"}})
                _delete_budget(site)
                await operator.drive(
                    lambda: site.condition("Ready")["reason"] == "ObjectsRefused" and _has_budget(site),
                    "told, and the rest is done",
                )
                said = site.condition("Ready")["message"]
            assert "StatefulSet bk: " in said
            assert "failed calling webhook" in said
            await operator.drive(lambda: site.is_running(2) and _has_cpu(site, "1"), "mended")

    play(site, scene)


def _has_budget(site: Site) -> bool:
    policy = kubernetes.PolicyV1Api(site.api)
    return bool(policy.list_namespaced_pod_disruption_budget(site.namespace).items)


def _delete_budget(site: Site) -> None:
    policy = kubernetes.PolicyV1Api(site.api)
    policy.delete_namespaced_pod_disruption_budget("bk.bookies", site.namespace)


def test_a_change_that_a_policy_refuses_is_told_and_the_status_goes_on(site: Site) -> None:
    """Whatever is refused: the status is the last effect of a plan, and must not wait for ever for those before it."""
    unchanged = "has(object.metadata.labels) && object.metadata.labels == oldObject.metadata.labels"

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            with refusing(
                site.plane,
                site.namespace,
                "pods",
                "pods stay as they are",
                operation="UPDATE",
                unless=unchanged,
            ):
                site.create(replicas=2)
                await operator.drive(
                    lambda: (
                        site.condition("Ready").get("reason") == "StepFailed"
                        and site.status["readyReplicas"] == 2
                    ),
                    "told, while everything else is brought up to date",
                )
            said = site.condition("Ready")["message"]
            assert "where bookies stand: " in said
            assert "pods stay as they are" in said, "in the words of the API server"
            await operator.drive(lambda: site.is_running(2), "mended")

    play(site, scene)


def _has_cpu(site: Site, amount: str) -> bool:
    pods = site.pods().values()
    return all((pod.spec.containers[0].resources.requests or {}).get("cpu") == amount for pod in pods)


def test_a_bookie_on_a_node_without_labels_does_not_serve_until_it_has_them(site: Site) -> None:
    site.nodes.label_node(f"{site.namespace}-n1", {"topology.kubernetes.io/zone": None})
    site.create(replicas=2)

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.status.get("readyReplicas") == 1, "one serves")
            assert list(bookies.registered) == [0]
            assert site.condition("RackPlacementSatisfied")["reason"] == "TopologyMissing"
            site.nodes.label_node(f"{site.namespace}-n1", {"topology.daybook.dev/rack": "r7"})
            await operator.drive(lambda: site.is_running(2), "both serve")
            assert site.status["racks"] == {"r7": 1, "zone-1/zone-1": 1}

    play(site, scene)


def test_an_eviction_asks_the_budgets_and_the_whole_cluster(site: Site) -> None:
    """Of two pools of one cluster, which decided by the same facts, the second finds the first one's pod going."""
    site.create(replicas=3)
    policy = kubernetes.PolicyV1Api(site.api)

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(3), "created")
            boots = {b: info.boot_id for b, info in (await site.with_directory(_bookies)).items()}
            evict = {n: _eviction(site, n, pod.metadata.uid, boots) for n, pod in site.pods().items()}
            for outdated in ({**boots, site.bookie(0): "another"}, {**boots, "gone": "x"}):
                with pytest.raises(EffectError, match=r"started anew|not registered any more"):
                    await operator.performer.perform_all([replace(evict[2], boots=outdated)])
            policy.create_namespaced_pod_disruption_budget(site.namespace, _budget("strict", 3))
            await operator.drive(lambda: _is_seen(policy, site, "strict"), "the budget is counted")
            with pytest.raises(EffectError, match="more than one PodDisruptionBudget"):
                await operator.performer.perform_all([evict[2]])
            policy.delete_namespaced_pod_disruption_budget("bk.bookies", site.namespace)
            with pytest.raises(EffectError, match="disruption budget"):
                await operator.performer.perform_all([evict[2]])
            assert sorted(site.pods()) == [0, 1, 2]
            assert not any(pod.metadata.deletion_timestamp for pod in site.pods().values())
            policy.delete_namespaced_pod_disruption_budget("strict", site.namespace)
            await operator.drive(lambda: _is_seen(policy, site, "bk.bookies"), "the pool's own is back")
            await operator.performer.perform_all([evict[2]])
            assert site.pods()[2].metadata.deletion_timestamp is not None
            assert 2 in bookies.registered, "it is registered still"
            with pytest.raises(EffectError, match=f"{site.bookie(2)} is stopping"):
                await operator.performer.perform_all([evict[1]])
            await operator.drive(lambda: site.is_running(3), "it is back")
            with pytest.raises(EffectError, match="started anew"):
                await operator.performer.perform_all([evict[2]])
            await operator.performer.perform_all([replace(evict[2], is_strict=False)])  # another pod by now
            assert site.pods()[2].metadata.deletion_timestamp is None

    play(site, scene)


async def _bookies(directory: BookieDirectory) -> Any:
    return await directory.bookies()


def _eviction(site: Site, ordinal: int, uid: str, boots: dict[str, str]) -> Evict:
    pod = Ref("v1", "Pod", site.namespace, f"bk-{ordinal}", uid)
    return Evict(pod, ClusterRef(site.zookeeper, CLUSTER), site.bookie(ordinal), boots)


def _budget(name: str, least: int) -> dict[str, Any]:
    selector = {"matchLabels": {"daybook.dev/pool": "bk"}}
    return {"metadata": {"name": name}, "spec": {"minAvailable": least, "selector": selector}}


def _is_seen(policy: kubernetes.PolicyV1Api, site: Site, name: str) -> bool:
    """Whether Kubernetes has counted the budget's pods."""
    found = policy.list_namespaced_pod_disruption_budget(site.namespace).items
    (budget,) = [each for each in found if each.metadata.name == name] or [None]
    return budget is not None and (budget.status.observed_generation, budget.status.current_healthy) == (
        budget.metadata.generation,
        3,
    )


def test_zookeepers_address_moves_to_where_the_same_cluster_answers_and_nowhere_else(
    control_plane: ControlPlane,
    api: kubernetes.ApiClient,
    namespace: str,
    nodes: PretendNodes,
    zookeeper_server: EmbeddedZooKeeper,
) -> None:
    site = Site(control_plane, api, namespace, nodes, zookeeper_server.connect_string)  # a spec names no path
    same = site.zookeeper.replace("127.0.0.1", "localhost")
    assert same != site.zookeeper
    site.create(replicas=2)

    def is_refused() -> bool:
        return bool(site.condition("ClusterSettingsAccepted").get("reason") == "ZooKeeperNotAccepted")

    async def scene(site: Site, bookies: PretendBookies) -> None:
        async with Operator(site, bookies) as operator:
            await operator.drive(lambda: site.is_running(2), "created")
            bookies.downs.clear()
            site.change(metadata={"zookeeper": "127.0.0.1:1"})
            await operator.drive(is_refused, "nobody answers there")
            assert site.status["metadata"]["zookeeper"] == site.zookeeper
            assert bookies.downs == [], "and nobody was stopped for it"
            site.change(metadata={"zookeeper": same})
            await operator.drive(
                lambda: (
                    site.is_running(2) and all(_zookeeper_of(pod) == same for pod in site.pods().values())
                ),
                "moved",
            )
            assert sorted(bookies.downs, key=sorted) == [frozenset({0}), frozenset({1})], (
                "one after the other"
            )
            assert site.status["metadata"]["formerZookeepers"] == [site.zookeeper]
            assert site.condition("ClusterSettingsAccepted")["status"] == "True"

    play(site, scene)


def _zookeeper_of(pod: Any) -> str:
    (container,) = pod.spec.containers
    return str(next(each.value for each in container.env if each.name == "DAYBOOK_BOOKIE_ZOOKEEPER"))
