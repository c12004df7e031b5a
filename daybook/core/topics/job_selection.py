"""Which topics a job takes: those that a person names, those of namespaces, or those whose policies name a pool and a schedule.

A job of a schedule takes all topics of a pool that name it, because a JVM for each topic would not scale. The policy says it in its
stored form: `{"compaction": {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin"}}` is on the schedule `0 3 * * * Europe/Berlin` of
the job `compaction`. The texts of two schedules are compared, not what they mean.

A topic that a broker made for its first client, and a ledger from before its topic had a pool, name no pool, so no pool's job would ever reach
them. A job may take them with every pool (`with_poolless`). Two pools' runs may then have the same topic at a time. That does no harm where
the owner alone changes the list (rule 38) and what goes is judged again after a `sync` (rule 71): the second run finds it done.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daybook.core.errors import PolicyError
from daybook.core.ids import check_pool
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import Policy, PolicyLayer, applied

UTC: Final = "Etc/UTC"
_WORDS: Final = {True: 1, False: 5}
"""The words of a schedule, before its time zone: `@daily`, or the five fields of a cron line."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a job is asked to take; all topics of the cluster if nothing is set. Raises PolicyError for what does not go together."""

    topics: tuple[TopicName, ...] = ()
    namespaces: tuple[tuple[str, str], ...] = ()
    """Tenant and namespace."""
    pool: str = ""
    schedule: str = ""
    """Of a pool's topics only those that name it for this job, with its time zone behind it; "": all topics of the pool."""
    with_poolless: bool = False
    """With a pool: also what names none."""

    def __post_init__(self) -> None:
        """Check what goes together."""
        if sum(map(bool, (self.topics, self.namespaces, self.pool))) > 1:
            msg = "which topics? Name topics, or namespaces, or a pool, and not several of these"
            raise PolicyError(msg)
        if self.schedule and not self.pool:
            msg = f"schedule={self.schedule[:200]!r}: a schedule is that of a pool's topics, so name the pool, too"
            raise PolicyError(msg)
        try:
            check_pool(self.pool or "any")
        except ValueError as error:
            msg = f"pool={error}"
            raise PolicyError(msg) from error

    def covers(self, topic: TopicName) -> bool:
        """Whether the name of the topic is not against it; policies decide where a pool is named."""
        if self.topics:
            return topic in self.topics
        return not self.namespaces or (topic.tenant, topic.namespace) in self.namespaces

    def takes(self, job: str, topic: TopicName, namespace: PolicyLayer, own: PolicyLayer) -> bool:
        """Whether `job` takes a topic, by what is set for its namespace and for itself. Raises PolicyError for a value that is wrong in itself."""
        if not self.covers(topic):
            return False
        if not self.pool:
            return True
        if not self.takes_pool(applied(Policy(), namespace, own).policy.pool):
            return False
        return not self.schedule or schedule_of(job, own) == _with_zone(self.schedule)

    def takes_pool(self, pool: str) -> bool:
        """Whether what stays in `pool` is asked for; "": in none."""
        return not self.pool or pool == self.pool or (self.with_poolless and not pool)


def schedule_of(job: str, policy: PolicyLayer) -> str | None:
    """The schedule that a topic's policy names for `job`, with its time zone; None: it names none."""
    terms: Any = policy.to_record().get(job)
    if not isinstance(terms, Mapping) or not isinstance(terms.get("schedule"), str):
        return None
    return _with_zone(f"{terms['schedule']} {terms.get('timeZone', '')}")


def _with_zone(schedule: str) -> str:
    """The schedule with one space between its words, and with UTC where it has no time zone."""
    words = schedule.split()
    if len(words) <= _WORDS[schedule.lstrip().startswith("@")]:
        words.append(UTC)
    return " ".join(words)
