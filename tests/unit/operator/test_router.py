"""Events become keys: of the owner, and of nobody else."""

from typing import Any

import kopf
import pytest
import yaml
from daybook_operator.kinds import KINDS, OWNED, RESOURCES, WATCHED, Router
from daybook_operator.kube import api
from daybook_operator.kube.queue import Key
from daybook_operator.kube.watches import ListingProgress, WatchEvent, event_from, kopf_settings, scopes_of
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.recovery.jobs import ObservedJob
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.settings import OperatorSettings

from daybook.runtime.clock import monotonic_ms
from tests.paths import ROOT

POOL, RECOVERY = Key("BookiePool", "data", "bk"), Key("Recovery", "data", "bk")
JOBS = Key("Jobs", "data", "bk")
LEDGER = Key("Ledger", "data", "orders")
REF = ClusterRef("zk:2181", "daybook")


def router() -> tuple[Router, Inventory]:
    inventory = Inventory()
    return Router(inventory), inventory


def event(kind: str, name: str, labels: dict[str, str] | None = None, **spec: Any) -> WatchEvent:
    meta = {"namespace": "data", "name": name, "labels": labels}
    return event_from(kind, "MODIFIED", {"metadata": meta, "spec": spec})


@pytest.mark.parametrize(
    "kind", ["Pod", "StatefulSet", "PersistentVolumeClaim", "Service", "PodDisruptionBudget"]
)
def test_an_owned_object_is_about_its_pool(kind: str) -> None:
    route, _ = router()
    assert route.keys(event(kind, "bk-0", {"daybook.dev/pool": "bk"})) == [POOL]
    assert route.keys(event(kind, "bk-0", {"app": "other"})) == []
    assert route.keys(event(kind, "bk-0")) == []


def test_a_job_is_about_its_pool_the_repair_and_the_jobs_on_spark() -> None:
    route, _ = router()
    assert route.keys(event("Job", "bk-recovery-1", {"daybook.dev/pool": "bk"})) == [POOL, RECOVERY, JOBS]
    assert route.keys(event("CronJob", "bk-audit", {"daybook.dev/pool": "bk"})) == [JOBS]


def test_a_topic_is_reconciled_when_its_plan_may_change_and_not_for_its_status() -> None:
    route, _ = router()
    topic = Key("Topic", "data", "orders")

    def seen(**more: Any) -> list[Key]:
        meta = {"namespace": "data", "name": "orders", "uid": "u", "generation": 1} | more
        return route.keys(
            event_from("Topic", "MODIFIED", {"metadata": meta, "spec": {"poolRef": {"name": "bk"}}})
        )

    assert seen() == [topic]
    assert seen() == []
    assert seen(labels={"team": "a"}) == [], "no plan depends on it"
    assert seen(annotations={"daybook.dev/adopt": "true"}) == [topic]
    assert seen(generation=2) == [topic]


@pytest.mark.parametrize("job", ["compaction", "offload"])
def test_a_topic_is_about_the_jobs_of_its_pool_if_it_names_a_schedule(job: str) -> None:
    """A reconcile of the jobs lists all Topics of the pool: thousands that name no job must not cause thousands of them."""
    route, _ = router()
    topic = Key("Topic", "data", "orders")

    def seen(generation: int, type_: str = "MODIFIED", *, asks: bool = True, **more: Any) -> list[Key]:
        meta = {"namespace": "data", "name": "orders", "uid": "u", "generation": generation} | more
        spec = {"poolRef": {"name": "bk"}, "compaction": {"enabled": False}}
        schedule = {job: {"schedule": "0 3 * * *"}} if asks else {}
        return route.keys(event_from("Topic", type_, {"metadata": meta, "spec": spec | schedule}))

    assert seen(1) == [JOBS, topic]
    assert seen(1) == []
    assert seen(2) == [JOBS, topic]
    assert seen(2, annotations={"daybook.dev/pause": "true"}) == [JOBS, topic]
    assert seen(2) == [JOBS, topic], "it is not paused any more"
    assert seen(3, asks=False) == [JOBS, topic], "the CronJob goes"
    assert seen(4, asks=False) == [topic]
    assert seen(4, "DELETED", asks=False) == [topic]
    assert seen(5) == [JOBS, topic]
    assert seen(5, "DELETED") == [JOBS, topic]
    assert seen(5, "DELETED") == [JOBS, topic], "nobody knows what it named"


def test_a_pool_is_about_its_ledgers_too() -> None:
    route, _ = router()
    assert route.keys(event("Ledger", "orders", poolRef={"name": "bk"})) == [LEDGER]
    assert route.keys(event("BookiePool", "bk")) == [POOL, RECOVERY, JOBS, LEDGER]
    assert route.keys(event("BookiePool", "other"))[3:] == []


