"""What tests of the data source share: topics with messages, and entries that producers might have sent."""

import uuid

import pulsar
from daybook_spark.plan.existing import TopicPart, extent_of

import daybook
from daybook.core.topics.ledger_list import Position
from daybook.core.topics.name import TopicName


def new_topic() -> str:
    """A topic that no other test uses."""
    return f"persistent://public/default/{uuid.uuid4().hex}"


def send(client: pulsar.Client, topic: str, values: list[bytes], **options: object) -> pulsar.MessageId:
    """Send messages, each an entry of its own unless `batching_enabled`; the id of the last one."""
    producer = client.create_producer(topic, **{"batching_enabled": False, **options})
    for value in values[:-1]:
        producer.send_async(value, lambda *_: None)
    last = producer.send(values[-1])
    producer.close()
    return last


async def readable(client: daybook.Client, topic: str, last: pulsar.MessageId) -> None:
    """Wait until everybody may read up to a message: the LAC of an idle ledger follows its last entry a moment later (rule 48)."""
    name = TopicName.parse(topic)
    position = Position(last.ledger_id(), last.entry_id())
    while not (await extent_of(client, TopicPart(name, topic))).contains(position):
        pass
