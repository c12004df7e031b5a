"""The manifest of a CronJob: the pod of its Job is Spark's driver in client mode, and starts executors as pods of their own.

Drivers and executors have the same image, Secrets and variables, and the restricted security profile. What Spark needs to know is in two
variables that `daybook_spark.driver` reads: its settings, and the template of its executors, which must be a file.
"""

import json
from typing import Any, Final

from daybook_operator.plan.drift import sealed
from daybook_operator.plan.effects import ClusterRef, Manifest
from daybook_operator.plan.jobs.schedules import Scheduled
from daybook_operator.plan.names import JOB_LABEL, pool_in_cluster
from daybook_operator.plan.pods import (
    SPARK,
    container_security,
    labels_of,
    metadata_of,
    of_the_pod,
    pod_security,
    tls_files,
    tls_mount,
    tls_volume,
    with_set,
)
from daybook_operator.plan.pool.spec import PoolDefaults, PoolSpec, TlsSpec
from daybook_operator.plan.spark_jobs import SparkPodSpec
from daybook_operator.plan.zookeeper_access import OF_COMMANDS

DRIVER: Final = "driver"
MASTER: Final = "k8s://https://kubernetes.default.svc:443"
TERMINATION_LOG: Final = "/dev/termination-log"
STARTING_DEADLINE_S: Final = 3600
"""A run that could not begin for so long waits for the next one."""
_OF_TOPICS: Final = {"compaction", "offload"}
_REPEATED: Final = {"retention", "compaction", "offload"}
"""An audit that finds something wrong fails, and would find it again."""


def image_of(spec: PoolSpec, defaults: PoolDefaults) -> str:
    """The image of drivers and executors; "" if nobody names one."""
    return spec.jobs.image or defaults.spark_image


def cron_job(
    pool: Manifest,
    spec: PoolSpec,
    ref: ClusterRef,
    wanted: Scheduled,
    defaults: PoolDefaults,
    *,
    operator_speaks_tls: bool,
) -> Manifest:
    """The CronJob for `wanted`. While TLS is optional, its pods use it if the operator does, as recovery Jobs do."""
    jobs = spec.jobs
    tls = spec.tls if spec.tls and (not spec.tls.is_optional or operator_speaks_tls) else None
    label = {JOB_LABEL: wanted.job}
    meta = metadata_of(pool, SPARK, wanted.name, label)
    template = {
        "metadata": {"labels": meta["labels"]},
        "spec": _driver(pool, spec, ref, wanted, defaults, tls),
    }
    return sealed(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": meta,
            "spec": {
                "schedule": wanted.schedule,
                "timeZone": wanted.time_zone,
                "suspend": wanted.suspend,
                "concurrencyPolicy": "Forbid",
                "startingDeadlineSeconds": STARTING_DEADLINE_S,
                "successfulJobsHistoryLimit": jobs.successful_jobs_history_limit,
                "failedJobsHistoryLimit": jobs.failed_jobs_history_limit,
                "jobTemplate": {
                    "metadata": {"labels": meta["labels"]},
                    "spec": {
                        "backoffLimit": jobs.backoff_limit if wanted.job in _REPEATED else 0,
                        "activeDeadlineSeconds": jobs.active_deadline_seconds,
                        "template": template,
                    },
                },
            },
        }
    )


