"""What clients give to their producers, consumers and subscriptions for people has a bound, since the broker keeps it."""

from typing import Any

import pytest
from daybook_broker.connection.properties import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, properties_of
from daybook_broker.errors import NotAllowedError

from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSubscribe, KeyValue, ServerError
from tests.unit.broker.kit import FrameClient, frame_client, new_topic, running_broker

LARGEST = [KeyValue(key="k" * (PROPERTIES_BYTES_MAX // 2), value="é" * (PROPERTIES_BYTES_MAX // 4))]
LONGER = [*LARGEST, KeyValue(key="", value="x")]
MOST = [KeyValue(key=str(number), value="") for number in range(PROPERTIES_MAX)]
MORE = [*MOST, KeyValue(key="", value="")]


def test_properties_are_kept_in_their_order_up_to_the_bounds() -> None:
    given = [KeyValue(key="b", value="1"), KeyValue(key="a", value="")]
    assert properties_of("a producer", given) == (("b", "1"), ("a", ""))
    assert properties_of("a producer", []) == ()
    assert len(properties_of("a producer", LARGEST)) == 1
    assert len(properties_of("a producer", MOST)) == PROPERTIES_MAX


@pytest.mark.parametrize(
    ("given", "what"), [(LONGER, "2 properties with 16385 bytes"), (MORE, "257 properties")]
)
def test_properties_beyond_a_bound_are_refused_with_the_values(given: list[KeyValue], what: str) -> None:
    with pytest.raises(NotAllowedError, match=f"a consumer has {what}.*at most 256 with 16384 are allowed"):
        properties_of("a consumer", given)


async def subscribe(client: FrameClient, topic: str, **fields: Any) -> BaseCommand:
    wish = CommandSubscribe(
        topic=topic,
        subscription="s",
        subType=CommandSubscribe.Shared,
        consumer_id=1,
        request_id=1,
        **fields,
    )
    return await client.ask(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=wish))


@pytest.mark.integration
async def test_a_client_with_too_much_metadata_is_refused_and_makes_no_topic(cluster: LocalCluster) -> None:
    topic = new_topic()
    async with running_broker(cluster) as broker, frame_client(broker) as client:
        for given in (LONGER, MORE):
            for refused in (
                await client.produce(topic, metadata=given),
                await subscribe(client, topic, metadata=given),
                await subscribe(client, topic, subscription_properties=given),
            ):
                assert refused.error.error == ServerError.NotAllowedError
                assert "choose fewer or shorter ones" in refused.error.message
        missing = await subscribe(client, topic, force_topic_creation=False)
        assert missing.error.error == ServerError.TopicNotFound
        # the metadata of a consumer is not that of the subscription: each has the whole bound
        largest = await subscribe(client, topic, metadata=LARGEST, subscription_properties=LARGEST)
        assert largest.type == BaseCommand.SUCCESS
        assert (await client.produce(topic, metadata=MOST)).type == BaseCommand.PRODUCER_SUCCESS
