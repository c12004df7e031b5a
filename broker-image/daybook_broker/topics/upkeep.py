"""What a broker does for its topics now and then: trimming, expiry, backlog quotas, and the deletion of topics that nobody uses.

A cycle is spread over its interval, a few topics at a time: those of a broker of thousands would otherwise take seconds of its one thread at
once, while entries wait. What these few read of the metadata goes to ZooKeeper in one request. What fails for one topic is logged and
tried again in the next cycle.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Final
from weakref import WeakKeyDictionary

from daybook.client.client import Client
from daybook.core.errors import DaybookError, NoSuchTopicError
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.list_room import NEARLY_FULL_BYTES
from daybook.core.topics.name import TopicName
from daybook.core.topics.policy import UNLIMITED, BacklogAction, Degrade, Durability
from daybook.core.topics.trimming import retains
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.errors import QuotaExceededError, QuotaHeldError
from daybook_broker.topics.by_time import last_before
from daybook_broker.topics.deletion import delete_topic, users_of
from daybook_broker.topics.registry import TopicRegistry
from daybook_broker.topics.subscription import Subscription
from daybook_broker.topics.topic import Topic

log = get_logger(__name__)

TOGETHER: Final = 32
"""How many topics are kept up at a time."""
LIST_WARNING_MS: Final = 3_600_000
"""How often the log names a topic whose list of ledgers is nearly full."""
POLICY_AGE_MS: Final = 500
"""What is set for a topic is read again for a producer that comes, unless it was read in this time."""
POLICY_WAIT_S: Final = 1.0
"""How long a producer waits for that while ZooKeeper does not answer."""
EVICT_TO: Final = 0.9
"""An eviction leaves this share of the quota, so that the next message does not cause the next one."""


class Upkeep:
    """The cycles of one broker."""

    def __init__(self, registry: TopicRegistry, client: Client, topics: TopicManager) -> None:
        self._registry = registry
        self._client = client
        self._topics = topics
        self.backlog_entries = 0
        """Entries that durable subscriptions have not acknowledged, of all topics, when they were last counted."""
        self.topics_over_quota = 0
        self.topics_degraded = 0
        self.largest_list_bytes = 0
        """Of the topics' lists of ledgers; 0 while all have fewer than MEASURED_LEDGERS."""
        self._unused_since_ms: WeakKeyDictionary[Topic, int] = WeakKeyDictionary()
        """When a check found a topic unused first. One that is taken over again, or created anew, is another one."""
        self._nearly_full: dict[TopicName, int] = {}
        """The topics whose lists are nearly full, and when the log named them last."""

    async def run(self) -> None:
        """Keep the topics up until the broker ends."""
        settings = self._registry.services.settings
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(settings.trim_interval_ms, self.trim))
            group.create_task(self._repeat(settings.trim_interval_ms, self.give_replicas_up))
            group.create_task(self._repeat(settings.ttl_interval_ms, self.expire))
            group.create_task(self._repeat(settings.quota_interval_ms, self.check_quota))
            group.create_task(self._repeat(settings.quota_interval_ms, self.delete_unused))
            group.create_task(self._count(settings.quota_interval_ms))

    async def _repeat(self, interval_ms: int, work: Callable[[Topic], Awaitable[None]]) -> None:
        await asyncio.sleep(interval_ms / 1000)
        while True:
            topics = self._registry.served()
            # without topics one empty group, after which the cycle waits all the same
            firsts = range(0, len(topics) or 1, TOGETHER)
            for first in firsts:
                group = topics[first : first + TOGETHER]
                await asyncio.gather(*(self._keep_up(topic, work) for topic in group))
                await asyncio.sleep(interval_ms / 1000 / len(firsts))

    async def _keep_up(self, topic: Topic, work: Callable[[Topic], Awaitable[None]]) -> None:
        try:
            if not topic.is_closing:
                await work(topic)
        except DaybookError as error:
            log.warning(
                "the upkeep of a topic failed; it is tried again", topic=str(topic.name), why=str(error)
            )
        except Exception as error:
            log.error("the upkeep of a topic failed after an error of the broker", exc_info=error)

    async def _count(self, pause_ms: int) -> None:
        """For the metrics. A turn of the event loop for each topic: they may be many."""
        while True:
            await asyncio.sleep(pause_ms / 1000)
            entries = over = degraded = largest = 0
            held = dict.fromkeys(product(Durability, Degrade), 0)
            nearly_full: dict[TopicName, int] = {}
            for topic in self._registry.served():
                entries += sum(each.acks.unacked_entries() for each in _stored(topic))
                over += topic.refusal is not None
                degraded += topic.is_degraded
                held[topic.durability] += 1
                largest = max(largest, topic.list_bytes)
                if topic.list_bytes >= NEARLY_FULL_BYTES:
                    nearly_full[topic.name] = self._warn_of_list(topic)
                await asyncio.sleep(0)
            self.backlog_entries, self.topics_over_quota, self.topics_degraded = entries, over, degraded
            self.largest_list_bytes, self._nearly_full = largest, nearly_full
            for (durability, degrade), topics in held.items():
                gauge = self._registry.services.metrics.topics
                gauge.labels(durability=durability.value, degrade=degrade.value).set(topics)

    def _warn_of_list(self, topic: Topic) -> int:
        """Name the topic in the log, again after LIST_WARNING_MS; when it was named last."""
        now_ms = monotonic_ms()
        named_ms = self._nearly_full.get(topic.name)
        if named_ms is not None and now_ms - named_ms < LIST_WARNING_MS:
            return named_ms
        log.warning(
            "a topic's list of ledgers is nearly full", topic=str(topic.name), size_bytes=topic.list_bytes
        )
        return now_ms

    async def trim(self, topic: Topic) -> None:
        """Read what is set for the topic, and drop what nobody needs (rule 51)."""
        await topic.read_policy()
        topic.trim()

    async def give_replicas_up(self, topic: Topic) -> None:
        """Delete the replicas of ledgers whose files are the only copy from now on (rule 70)."""
        await topic.offloads.give_replicas_up()

    async def expire(self, topic: Topic) -> None:
        """Take what is older than the TTL as acknowledged, in every subscription."""
        ttl_ms = topic.policy.ttl_ms
        behind = [each for each in _stored(topic) if each.acks.unacked_entries()]
        if not ttl_ms or not behind:
            return
        expired = await last_before(topic.extent, topic.reads, unix_ms() - ttl_ms)
        for subscription in behind:
            subscription.expire_through(expired)

    async def judge_quota(self, topic: Topic) -> None:
        """Check the quota by what is set now: somebody comes to publish, and the next cycle may be minutes away.

        What was read last holds where it cannot be read now.
        """
        try:
            async with asyncio.timeout(POLICY_WAIT_S):
                await topic.read_policy(older_than_ms=POLICY_AGE_MS)
        except (DaybookError, TimeoutError) as error:
            log.info("what is set for a topic cannot be read now", topic=str(topic.name), why=str(error))
        await self.check_quota(topic)

    async def check_quota(self, topic: Topic) -> None:
        """Hold producers off, refuse them, or evict the oldest messages, while the backlog is over its quota."""
        action = topic.policy.backlog_action
        over = await self._over_quota(topic)
        if over and action is BacklogAction.EVICT:
            await self._evict(topic)
            return
        was, topic.refusal = topic.refusal, None
        if over:
            msg = (
                f"the backlog of topic {topic.name} is over its quota: {over}; consume it, or raise the quota"
            )
            topic.refusal = QuotaHeldError(msg) if action is BacklogAction.HOLD else QuotaExceededError(msg)
            if was is None:
                log.warning("a topic's backlog is over its quota", topic=str(topic.name), what=over)
            topic.close_producers()

    async def _over_quota(self, topic: Topic) -> str:
        """What is too much, in words; empty if nothing is."""
        policy = topic.policy
        if policy.backlog_bytes != UNLIMITED:
            size_bytes = max(
                [backlog_bytes(topic, each.acks.mark_delete) for each in _stored(topic)], default=0
            )
            if size_bytes > policy.backlog_bytes:
                return f"{size_bytes} bytes of {policy.backlog_bytes}"
        behind = [each for each in _stored(topic) if each.acks.unacked_entries()]
        if policy.backlog_ms != UNLIMITED and behind:
            old = await last_before(topic.extent, topic.reads, unix_ms() - policy.backlog_ms)
            if any(topic.extent.count(each.acks.mark_delete, old) for each in behind):
                return f"messages that are older than {policy.backlog_ms} ms"
        return ""

    async def _evict(self, topic: Topic) -> None:
        policy = topic.policy
        old = topic.extent.before(topic.extent.first)
        if policy.backlog_ms != UNLIMITED:
            old = await last_before(topic.extent, topic.reads, unix_ms() - policy.backlog_ms)
        for subscription in _stored(topic):
            mark = subscription.acks.mark_delete
            evicted = old
            size_bytes = backlog_bytes(topic, mark)
            if policy.backlog_bytes != UNLIMITED and size_bytes > policy.backlog_bytes:
                share = 1 - EVICT_TO * policy.backlog_bytes / size_bytes
                count = 1 + int(share * topic.extent.count(mark))
                evicted = max(old, topic.extent.nth_after(mark, count))
            if subscription.expire_through(evicted):
                log.warning(
                    "messages were evicted",
                    topic=str(topic.name),
                    subscription=subscription.name,
                    through=str(evicted),
                )

    async def delete_unused(self, topic: Topic) -> None:
        """Delete a topic that had no client and no subscription for long enough; one stays while its retention keeps messages."""
        inactive_ms = topic.policy.inactive_ms
        if not inactive_ms or any(users_of(topic).values()):
            self._unused_since_ms.pop(topic, None)
            return
        found_ms = self._unused_since_ms.setdefault(topic, monotonic_ms())
        since_ms = max(found_ms, topic.producers.last_left_ms, topic.subscriptions.last_left_ms)
        if monotonic_ms() - since_ms >= inactive_ms and not _is_retained(topic):
            log.info("a topic that nobody uses is deleted", topic=str(topic.name), unused_ms=inactive_ms)
            try:
                await delete_topic(topic.name, self._registry, self._client, self._topics)
            except NoSuchTopicError:
                log.info("the topic was deleted before", topic=str(topic.name))


