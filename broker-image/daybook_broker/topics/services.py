"""What all topics of a broker share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from daybook.client.client import Client
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.settings import BrokerSettings
from daybook_broker.topics.ledger_reads import LedgerReads
from daybook_broker.topics.turn import TurnEnd
from daybook_broker.totals import Totals


class Holding(Protocol):
    """What holds receipts until the broker is certain to own what it owned."""

    def release_receipts(self) -> bool:
        """Send them if it is; whether none is left."""


@dataclass(frozen=True, slots=True)
class TopicServices:
    """One for a broker."""

    settings: BrokerSettings
    client: Client
    topics: TopicManager
    policies: PolicyManager
    metrics: BrokerMetrics
    reads: LedgerReads
    is_certain: Callable[[], bool]
    """Whether the broker certainly owns what it owned a moment ago (rule 46)."""
    holding: set[Holding] = field(default_factory=set)
    turn_end: TurnEnd = field(default_factory=TurnEnd)

    @property
    def totals(self) -> Totals:
        """What is counted for each entry."""
        return self.metrics.totals