def test_a_status_of_a_pool_is_no_news_for_its_ledgers() -> None:
    """A pool of a thousand Ledgers writes its status at every step of a drain."""
    route, _ = router()
    route.keys(event("Ledger", "orders", poolRef={"name": "bk"}))

    def pool(generation: int, *, deleted: bool = False, **status: Any) -> WatchEvent:
        meta: dict[str, Any] = {"namespace": "data", "name": "bk", "uid": "u", "generation": generation}
        if deleted:
            meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return event_from("BookiePool", "MODIFIED", {"metadata": meta, "spec": {}, "status": status})

    assert route.keys(pool(1)) == [POOL, RECOVERY, JOBS, LEDGER]
    assert route.keys(pool(1, phase="Draining")) == [POOL, RECOVERY]
    assert route.keys(pool(2, phase="Draining")) == [POOL, RECOVERY, JOBS, LEDGER]
    known = {"cluster": "daybook", "zookeeper": "zk:2181"}
    assert route.keys(pool(2, metadata=known)) == [POOL, RECOVERY, JOBS, LEDGER], (
        "it says which cluster they are in"
    )
    assert route.keys(pool(2, metadata=known, phase="Running")) == [POOL, RECOVERY]
    draining: dict[str, Any] = {"metadata": known, "drain": {"bookie": "data.bk-3", "stage": "ReadOnly"}}
    assert route.keys(pool(2, **draining)) == [POOL, RECOVERY, JOBS, LEDGER], "what is stored there says so"
    draining["drain"] = {"bookie": "data.bk-3", "stage": "Replicating"}
    assert route.keys(pool(2, **draining)) == [POOL, RECOVERY]
    assert route.keys(pool(2, deleted=True, metadata=known)) == [POOL, RECOVERY, JOBS, LEDGER]
    gone = event_from("BookiePool", "DELETED", {"metadata": {"namespace": "data", "name": "bk"}})
    assert route.keys(gone) == [POOL, RECOVERY, JOBS, LEDGER]


def test_a_node_is_news_when_its_labels_change_and_not_when_it_beats() -> None:
    route, inventory = router()
    inventory.add_pool("data", "bk", REF)
    assert route.keys(event("Node", "n1", {"zone": "a"})) == [POOL]
    assert route.keys(event("Node", "n1", {"zone": "a"})) == []
    assert route.keys(event("Node", "n1", {"zone": "b"})) == [POOL]
    gone = event_from("Node", "DELETED", {"metadata": {"name": "n1"}})
    assert route.keys(gone) == [POOL]


def test_a_pool_that_is_gone_is_no_part_of_its_cluster_any_more() -> None:
    route, inventory = router()
    inventory.add_pool("data", "bk", REF)
    route.keys(event_from("BookiePool", "DELETED", {"metadata": {"namespace": "data", "name": "bk"}}))
    assert inventory.pools_of(REF) == []
    assert inventory.clusters() == set()


def test_a_change_of_a_jobs_ledgers_is_news_for_their_resources() -> None:
    _, inventory = router()
    inventory.note("Ledger", "data", "orders", "bk", is_there=True)
    inventory.bind(LEDGER, REF, 7)
    job = ObservedJob("bk-recovery-1", "data", "u", ("7:0:1", "8:0:1"))
    assert inventory.note_jobs(REF, [job]) == [LEDGER]
    assert inventory.job_of(REF, 7) == "bk-recovery-1"
    assert inventory.note_jobs(REF, [job]) == []
    assert inventory.note_jobs(REF, []) == [LEDGER]
    assert inventory.job_of(REF, 7) == ""


def test_what_is_not_ours_is_left_out_by_the_api_server() -> None:
    settings = kopf_settings(OperatorSettings(), ListingProgress(WATCHED, OWNED))
    found = {kind: settings.watching.label_selectors.collect(resource(kind)) for kind in WATCHED}
    own = {"BookiePool", "Ledger", "Topic", "Node"}
    assert found == {kind: [] if kind in own else ["daybook.dev/pool"] for kind in WATCHED}
    assert not settings.posting.enabled
    assert settings.persistence.finalizer not in {FINALIZER, ""}, "kopf takes its own off whatever has it"


def resource(kind: str) -> kopf.Resource:
    known = api.kind_of(kind)
    group, _, version = known.api_version.rpartition("/")
    return kopf.Resource(group, version, known.plural)


def test_a_kind_that_kopf_does_not_list_soon_after_the_first_was_not_found() -> None:
    listed = ListingProgress(("Pod", "Ledger"))
    now_ms = monotonic_ms()
    assert listed.overdue(now_ms) == []
    listed.is_selected_by_label(resource("Pod"))
    assert listed.overdue(now_ms + 1_000) == []
    assert listed.overdue(now_ms + 60_000) == ["Ledger"]
    listed.is_selected_by_label(resource("Ledger"))
    assert listed.overdue(now_ms + 60_000) == []
    assert ListingProgress(("Pod",)).overdue(now_ms + 3_600_000) == ["Pod"], (
        "and if it lists nothing, it found nothing"
    )


