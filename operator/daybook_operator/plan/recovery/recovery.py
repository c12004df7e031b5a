"""The repair of a cluster as one of its pools carries it out: the Jobs' manifests, and what the pool's status says of it.

A Job is an ordinary worker: it takes ZooKeeper's tasks under ZooKeeper's locks, beside any worker outside Kubernetes. It
has an account without any right to the API server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook.core.placement.policies import PlacementSettings
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import API_VERSION, Decision, is_paused, is_terminating
from daybook_operator.plan.effects import Apply, ClusterRef, Effect, Manifest, Ref, Remove
from daybook_operator.plan.ledger.lost_ledgers import Verdict
from daybook_operator.plan.ledger.world import cluster_text
from daybook_operator.plan.pool.spec import PoolSpec, TlsSpec, own_spec
from daybook_operator.plan.recovery.jobs import JobPolicy, JobSeen, JobsPlan, NewJob, TaskSeen, plan_jobs
from daybook_operator.plan.zookeeper_access import OF_COMMANDS

COMPONENT: Final = "recovery"
POOL_LABEL: Final = "daybook.dev/pool"
CLUSTER_LABEL: Final = "daybook.dev/cluster"
CLUSTER_ANNOTATION: Final = "daybook.dev/cluster"
TASKS_ANNOTATION: Final = "daybook.dev/tasks"
USER_ID: Final = 65532
TLS_MOUNT: Final = "/etc/daybook/tls"
_LISTED_MAX: Final = 100
_LOST_LISTED_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class AuditSeen:
    """A round of the auditor."""

    began_ms: int
    duration_ms: int
    is_clean: bool
    ledgers: int

    def record(self) -> dict[str, Any]:
        """As the status has it."""
        return {
            "startedAt": iso(self.began_ms),
            "finishedAt": iso(self.began_ms + self.duration_ms),
            "clean": self.is_clean,
            "ledgers": self.ledgers,
        }


@dataclass(frozen=True, slots=True)
class RecoverySeen:
    """What ZooKeeper, the API server and the auditor say about the repair of a cluster."""

    cluster_ref: ClusterRef
    tasks: tuple[TaskSeen, ...] = ()
    jobs: tuple[JobSeen, ...] = ()
    switched_off: bool = False
    """Repair is switched off for the whole cluster (rule 33)."""
    lost_bookies: tuple[BookieId, ...] = ()
    misplaced: int = 0
    blocked: int = 0
    """Ledgers that lack a replica, as the last audit found, and have no task, since no bookie can take the place."""
    last_audit: AuditSeen | None = None
    last_full_audit: AuditSeen | None = None
    verdicts: tuple[Verdict, ...] = ()
    """On ledgers with an entry that the last repair found nowhere."""
    troubles: tuple[str, ...] = ()
    """Jobs that do not start, and why, in words."""

    @property
    def under_replicated(self) -> int:
        """The ledgers that lack a replica, whether or not somebody can do something about it."""
        return sum(not task.is_harmless for task in self.tasks) + self.blocked


def carrier_of(pools: Sequence[Manifest]) -> Manifest | None:
    """The pool of one cluster's `pools` that carries its repair: the first that can, else the first that stays.

    A pool that is paused or hibernated makes no Jobs, and must not keep those of the others from being made.
    """
    staying = [pool for pool in pools if not is_terminating(pool)]
    able = [pool for pool in staying if not is_paused(pool) and not own_spec(pool).hibernate]
    return next(iter([*able, *staying]), None)


def decide_recovery(
    pool: Manifest,
    spec: PoolSpec,
    seen: RecoverySeen,
    now_ms: int,
    *,
    look_s: float,
    needless_ms: int,
    operator_speaks_tls: bool,
) -> Decision:
    """What the pool that repairs the cluster does now."""
    if is_terminating(pool) or is_paused(pool):
        return Decision()
    policy = JobPolicy(
        spec.recovery.parallelism,
        spec.recovery.ledgers_per_job,
        enabled=not (spec.recovery.paused or seen.switched_off or spec.hibernate),
        needless_ms=needless_ms,
        look_s=look_s,
    )
    meta = pool["metadata"]
    plan = plan_jobs(seen.tasks, seen.jobs, policy, prefix=f"{meta['name'][:40]}-recovery", now_ms=now_ms)
    effects: list[Effect] = [
        Remove(Ref("batch/v1", "Job", job.namespace, job.name, job.uid)) for job in plan.cancel
    ]
    if plan.create:
        effects.append(Apply(service_account(pool)))
    effects += [
        Apply(job_manifest(pool, spec, seen.cluster_ref, job, operator_speaks_tls=operator_speaks_tls))
        for job in plan.create
    ]
    return Decision(tuple(effects), plan.requeue_after_s)


def recovery_status(seen: RecoverySeen, now_ms: int) -> dict[str, Any]:
    """`status.recovery` of every pool of the cluster."""
    plan: JobsPlan = plan_jobs(seen.tasks, seen.jobs, JobPolicy(parallelism=0), prefix="", now_ms=now_ms)
    lost = sorted(each.ledger_id for each in seen.verdicts if each.is_lost)
    awaited = sorted(each.ledger_id for each in seen.verdicts if not each.is_lost)
    return {
        "underReplicated": seen.under_replicated,
        "unrecoverable": len(lost),
        "unrecoverableLedgers": lost[:_LISTED_MAX],
        "unreachable": len(awaited),
        "unreachableLedgers": awaited[:_LISTED_MAX],
        "lostBookies": list(seen.lost_bookies[:_LOST_LISTED_MAX]),
        "activeJobs": sum(job.is_active for job in seen.jobs),
        "waitingLedgers": len(plan.waiting),
        "misplaced": seen.misplaced,
        "lastAudit": seen.last_audit.record() if seen.last_audit else None,
        "lastFullAudit": seen.last_full_audit.record() if seen.last_full_audit else None,
    }


# Objects.


def labels_of(pool: Manifest, ref: ClusterRef) -> dict[str, str]:
    """The labels of recovery Jobs, their pods and their account."""
    name = pool["metadata"]["name"]
    return {
        "app.kubernetes.io/name": "daybook",
        "app.kubernetes.io/component": COMPONENT,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "daybook-operator",
        POOL_LABEL: name,
        CLUSTER_LABEL: ref.cluster,
    }


def owner_of(pool: Manifest) -> dict[str, Any]:
    """What makes the API server delete an object with its pool."""
    meta = pool["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": "BookiePool",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def account_name(pool: Manifest) -> str:
    """The account that recovery Jobs run as."""
    return f"{pool['metadata']['name']}-recovery"


def service_account(pool: Manifest) -> Manifest:
    """An account that may do nothing."""
    meta = pool["metadata"]
    labels = {
        "app.kubernetes.io/name": "daybook",
        "app.kubernetes.io/component": COMPONENT,
        "app.kubernetes.io/instance": meta["name"],
        "app.kubernetes.io/managed-by": "daybook-operator",
        POOL_LABEL: meta["name"],
    }
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": account_name(pool),
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner_of(pool)],
        },
        "automountServiceAccountToken": False,
    }


def job_manifest(
    pool: Manifest,
    spec: PoolSpec,
    ref: ClusterRef,
    job: NewJob,
    *,
    operator_speaks_tls: bool,
) -> Manifest:
    """The Job that mends the ledgers of `job`.

    While the pool's TLS is optional, a Job speaks what the operator speaks: during the roll to that mode some bookies serve
    in one way alone, which is the operator's, since that is changed only once all of them serve in both.
    """
    tls = spec.tls if spec.tls and (not spec.tls.is_optional or operator_speaks_tls) else None
    labels = labels_of(pool, ref)
    pod = _pod_spec(pool, spec, ref, job, tls)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name,
            "namespace": pool["metadata"]["namespace"],
            "labels": labels,
            "annotations": {CLUSTER_ANNOTATION: cluster_text(ref), TASKS_ANNOTATION: ",".join(job.tasks)},
            "ownerReferences": [owner_of(pool)],
        },
        "spec": {
            "backoffLimit": spec.recovery.backoff_limit,
            "activeDeadlineSeconds": spec.recovery.active_deadline_seconds,
            "ttlSecondsAfterFinished": spec.recovery.ttl_seconds_after_finished,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _pod_spec(
    pool: Manifest, spec: PoolSpec, ref: ClusterRef, job: NewJob, tls: TlsSpec | None
) -> dict[str, Any]:
    own, extra = spec.recovery.job_template, spec.pod_template
    variables = {
        "DAYBOOK_ZOOKEEPER": ref.zookeeper,
        "DAYBOOK_CLUSTER": ref.cluster,
        "DAYBOOK_LOG_LEVEL": "INFO",
        "DAYBOOK_AUTORECOVERY_BYTES_PER_SECOND": str(spec.recovery.bytes_per_second),
        **_placement_variables(spec.placement.settings),
    }
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the container's own
    if tls is not None:
        variables["DAYBOOK_TLS_CA"] = f"{TLS_MOUNT}/ca.crt"
        if tls.authenticates_clients:
            variables["DAYBOOK_TLS_CERTIFICATE"] = f"{TLS_MOUNT}/tls.crt"
            variables["DAYBOOK_TLS_KEY"] = f"{TLS_MOUNT}/tls.key"
        volumes.append({"name": "tls", "secret": {"secretName": tls.secret_name}})
        mounts.append({"name": "tls", "mountPath": TLS_MOUNT, "readOnly": True})
    container = {
        "name": COMPONENT,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["daybook", "recover", *map(str, job.ledgers)],
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            *spec.zookeeper_access.variables(OF_COMMANDS),
        ],
        "resources": dict(own.resources),
        "volumeMounts": [*mounts, *spec.zookeeper_access.mounts()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": account_name(pool),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [*volumes, *spec.zookeeper_access.volumes()],
    }
    optional = {
        "imagePullSecrets": [dict(each) for each in spec.image_pull_secrets],
        "nodeSelector": dict(extra.node_selector if own.node_selector is None else own.node_selector),
        "tolerations": [
            dict(each) for each in (extra.tolerations if own.tolerations is None else own.tolerations)
        ],
        "priorityClassName": extra.priority_class_name
        if own.priority_class_name is None
        else own.priority_class_name,
    }
    return {**pod, **{name: value for name, value in optional.items() if value}}


def _placement_variables(placement: PlacementSettings) -> dict[str, str]:
    """So that the worker places by the policy that the auditor judges by."""
    values = {
        "POLICY": placement.policy,
        "MIN_RACKS": placement.min_racks,
        "MIN_ZONES": placement.min_zones,
        "MIN_REGIONS": placement.min_regions,
        "ENFORCE": str(placement.enforce).lower(),
        "WEIGH_BY_FREE_SPACE": str(placement.weigh_by_free_space).lower(),
    }
    return {f"DAYBOOK_PLACEMENT_{name}": str(value) for name, value in values.items()}
