"""From a pool that is not as it should be down to what is to be done about it."""

import json

from daybook.cli.kubectl.explain import Finding, deepest, explain
from daybook.cli.kubectl.world import World
from tests.unit.cli.kubectl.objects import bookie, claim, condition, event, ledger, node, pod, pool

LACKING = [
    {"firstEntry": 0, "bookies": ["data.bk-0", "data.bk-1", "data.bk-2"], "missing": ["data.bk-1"]},
    {"firstEntry": 500, "bookies": ["data.bk-0", "data.bk-3", "data.bk-2"]},
]
NOT_READY = [condition("Ready", "False", "BookiesMissing", "bk-1 is not registered")]


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    world = World([pool()], [ledger()], [pod()], [claim()], [node()])
    assert explain(world) == []


def test_from_the_pool_to_the_node_that_is_down() -> None:
    """Resource → bookie → pod → node, each with its evidence and a command; and the ledger that lacks a replica."""
    away = bookie(1, state="Away", ready=False, since="2026-05-04T10:00:00Z", message="its pod is not ready")
    world = World(
        [pool(bookie(0), away, bookie(2), conditions=NOT_READY)],
        [ledger(fragments=LACKING)],
        [pod("bk-1", ready=False)],
        [claim()],
        [node(ready="Unknown", message="Kubelet stopped posting node status.")],
    )
    top = only(explain(world, "bk"))
    assert top.subject == "BookiePool data/bk"
    assert "Ready is False (BookiesMissing)" in top.what
    assert top.evidence == ("bk-1 is not registered",)
    found = only(list(top.causes))
    assert found.subject == "bookie data.bk-1"
    assert "Ledger data/first lacks it for entries from 0 on" in found.evidence
    assert "its pod is not ready" in found.evidence
    assert found.next_command.startswith("kubectl logs -n data bk-1")
    machine = only(deepest([top]))
    assert machine.subject == "Node worker-b"
    assert machine.evidence == ("Kubelet stopped posting node status.",)
    assert machine.next_command == "kubectl describe node worker-b"


def test_a_container_that_ends_again_and_again_shows_its_last_words() -> None:
    words = '{"event": "the bookie cannot start", "reason": "cookie data.bk-1 is missing"}\n'
    container = {
        "name": "bookie",
        "ready": False,
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 4, "reason": "Error", "message": f"earlier\n{words}"}},
    }
    lost = bookie(1, state="DiskLost", ready=False)
    world = World(
        [pool(bookie(0), lost, bookie(2), conditions=NOT_READY)],
        pods=[pod("bk-1", ready=False, containerStatuses=[container])],
        claims=[claim()],
        nodes=[node()],
    )
    found = only(deepest(explain(world)))
    assert "exit code 4, 4 restarts" in found.what
    assert any("cookie data.bk-1 is missing" in line for line in found.evidence)
    assert found.next_command == "kubectl logs -n data bk-1 --previous --tail 50"


def test_an_image_that_cannot_be_pulled_is_called_that() -> None:
    container = {
        "image": "daybook-bookie:2",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
    }
    world = World(
        [pool(bookie(0), bookie(1, state="Starting", ready=False), bookie(2), conditions=NOT_READY)],
        pods=[pod("bk-1", ready=False, containerStatuses=[container])],
        claims=[claim()],
        nodes=[node()],
    )
    found = only(deepest(explain(world)))
    assert found.what == "its image daybook-bookie:2 cannot be pulled"
    assert found.evidence == ("not found",)
    assert found.next_command == "kubectl describe pod -n data bk-1"


