"""The manifest of a recovery Job: an ordinary worker, which takes ZooKeeper's tasks under ZooKeeper's locks."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from daybook.core.ids import LedgerId
from daybook.core.placement.policies import PlacementSettings
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.names import (
    CLUSTER_ANNOTATION,
    CLUSTER_LABEL,
    TASKS_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from daybook_operator.plan.pods import (
    RECOVERY,
    container_security,
    metadata_of,
    pod_dns,
    pod_identity,
    pod_security,
    tls_files,
    tls_mount,
    tls_volume,
    with_set,
)
from daybook_operator.plan.pool.spec import PoolSpec, TlsSpec
from daybook_operator.plan.recovery.jobs import NewJob
from daybook_operator.plan.zookeeper_access import OF_COMMANDS


def job_manifest(
    pool: Manifest,
    spec: PoolSpec,
    ref: ClusterRef,
    job: NewJob,
    *,
    operator_speaks_tls: bool,
) -> Manifest:
    """The Job that repairs the ledgers of `job`.

    While the pool's TLS is optional, a Job uses TLS if the operator does: during the roll to that mode some bookies serve
    in one way only, which is the operator's, since the operator is changed only once all bookies serve in both.
    """
    meta = metadata_of(pool, RECOVERY, job.name, {CLUSTER_LABEL: ref.cluster})
    pod = _pod_spec(pool, spec, ref, job.ledgers, operator_speaks_tls=operator_speaks_tls)
    annotations = {
        CLUSTER_ANNOTATION: ref.text,
        TASKS_ANNOTATION: ",".join(job.tasks),
        TEMPLATE_ANNOTATION: template_of(pool, spec, ref, operator_speaks_tls=operator_speaks_tls),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "annotations": annotations},
        "spec": {
            "backoffLimit": spec.recovery.backoff_limit,
            "activeDeadlineSeconds": spec.recovery.active_deadline_seconds,
            "ttlSecondsAfterFinished": spec.recovery.ttl_seconds_after_finished,
            "template": {"metadata": {"labels": meta["labels"]}, "spec": pod},
        },
    }


def template_of(pool: Manifest, spec: PoolSpec, ref: ClusterRef, *, operator_speaks_tls: bool) -> str:
    """A digest of the pods that Jobs are made with now, whichever ledgers they repair."""
    pod = _pod_spec(pool, spec, ref, (), operator_speaks_tls=operator_speaks_tls)
    return hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:16]


def _pod_spec(
    pool: Manifest, spec: PoolSpec, ref: ClusterRef, ledgers: Sequence[LedgerId], *, operator_speaks_tls: bool
) -> dict[str, Any]:
    own, extra = spec.recovery.job_template, spec.pod_template
    tls = _tls_of(spec, operator_speaks_tls=operator_speaks_tls)
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
        files = tls_files(with_certificate=tls.authenticates_clients, with_ca=True)
        variables |= {f"DAYBOOK_{name}": path for name, path in sorted(files.items())}
        volumes.append(tls_volume(tls.secret_name))
        mounts.append(tls_mount())
    container = {
        "name": RECOVERY,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": ["daybook", "recover", *map(str, ledgers)],
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            *spec.zookeeper_access.variables(OF_COMMANDS),
        ],
        "resources": dict(own.resources),
        "volumeMounts": [*mounts, *spec.zookeeper_access.mounts()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        **pod_identity(pool, RECOVERY),
        **pod_dns(),
        "securityContext": pod_security(),
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
    return with_set(pod, optional)


def _tls_of(spec: PoolSpec, *, operator_speaks_tls: bool) -> TlsSpec | None:
    return spec.tls if spec.tls and (not spec.tls.is_optional or operator_speaks_tls) else None


def _placement_variables(placement: PlacementSettings) -> dict[str, str]:
    """The worker places replicas by the same policy as the auditor checks."""
    values = {
        "POLICY": placement.policy,
        "MIN_RACKS": placement.min_racks,
        "MIN_ZONES": placement.min_zones,
        "MIN_REGIONS": placement.min_regions,
        "ENFORCE": str(placement.enforce).lower(),
        "WEIGH_BY_FREE_SPACE": str(placement.weigh_by_free_space).lower(),
    }
    return {f"DAYBOOK_PLACEMENT_{name}": str(value) for name, value in values.items()}
