"""The durable cursor of a query: a subscription of each topic, which the topic's owner moves when a batch is committed.

Only then: Spark reads a batch again that was not committed, so what the cursor passes must be done. Retention waits for the slowest
subscription, and so for the query. The consumers receive no messages: their queue has no room, and permits are granted by receiving alone.
"""

from typing import Any

from daybook.core.errors import DaybookError
from daybook.core.topics.ledger_list import Position
from daybook_spark.brokers import client_options
from daybook_spark.options import Where


class CursorError(DaybookError):
    """A subscription that cannot be used, or not be moved."""


class DurableCursor:
    """The subscription of a query, on all its topics."""

    def __init__(self, where: Where, service_url: str, subscription: str) -> None:
        """Connect to the brokers."""
        import pulsar

        self._subscription = subscription
        self._client = pulsar.Client(
            service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **client_options(where)
        )
        self._consumers: dict[str, Any] = {}

    def hold(self, topic: str) -> None:
        """Have the subscription, from the topic's first entry on if it is new; nothing is done for one that this query has. Raises CursorError."""
        self._consumer(topic)

    def move(self, topic: str, last: Position) -> None:
        """Acknowledge everything up to and with `last`. Raises CursorError."""
        import pulsar

        try:
            self._consumer(topic).acknowledge_cumulative(pulsar.MessageId(-1, *last, -1))
        except pulsar.PulsarException as error:
            msg = f"the subscription {self._subscription!r} of {topic} is not moved to {last}: {error}"
            raise CursorError(msg) from error

    def close(self) -> None:
        """End the consumers; what they have acknowledged is sent before."""
        for consumer in self._consumers.values():
            consumer.close()
        self._client.close()

    def _consumer(self, topic: str) -> Any:
        import pulsar

        if topic not in self._consumers:
            try:
                self._consumers[topic] = self._client.subscribe(
                    topic,
                    self._subscription,
                    consumer_type=pulsar.ConsumerType.Exclusive,
                    initial_position=pulsar.InitialPosition.Earliest,
                    receiver_queue_size=0,
                )
            except pulsar.PulsarException as error:
                msg = (
                    f"the subscription {self._subscription!r} of {topic} cannot be used: {error}; a subscription belongs to one "
                    "query, without other consumers"
                )
                raise CursorError(msg) from error
        return self._consumers[topic]
