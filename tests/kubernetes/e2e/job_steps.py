"""The steps of `make e2e` in which Spark runs on the cluster: a compaction, an offload and a retention by their CronJobs, each with two
executors of which one is deleted on the way, while a subscription reads on.
"""

import json
import time
from collections.abc import Callable
from typing import Any, Final

import yaml

from tests.fixtures.object_store import KEY, REGION
from tests.kubernetes.e2e.broker_steps import upgrade
from tests.kubernetes.e2e.bucket import BUCKET
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.topic_steps import expect, message_companion
from tests.kubernetes.e2e.world import (
    BROKER,
    NAMESPACE,
    POOL,
    SERVICE_URL,
    Companion,
    NotYet,
    World,
)
from tests.paths import ROOT

JOB_S: Final = 300.0
EXECUTORS: Final = 2
NEVER: Final = "0 0 29 2 *"
"""A schedule that does not come during a run: the step makes the Jobs of it."""
SMALL: Final = {"cpu": "100m", "memory": "1Gi"}
PARTITIONS: Final = 4
IDLE: Final = "persistent://public/default/visits"


def spark_jobs(world: World) -> str:
    """The example of a topic with schedules, with an S3 of its own; each job ends well, and its result is in the Topic's status."""
    with Companion(world.cluster, "bucket") as bucket:
        _prepare(world, str(bucket.greeting))
        with Companion(world.cluster, "accounts", SERVICE_URL) as accounts:
            expect(accounts, "write")
            took = {"compaction": _compact(world, accounts)}
            expect(accounts, "write")
            took["offload"] = _offload(world, accounts, bucket)
            took["retention"], trimmed = _retain(world, accounts)
            expect(accounts, "followed")
        objects = bucket.ask("count")
    world.kubectl("delete", "topic/accounts", "topic/visits", "--timeout=60s")
    times = ", ".join(f"{job} {seconds:.0f} s" for job, seconds in took.items())
    return (
        f"{times}, each with {EXECUTORS} executors, of which one was deleted; {objects} objects in the bucket, "
        f"{trimmed} ledgers of an idle topic trimmed"
    )


def _prepare(world: World, endpoint: str) -> None:
    """What the example's comment says: a Secret, the chart's values, the pool's jobs, the Topic."""
    secret = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    _apply(
        world, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bucket"}, "stringData": secret}
    )
    upgrade(
        world,
        "--set",
        f"jobs.namespaces={{{NAMESPACE}}}",
        "--set",
        "broker.credentialsSecretName=bucket",
        "--set-string",
        "broker.settings.trim_interval_ms=2000",
    )
    jobs = {
        "credentialsSecretName": "bucket",
        "driver": SMALL,
        "executors": {**SMALL, "count": EXECUTORS},
        "retention": {"schedule": NEVER},
    }
    _patch(world, f"bookiepool/{POOL}", {"jobs": jobs})
    topic = yaml.safe_load((ROOT / "examples" / "compacted-topic.yaml").read_text(encoding="utf-8"))
    topic["spec"]["compaction"]["schedule"] = topic["spec"]["offload"]["schedule"] = NEVER
    place = f"s3://{BUCKET}/accounts?region={REGION}&scheme=http&endpoint_override={endpoint}"
    topic["spec"]["offload"] |= {"to": place, "lagSeconds": 0}
    _apply(world, topic)
    world.kubectl("wait", "--for=condition=Ready", "topic/accounts", "--timeout=60s")


def _compact(world: World, accounts: Companion) -> float:
    seconds = _run(world, _cron_job(world, "compaction"))
    _recorded(world, "compaction")
    expect(accounts, "latest")
    return seconds


def _offload(world: World, accounts: Companion, bucket: Companion) -> float:
    """Offload takes closed ledgers, and an unload closes those that are open. Readers get everything when only the bucket has it."""
    for number in range(PARTITIONS):
        name = f"persistent://public/default/accounts-partition-{number}"
        owner = world.daybook_json("topic", "owner", name)[0]["pod"]
        (other,) = {f"{BROKER}-0", f"{BROKER}-1"} - {owner}
        world.daybook("topic", "unload", name, "--to", other)
    seconds = _run(world, _cron_job(world, "offload"))
    _recorded(world, "offload")
    if not bucket.ask("count"):
        raise StepError("the offload succeeded, and the bucket is empty")
    expect(accounts, "all")
    return seconds