def test_each_namespace_is_watched_by_itself_and_so_are_the_nodes() -> None:
    assert scopes_of((), WATCHED) == [("", WATCHED)]
    nodes, data, other = scopes_of(("data", "other"), WATCHED)
    assert nodes == ("", ("Node",))
    assert [data[0], other[0]] == ["data", "other"]
    assert {*data[1], "Node"} == set(WATCHED)


def test_a_resync_has_each_object_reconciled_and_what_goes_under_its_name() -> None:
    route, inventory = router()
    assert route.keys_at_resync(event("BookiePool", "bk")) == [POOL, RECOVERY, JOBS]
    assert route.keys_at_resync(event("Ledger", "orders", poolRef={"name": "bk"})) == [LEDGER]
    assert inventory.stored_in("Ledger", "data", "bk") == [LEDGER]


def topic_event(generation: int) -> WatchEvent:
    meta = {"namespace": "data", "name": "orders", "uid": "u", "generation": generation}
    return event_from("Topic", None, {"metadata": meta, "spec": {"poolRef": {"name": "bk"}}})


TOPIC = Key("Topic", "data", "orders")


def test_what_a_resync_has_listed_is_no_news_and_is_taken_once() -> None:
    route, inventory = router()
    route.listing_begins()
    assert route.keys_at_resync(topic_event(1)) == [TOPIC]
    assert route.keys(topic_event(1)) == [], "the watch begins with what there is"
    listed = inventory.take_listed(TOPIC)
    assert listed is not None
    assert listed["metadata"]["generation"] == 1
    assert inventory.take_listed(TOPIC) is None
    route.listing_begins()
    route.keys_at_resync(topic_event(1))
    assert route.keys(topic_event(2)) == [TOPIC]
    assert inventory.take_listed(TOPIC) is None, "the event is newer"


def test_a_listing_that_is_older_than_an_event_hides_no_change() -> None:
    """The spec changes while the listing is made, and back after it: all three reconciles are asked for."""
    route, inventory = router()
    route.keys(topic_event(1))
    route.listing_begins()
    assert TOPIC in route.keys(topic_event(2))
    assert route.keys_at_resync(topic_event(1)) == [TOPIC]
    assert inventory.take_listed(TOPIC) is None
    assert TOPIC in route.keys(topic_event(1)), "as the listing had it, which nobody has reconciled since"


def test_a_pool_is_known_by_its_last_event_unless_a_listing_is_newer() -> None:
    route, inventory = router()

    def pool(generation: int) -> WatchEvent:
        meta = {"namespace": "data", "name": "bk", "uid": "u", "generation": generation}
        return event_from("BookiePool", "MODIFIED", {"metadata": meta, "spec": {}})

    def known() -> int | None:
        found = inventory.pool("data", "bk")
        return None if found is None else int(found["metadata"]["generation"])

    assert known() is None
    route.keys(pool(1))
    route.listing_begins()
    route.keys_at_resync(pool(2))
    assert known() == 2
    route.listing_begins()
    route.keys(pool(3))
    route.keys_at_resync(pool(2))
    assert known() == 3
    route.keys(event_from("BookiePool", "DELETED", {"metadata": {"namespace": "data", "name": "bk"}}))
    route.keys_at_resync(pool(3))
    assert known() is None


def test_the_roles_in_the_chart_are_what_the_kinds_need() -> None:
    template = (ROOT / "charts/daybook/templates/operator/_rules.tpl").read_text(encoding="utf-8")
    allowed: dict[str, set[str]] = {}
    rules = "\n".join(
        line for line in template.splitlines() if "{{" not in line and "resourceNames" not in line
    )
    for rule in yaml.safe_load(rules):
        for resource in rule["resources"]:
            allowed.setdefault(f"{rule['apiGroups'][0]}/{resource}", set()).update(rule["verbs"])
    needed: dict[str, set[str]] = {}
    for kind in KINDS:
        for resource, verbs in kind.rights.items():
            needed.setdefault(resource, set()).update(verbs.split())
    assert allowed == needed


def test_the_api_server_spells_daybooks_kinds_as_the_registry_and_the_crds_do() -> None:
    crds = [
        yaml.safe_load(path.read_text(encoding="utf-8"))["spec"] for path in (ROOT / "crds").glob("*.yaml")
    ]
    versions = {
        (crd["names"]["kind"], f"{crd['group']}/{version['name']}", crd["names"]["plural"])
        for crd in crds
        for version in crd["versions"]
    }
    spelled = {name: api.kind_of(name) for name in RESOURCES}
    assert versions >= {(name, kind.api_version, kind.plural) for name, kind in spelled.items()}
    assert set(WATCHED) - set(RESOURCES) <= set(api.KINDS), "everything else is Kubernetes' own"


def test_every_kind_that_is_watched_may_be_listed_and_has_a_place_in_the_api() -> None:
    for kind in KINDS:
        for watched in kind.routes:
            known = api.kind_of(watched)
            group = known.api_version.rpartition("/")[0]
            assert any(
                {"list", "watch"} <= set(each.rights.get(f"{group}/{known.plural}", "").split())
                for each in KINDS
            ), watched