def _stored(topic: Topic) -> Sequence[Subscription]:
    """The subscriptions that hold messages back."""
    return [each for each in topic.subscriptions.all() if each.is_durable]


def _is_retained(topic: Topic) -> bool:
    """Whether the topic's retention keeps messages although nobody needs them."""
    return retains(topic.ledger_list, topic.extent.last_confirmed, topic.policy.retention, unix_ms())


def backlog_bytes(topic: Topic, mark: Position) -> int:
    """About how many bytes lie behind `mark`: within a ledger all entries count as equally large."""
    confirmed = topic.extent.last_confirmed
    return bytes_behind(topic.ledger_list, topic.open_bytes, confirmed, mark)


def bytes_behind(ledger_list: LedgerList, open_bytes: int, confirmed: Position, mark: Position) -> int:
    """The same of a list whose open ledger has `open_bytes`, up to the entry `confirmed`."""
    size_bytes = 0.0
    for ledger in ledger_list.ledgers:
        entries, ledger_bytes = ledger.entries, ledger.size_bytes
        if ledger.is_open:
            entries = confirmed.entry_id + 1 if confirmed.ledger_id == ledger.ledger_id else 0
            ledger_bytes = open_bytes
        if mark.ledger_id > ledger.ledger_id or not entries:
            continue
        passed = min(mark.entry_id + 1, entries) if mark.ledger_id == ledger.ledger_id else 0
        size_bytes += ledger_bytes * (entries - passed) / entries
    return int(size_bytes)
