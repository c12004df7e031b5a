"""Topics that an API server with the first schema stored are valid ones, and the plan takes each of them, or says what to correct.

That schema gave every Topic `ackQuorum: 2`. Nothing reconciled them, so no topic has been written by that number: where no durability
has it, the plan refuses the Topic and names the two fields, and it does not choose how many copies there are for a person.
"""

from pathlib import Path
from typing import Final

import pytest
import yaml
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import ClusterRef, CreateTopic, SetStatus
from daybook_operator.plan.topic.observed import ObservedTopic, TopicInCluster
from daybook_operator.plan.topic.plan import decide

from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.crd_rules import merged
from tests.kubernetes.api.rest import Object, RefusedError, Resources, pool

pytestmark = pytest.mark.integration

FIRST: Final[list[Object]] = list(
    yaml.safe_load_all(Path(__file__).with_name("first_topics.yaml").read_text(encoding="utf-8"))
)
FIVE_COPIES: Final = next(each for each in FIRST if each["metadata"]["name"] == "five-copies")
NOW_MS: Final = 1_700_000_000_000


@pytest.fixture
def resources(control_plane: ControlPlane, namespace: str) -> Resources:
    """Resources of the test's own namespace."""
    return Resources(control_plane, namespace)


def planned(topic: Object) -> Decision:
    """What the operator does about the stored Topic, of which the cluster has nothing yet."""
    empty = TopicInCluster(parts=(None,) * topic["spec"]["partitions"])
    return decide(ObservedTopic(topic, pool(), ClusterRef("zk:2181", "daybook"), empty), NOW_MS)


@pytest.mark.parametrize("first", FIRST, ids=lambda first: first["metadata"]["name"])
def test_a_topic_of_the_first_schema_is_valid_and_means_what_it_says(
    resources: Resources, first: Object
) -> None:
    stored = resources.create(first)
    without = merged(first, {"spec": {"compaction": {"concurrencyPolicy": None}}})["spec"]
    assert merged(stored["spec"], without) == stored["spec"], (
        "each field but the one that is gone is as it was"
    )
    named = merged(stored, {"metadata": {"annotations": {"daybook.dev/pause": "false"}}})
    assert resources.replace(named)["spec"] == stored["spec"], "it can be changed"

    created = [effect for effect in planned(stored).effects if isinstance(effect, CreateTopic)]
    wanted = first["metadata"]["labels"]["durability"]
    if wanted == "refused":
        assert created == []
        return
    assert {each.policy.durability and each.policy.durability.name for each in created} == {
        {"Sync": "SYNC", "SemiSync": "SEMI_SYNC", "Async": "ASYNC"}[wanted]
    }
    assert len(created) == max(1, first["spec"]["partitions"])


def test_the_old_default_that_no_durability_has_is_refused_until_a_person_says_a_durability(
    resources: Resources,
) -> None:
    stored = resources.create(FIVE_COPIES)
    (status,) = [effect.status for effect in planned(stored).effects if isinstance(effect, SetStatus)]
    (ready,) = [each for each in status["conditions"] if each["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "PolicyRefused")
    assert "ackQuorum=2 with writeQuorum=5" in ready["message"]
    assert "the first schema wrote ackQuorum 2 into every Topic" in ready["message"]
    assert "set durability, and ackQuorum to null" in ready["message"]

    with pytest.raises(RefusedError, match="ackQuorum: null"):
        resources.replace(merged(stored, {"spec": {"durability": "SemiSync"}}))
    corrected = resources.replace(merged(stored, {"spec": {"durability": "SemiSync", "ackQuorum": None}}))
    (created,) = [effect for effect in planned(corrected).effects if isinstance(effect, CreateTopic)]
    assert created.policy.durability is not None
    assert created.policy.durability.ack_quorum(5) == 4
