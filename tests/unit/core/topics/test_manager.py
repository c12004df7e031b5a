"""Who manages a topic, as its policy stores it."""

import pytest

from daybook.core.errors import ManagedTopicError, PolicyError
from daybook.core.topics.manager import Manager, check_manager
from daybook.core.topics.policy import PolicyLayer

MANAGER = Manager("data", "orders", "uid-1")


def test_a_policy_names_its_manager_beside_what_it_sets() -> None:
    layer = PolicyLayer(ttl_ms=5, managed_by=MANAGER, unknown_fields={"later": 1})
    record = layer.to_record()
    assert record["managedBy"] == {"namespace": "data", "name": "orders", "uid": "uid-1"}
    assert PolicyLayer.from_record(record) == layer
    assert "managedBy" not in PolicyLayer(ttl_ms=5).to_record()
    assert str(MANAGER) == "Topic data/orders"


@pytest.mark.parametrize(
    "record", ["orders", {}, {"namespace": "data", "name": "orders"}, {**MANAGER.to_record(), "uid": 7}]
)
def test_a_manager_that_is_none_is_refused(record: object) -> None:
    with pytest.raises(PolicyError, match=r"managedBy=.*use an object with namespace, name and uid"):
        PolicyLayer.from_record({"managedBy": record})


def test_only_its_manager_changes_a_managed_topic() -> None:
    check_manager(None, "")
    check_manager(MANAGER, "uid-1")
    for uid in ("", "uid-2"):
        with pytest.raises(
            ManagedTopicError, match="Topic data/orders manages this topic: change that resource"
        ):
            check_manager(MANAGER, uid)