def _retain(world: World, accounts: Companion) -> tuple[float, int]:
    """An idle topic is past its retention, which its owner does not see: the job's seconds, and how many ledgers it had trimmed."""
    topic = yaml.safe_load((ROOT / "examples" / "retained-topic.yaml").read_text(encoding="utf-8"))
    topic["metadata"]["name"] = "visits"
    _apply(world, topic)
    world.kubectl("wait", "--for=condition=Ready", "topic/visits", "--timeout=60s")
    with message_companion(world) as messages:
        expect(messages, f"write {IDLE}")
        world.daybook("topic", "unload", IDLE)
        past = set(messages.ask(f"ledgers {IDLE}"))
        _patch(world, "topic/visits", {"retention": {"policy": "Limit", "timeSeconds": 1}})
        world.until("the policy of visits is the new one", lambda: _is_carried_out(world, "visits"), JOB_S)
        if set(messages.ask(f"ledgers {IDLE}")) != past:
            raise StepError(f"the ledgers {past} of the idle topic did not wait for the job")
        seconds = _run(world, f"{POOL}-retention", meanwhile=lambda: expect(accounts, "write"))
        world.until("RetentionHealthy says so", lambda: _retention(world), JOB_S)
        if left := past & set(messages.ask(f"ledgers {IDLE}")):
            raise StepError(f"the retention succeeded, and the ledgers {left} of {IDLE} are there")
    return seconds, len(past)


def _is_carried_out(world: World, topic: str) -> bool:
    found = world.get(f"topic/{topic}")
    return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])


def _run(world: World, cron_job: str, *, meanwhile: Callable[[], None] = lambda: None) -> float:
    """Make a Job of the CronJob, and delete one of its executors; seconds until it ended well. Raises StepError."""
    name = f"{cron_job}-now"
    began = time.monotonic()
    world.kubectl("create", "job", name, f"--from=cronjob/{cron_job}")
    world.until(
        f"{name} has {EXECUTORS} executors",
        lambda: _has_failed(world, name) or len(_executors(world)) == EXECUTORS,
        JOB_S,
    )
    if not _has_failed(world, name):
        world.check_code(f"job/{name}", "daybook", "daybook_spark")
    for pod in _executors(world)[:1]:
        world.kubectl("delete", f"pod/{pod}", "--force", "--grace-period=0")
    meanwhile()
    world.until(
        f"{name} has ended",
        lambda: _has_failed(world, name) or world.get(f"job/{name}")["status"].get("succeeded") == 1,
        JOB_S,
    )
    if _has_failed(world, name):
        raise StepError(f"{name} failed:\n{world.kubectl('logs', f'job/{name}', '--tail=80')}")
    seconds = time.monotonic() - began
    world.until("its executors are gone", lambda: not _executors(world), JOB_S)
    return seconds


def _executors(world: World) -> list[str]:
    """The names of those that run."""
    pods = world.get("pods", "-l", "spark-role=executor")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]


def _has_failed(world: World, job: str) -> bool:
    return bool(world.get(f"job/{job}")["status"].get("failed"))


def _cron_job(world: World, job: str) -> str:
    """The name of the only CronJob of this job."""
    found: list[str] = []

    def one() -> object:
        items = world.get("cronjobs", "-l", f"daybook.dev/job={job}")["items"]
        found[:] = [each["metadata"]["name"] for each in items]
        return len(found) == 1 or NotYet(found)

    world.until(f"there is a CronJob for {job}", one, JOB_S)
    return found[0]


def _recorded(world: World, job: str) -> None:
    """Return once the Topic's status shows that the job succeeded."""

    def shown() -> object:
        status = world.get("topic/accounts")["status"]
        runs = {each["name"]: each for each in status.get("jobs") or ()}
        healthy = {each["type"]: each["status"] for each in status["conditions"]}.get("JobsHealthy")
        return (job in runs and runs[job]["succeeded"] and healthy == "True") or NotYet(status)

    world.until(f"the Topic's status shows the {job}", shown, JOB_S)


def _retention(world: World) -> object:
    found = {each["type"]: each for each in world.pool()["status"]["conditions"]}.get("RetentionHealthy", {})
    return (found.get("status"), found.get("reason")) == ("True", "Succeeded") or NotYet(found)


def _apply(world: World, manifest: dict[str, Any]) -> None:
    world.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))


def _patch(world: World, what: str, spec: dict[str, Any]) -> None:
    world.kubectl("patch", what, "--type=merge", "-p", json.dumps({"spec": spec}))
