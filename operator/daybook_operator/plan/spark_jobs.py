"""What pools and Topics know of jobs on Spark: what a pool's spec says, how a CronJob is called, how its last runs ended.

Compaction and offload have their schedules in Topics. The ServiceAccount of drivers is no field: it may create pods, so whoever installs
the chart says in which namespaces there is one.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from daybook_operator.plan.quantities import amount_of, bytes_of
from daybook_operator.plan.spec_part import SpecPart

JobOfTopics = Literal["compaction", "offload"]
JobName = Literal["retention", "audit", "compaction", "offload"]
_MIB: Final = 2**20
_TEXT_MAX: Final = 1024
_PREFIX_MAX: Final = 30
"""Of a pool's name: with the rest a CronJob's name has at most the 52 characters that Kubernetes allows."""


class PoolJobSpec(SpecPart):
    """A job of the whole pool. A rule of the CRD, which says what to write, asks for the schedule."""

    schedule: str = ""
    time_zone: str = "Etc/UTC"
    suspend: bool = False


class RetentionSpec(PoolJobSpec):
    """The retention of a pool. `files_below`: places of which no topic is left that names them."""

    files_below: tuple[str, ...] = ()


class SparkPodSpec(SpecPart):
    """What a pod of Spark gets."""

    cpu: str
    memory: str = "2Gi"

    @property
    def cores(self) -> int:
        """Whole processors, rounded up: as many tasks run at a time. Raises ValueError."""
        return max(1, math.ceil(amount_of(self.cpu)))

    @property
    def heap_mib(self) -> int:
        """Of Java: half of the memory. Raises ValueError."""
        return max(1, bytes_of(self.memory) // 2 // _MIB)

    @property
    def rest_mib(self) -> int:
        """Of Python, and of Java beside its heap. Raises ValueError."""
        return max(1, bytes_of(self.memory) // _MIB - self.heap_mib)


class DriverSpec(SparkPodSpec):
    """The pod of a Job."""

    cpu: str = "500m"


class ExecutorsSpec(SparkPodSpec):
    """The pods that a driver starts."""

    count: int = 2
    cpu: str = "1"


class BrokerTokenRef(SpecPart):
    """Where the token for brokers is."""

    name: str
    key: str = "token"


class PasswordRef(SpecPart):
    """Where the password of ledgers is."""

    name: str
    key: str = "password"


class JobsSpec(SpecPart):
    """`spec.jobs` of a pool. `image` None: the operator's setting."""

    image: str | None = None
    suspend: bool = False
    retention: RetentionSpec | None = None
    audit: PoolJobSpec | None = None
    driver: DriverSpec = DriverSpec()
    executors: ExecutorsSpec = ExecutorsSpec()
    broker_token_secret_ref: BrokerTokenRef | None = None
    password_secret_ref: PasswordRef | None = None
    credentials_secret_name: str | None = None
    active_deadline_seconds: int = 21_600
    backoff_limit: int = 1
    successful_jobs_history_limit: int = 1
    failed_jobs_history_limit: int = 3


def cron_job_of_topics(pool: str, job: JobOfTopics, schedule: str, time_zone: str) -> str:
    """The name of the CronJob for all topics of the pool that name this timing."""
    digest = hashlib.sha256(f"{pool} {job} {schedule} {time_zone}".encode()).hexdigest()
    return f"{pool[:_PREFIX_MAX].rstrip('-')}-{job}-{digest[:8]}"


@dataclass(frozen=True, slots=True)
class Run:
    """The last run of a CronJob that ended. `message` is what its driver said last; times in ms since 1970.

    `created_ms` is when its Job was made, before its driver began with any topic.
    """

    job: str
    created_ms: int
    ended_ms: int
    succeeded: bool
    message: str = ""

    @property
    def said(self) -> str:
        """The message as a sentence, or where to find it. Jobs leave JSON, with an error or with some of the topics that failed.

        All else is the end of a log, whose last lines say most.
        """
        record = _record_in(self.message)
        text = self.message[-_TEXT_MAX:] if record is None else _sentence(record, self.message)[:_TEXT_MAX]
        return text or f"its pod left no message: kubectl logs job/{self.job}"

    @property
    def came_to_all_topics(self) -> bool:
        """Whether it left a result at each of its topics: its message counts them then, and names no error of the whole run."""
        record = _record_in(self.message) or {}
        return record.keys() >= {"topics", "failed"} and "error" not in record


@dataclass(frozen=True, slots=True)
class JobsReport:
    """By the names of CronJobs: last runs, and why one cannot be made or its Job does not start."""

    runs: Mapping[str, Run] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def _record_in(message: str) -> Mapping[str, Any] | None:
    """What a job left as a JSON object; None: the message is something else."""
    try:
        found = json.loads(message)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _sentence(record: Mapping[str, Any], message: str) -> str:
    if error := record.get("error"):
        return str(error)
    try:
        failed = [f"{each['topic']}: {each['message']}" for each in record["failures"]]
        return f"{record['failed']} of {record['topics']} topics failed, such as {failed[0]}"
    except (LookupError, TypeError):
        return message
