"""A topic's next ledger has as many bookies as can be placed: a lost node takes places with it, not only bookies (rule 45)."""

import pytest

from daybook.core.quorum import Quorum
from daybook.core.topics.policy import Degrade, Durability
from daybook.local.cluster import LocalCluster
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.unit.broker.kit import frame_client, new_topic, running_broker

pytestmark = pytest.mark.integration


async def test_rule_45_a_topic_is_served_while_only_some_of_its_bookies_can_be_placed(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(cluster) as broker:
        client = broker.client
        assert client.can_place(Quorum(3, 3, 2))
        assert not client.can_place(Quorum(30, 3, 2))
        assert not client.can_place(Quorum(2, 2, 2), "data.nobody")

        def on_two_nodes(quorum: Quorum, pool: str = "") -> bool:
            return quorum.ensemble_size <= 2 and not pool

        monkeypatch.setattr(client, "can_place", on_two_nodes)
        async with frame_client(broker) as producer:
            assert (await producer.produce(new_topic())).type == BaseCommand.PRODUCER_SUCCESS
            producer.publish(b"a", 0)
            assert (await producer.receive()).send_receipt.sequence_id == 0
        (topic,) = broker.registry.served()
        assert topic.is_degraded
        assert topic.durability == (Durability.SEMI_SYNC, Degrade.TO_ACK_QUORUM)
        assert topic.open_ledger is not None
        assert topic.open_ledger.metadata.quorum == Quorum(2, 2, 2)