def _driver(
    pool: Manifest,
    spec: PoolSpec,
    ref: ClusterRef,
    wanted: Scheduled,
    defaults: PoolDefaults,
    tls: TlsSpec | None,
) -> dict[str, Any]:
    own, executor = spec.jobs.driver, _executor(pool, spec, ref, wanted, defaults, tls)
    settings = _spark_settings(pool, spec, defaults)
    container = {
        **_container(spec, ref, tls),
        "name": DRIVER,
        "image": image_of(spec, defaults),
        "imagePullPolicy": spec.image_pull_policy,
        "args": ["python3", "-m", "daybook_spark.driver", *_command(pool, wanted)],
        "resources": {
            "requests": {"cpu": own.cpu, "memory": own.memory},
            "limits": {"memory": own.memory},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    container["env"] = [
        of_the_pod("POD_NAME", "metadata.name"),
        of_the_pod("POD_IP", "status.podIP"),
        *container["env"],
        {"name": "DAYBOOK_SPARK_SETTINGS", "value": json.dumps(settings, sort_keys=True)},
        {"name": "DAYBOOK_SPARK_EXECUTOR", "value": json.dumps(executor, sort_keys=True)},
    ]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": defaults.jobs_account,
        "automountServiceAccountToken": True,
        **_pod(spec, tls, container),
    }


def _executor(
    pool: Manifest,
    spec: PoolSpec,
    ref: ClusterRef,
    wanted: Scheduled,
    defaults: PoolDefaults,
    tls: TlsSpec | None,
) -> dict[str, Any]:
    """The template: Spark adds the image, the resources and its own variables.

    Executors write to object stores, so they need the role of the account, too. No pod of it may ask the API server.
    """
    labels = {**labels_of(pool, SPARK), JOB_LABEL: wanted.job}
    container = {**_container(spec, ref, tls), "name": "executor"}
    pod = {
        "serviceAccountName": defaults.jobs_account,
        "automountServiceAccountToken": False,
        **_pod(spec, tls, container),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": pod}


def _command(pool: Manifest, wanted: Scheduled) -> list[str]:
    meta = pool["metadata"]
    command = ["daybook", "spark", wanted.job, "--master", MASTER]
    if wanted.job != "audit":  # it reads the whole cluster
        command += ["--pool", pool_in_cluster(meta["namespace"], meta["name"])]
    if wanted.job in _OF_TOPICS:
        command += ["--schedule", wanted.timing]
    for place in wanted.places:
        command += ["--files-below", place.replace("$", "$$")]  # kubelets fill in what is in `$(…)`
    return [*command, "--termination-log", TERMINATION_LOG]


def _spark_settings(pool: Manifest, spec: PoolSpec, defaults: PoolDefaults) -> dict[str, str]:
    """Kubelets fill in what is in `$(…)`. `spark.driver.bindAddress` stays that host: executors would dial another one."""
    driver, executors = spec.jobs.driver, spec.jobs.executors
    return {
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.memory": _heap(driver),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.instances": str(executors.count),
        "spark.executor.memory": _heap(executors),
        "spark.executor.memoryOverhead": f"{executors.rest_mib}m",
        "spark.kubernetes.container.image": image_of(spec, defaults),
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.executor.request.cores": executors.cpu,
        "spark.kubernetes.namespace": pool["metadata"]["namespace"],
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _heap(pod: SparkPodSpec) -> str:
    return f"{pod.heap_mib}m"


def _pod(spec: PoolSpec, tls: TlsSpec | None, container: dict[str, Any]) -> dict[str, Any]:
    """What the pods of driver and executors share."""
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if tls is not None:
        volumes.append(tls_volume(tls.secret_name))
    extra = spec.pod_template
    return with_set(
        {
            "enableServiceLinks": False,
            "securityContext": pod_security(),
            "containers": [container],
            "volumes": [*volumes, *spec.zookeeper_access.volumes()],
        },
        {
            "imagePullSecrets": [dict(each) for each in spec.image_pull_secrets],
            "nodeSelector": dict(extra.node_selector),
            "tolerations": [dict(each) for each in extra.tolerations],
            "priorityClassName": extra.priority_class_name,
        },
    )


def _container(spec: PoolSpec, ref: ClusterRef, tls: TlsSpec | None) -> dict[str, Any]:
    """What the containers of driver and executors share: where the cluster is, and what lets them in."""
    jobs = spec.jobs
    variables = {
        "DAYBOOK_ZOOKEEPER": ref.zookeeper,
        "DAYBOOK_CLUSTER": ref.cluster,
        "DAYBOOK_LOG_LEVEL": "INFO",
    }
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the container's own
    if tls is not None:
        files = tls_files(with_certificate=tls.authenticates_clients, with_ca=True)
        variables |= {f"DAYBOOK_{name}": path for name, path in sorted(files.items())}
        mounts.append(tls_mount())
    secrets = {"DAYBOOK_TOKEN": jobs.broker_token_secret_ref, "DAYBOOK_PASSWORD": jobs.password_secret_ref}
    env: list[dict[str, Any]] = [
        *({"name": name, "value": value} for name, value in variables.items()),
        *(
            {"name": name, "valueFrom": {"secretKeyRef": found.model_dump()}}
            for name, found in secrets.items()
            if found is not None
        ),
        *spec.zookeeper_access.variables(OF_COMMANDS),
    ]
    credentials = jobs.credentials_secret_name
    return {
        "env": env,
        **({} if credentials is None else {"envFrom": [{"secretRef": {"name": credentials}}]}),
        "workingDir": "/tmp",  # noqa: S108 - the container's own; Spark puts its warehouse there, and the root is read-only
        "volumeMounts": [*mounts, *spec.zookeeper_access.mounts()],
        "securityContext": container_security(),
    }
