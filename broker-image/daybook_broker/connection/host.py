"""What connections need of their broker."""

from typing import Protocol

from daybook.core.topics.name import TopicName
from daybook.metadata.brokers import BrokerInfo
from daybook_broker.auth.access import Access
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.ownership.api import LookupResult
from daybook_broker.settings import BrokerSettings
from daybook_broker.topics.registry import TopicRegistry
from daybook_broker.topics.topic_lists import TopicLists
from daybook_broker.topics.upkeep import Upkeep


class Owning(Protocol):
    """Who owns which topics."""

    @property
    def info(self) -> BrokerInfo:
        """This broker, as it is registered."""

    async def lookup(self, topic: TopicName, *, authoritative: bool = False) -> LookupResult:
        """Who owns a topic; held with a bound while nobody knows."""


class Host(Protocol):
    """The broker, as its connections know it."""

    settings: BrokerSettings
    metrics: BrokerMetrics
    registry: TopicRegistry
    access: Access
    topic_lists: TopicLists
    upkeep: Upkeep

    @property
    def ownership(self) -> Owning:
        """Who owns which topics."""

    def new_producer_name(self) -> str:
        """A name that no other producer of the cluster has, or had."""

    async def partitions_of(self, name: TopicName, *, create: bool) -> int:
        """How many partitions a topic has, 0 for none. Raises NoSuchTopicError unless the topic may be created."""

    async def topics_of(self, tenant: str, namespace: str) -> list[TopicName]:
        """The topics of a namespace, in order; a partitioned one with its partitions. Raises NoSuchTopicError."""