def test_memory_that_is_not_enough_is_called_that() -> None:
    container = {
        "ready": False,
        "restartCount": 1,
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    world = World(
        [pool(bookie(0), bookie(1, state="Away", ready=False), bookie(2), conditions=NOT_READY)],
        pods=[pod("bk-1", ready=False, containerStatuses=[container])],
        claims=[claim()],
        nodes=[node()],
    )
    assert "needs more memory than its limit" in only(deepest(explain(world))).what


def test_a_pod_without_a_node_leads_to_its_volume() -> None:
    """Of a bookie that the status does not know yet: the pod is found by its ordinal."""
    waiting = pod(
        "bk-2",
        ready=False,
        phase="Pending",
        conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")],
    )
    del waiting["spec"]["nodeName"]
    world = World(
        [pool(bookie(0), bookie(1), spec={"replicas": 3}, conditions=NOT_READY)],
        pods=[waiting],
        claims=[claim("store-bk-2", "Pending")],
        nodes=[node()],
        events=[
            event(
                "PersistentVolumeClaim",
                "store-bk-2",
                "ProvisioningFailed",
                "old news",
                "2026-05-04T09:00:00Z",
            ),
            event(
                "PersistentVolumeClaim", "store-bk-2", "ProvisioningFailed", 'storageclass "fast" not found'
            ),
            event("PersistentVolumeClaim", "store-bk-0", "ProvisioningFailed", "another one's"),
        ],
    )
    (top,) = explain(world)
    (found,) = top.causes
    assert found.what == "no node takes it"
    assert "0/3 nodes are available" in found.evidence
    volume = only(deepest([top]))
    assert volume.subject == "PersistentVolumeClaim data/store-bk-2"
    assert volume.evidence == (
        "it asks for fast",
        'ProvisioningFailed: storageclass "fast" not found',
        "ProvisioningFailed: old news",
    )


def test_pods_that_do_not_exist_are_named() -> None:
    world = World([pool(bookie(0), spec={"replicas": 3}, conditions=NOT_READY)])
    found = only(deepest(explain(world)))
    assert found.subject == "pods bk-1, bk-2"
    assert found.next_command == "kubectl describe statefulset -n data bk"


def test_a_change_that_nobody_looked_at_leads_to_the_operator() -> None:
    unseen = pool()
    unseen["metadata"]["generation"] = 4
    crashed = pod("op-1", "system", component="operator", ready=False, phase="Pending")
    found = only(deepest(explain(World([unseen], pods=[crashed], nodes=[node()]))))
    assert found.subject == "Pod system/op-1"
    assert only(deepest(explain(World([unseen])))).what == "no operator runs"
    running = only(deepest(explain(World([unseen], pods=[pod("op-1", "system", component="operator")]))))
    assert "kubectl logs -n system" in running.next_command
    unread = only(deepest(explain(World([unseen], unread={"Pod": "pods is forbidden"}))))
    assert unread.evidence == ("pods is forbidden",)


def test_a_paused_pool_says_so_and_nothing_else() -> None:
    paused = pool(conditions=NOT_READY)
    paused["metadata"]["annotations"] = {"daybook.dev/pause": "true"}
    found = only(explain(World([paused])))
    assert found.next_command == "kubectl annotate bookiepool -n data bk daybook.dev/pause-"
    assert not found.causes


def test_entries_that_nobody_has_are_listed() -> None:
    recovery = {
        "underReplicated": 2,
        "activeJobs": 0,
        "unrecoverable": 1,
        "unrecoverableLedgers": [41],
    }
    wrong = [condition("FullyReplicated", "False", "Unrecoverable", "ledger 41")]
    world = World([pool(spec={"recovery": {"paused": True}}, recovery=recovery, conditions=wrong)])
    lost, waiting = only(explain(world)).causes
    assert lost.subject == "ledgers 41"
    assert "daybook ledger delete 41 --without-recovery" in lost.next_command
    assert waiting.what == "2 ledgers lack a replica, and no recovery Job runs"
    assert waiting.evidence == ("spec.recovery.paused is true",)
    assert waiting.next_command == "kubectl daybook recover plan -n data bk"


def test_what_bookies_that_are_away_may_have_is_not_lost_and_nobody_is_told_to_delete_it() -> None:
    recovery = {"unrecoverable": 0, "unrecoverableLedgers": [], "unreachable": 1, "unreachableLedgers": [41]}
    wrong = [condition("FullyReplicated", "Unknown", "HoldersAway", "ledger 41")]
    members = [bookie(0), bookie(1, state="Starting"), bookie(2, state="Away")]
    found = only(explain(World([pool(*members, recovery=recovery, conditions=wrong)])))
    (said,) = [each for each in found.causes if each.subject == "ledgers 41"]
    assert said.evidence == ("bookie data.bk-1 is away", "bookie data.bk-2 is away")
    assert "delete" not in json.dumps(found.record())


def test_a_drain_that_waits_says_for_what() -> None:
    drain = {
        "bookie": "data.bk-2",
        "stage": "Replicating",
        "ledgersRemaining": 9,
        "message": "no bookie of another rack",
    }
    leaving = bookie(2, state="Draining")
    world = World(
        [
            pool(
                bookie(0),
                bookie(1),
                leaving,
                drain=drain,
                conditions=[condition("Draining", "True", "Blocked")],
            )
        ]
    )
    told = {finding.what: finding for finding in only(explain(world)).causes}
    assert told["drain of data.bk-2 is at Replicating, 9 ledgers to go"].evidence == (
        "no bookie of another rack",
    )


def test_a_ledger_without_its_pool() -> None:
    alone = ledger(conditions=[condition("Ready", "False", "NoPool", "there is no pool bk")])
    found = only(explain(World(ledgers=[alone])))
    assert found.evidence == ("there is no pool bk",)
    assert only(list(found.causes)).subject == "BookiePool data/bk"
    assert found.next_command == "kubectl daybook ledger map -n data first"


def test_a_ledger_is_told_beneath_its_pool_or_on_its_own() -> None:
    """A troubled pool tells of its ledgers; one that is fine does not hide them."""
    lacking = ledger(fragments=LACKING)
    assert only(explain(World([pool()], [lacking]))).subject == "Ledger data/first"
    troubled = World([pool(conditions=NOT_READY)], [lacking])
    assert [each.subject for each in explain(troubled)] == ["BookiePool data/bk"]
    assert "entries from 0 on lack a replica on data.bk-1" in only(explain(troubled, "first")).what


def test_what_only_goes_on_is_not_wrong() -> None:
    """Hibernation was asked for; a roll or a drain is wrong only when it does not get on."""
    calm = [
        condition("Ready", "False", "Hibernated"),
        condition("Progressing", "True", "RollingOut"),
        condition("StorageResizing", "True", "Growing"),
        condition("Paused", "False", "Reconciling"),
    ]
    assert explain(World([pool(conditions=calm)])) == []
    stuck = [condition("Progressing", "True", "ProgressDeadlineExceeded", "for 901 s")]
    assert only(explain(World([pool(conditions=stuck)]))).evidence == ("for 901 s",)


def test_a_disk_that_fills_is_wrong_and_a_drain_is_not() -> None:
    """DiskPressure is good when it is False; Draining and Paused only say what goes on."""
    full = pool(
        conditions=[condition("DiskPressure", "True", "Full", "bk-0 uses 96%"), condition("Draining", "True")]
    )
    assert only(explain(World([full]))).what == "DiskPressure is True (Full)"
