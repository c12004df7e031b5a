"""The names and values that clients give to subscriptions, producers and consumers: the broker keeps them, so they have a bound."""

from collections.abc import Sequence
from typing import Final

from daybook.wire.pulsar.pulsar_pb2 import KeyValue
from daybook_broker.errors import NotAllowedError

PROPERTIES_BYTES_MAX: Final = 16 * 1024
"""Names and values together. Those of a subscription are in its node in ZooKeeper, and in each record of its cursor."""
PROPERTIES_MAX: Final = 256
"""How many: a short one costs more memory than its bytes."""


def properties_of(what: str, found: Sequence[KeyValue]) -> tuple[tuple[str, str], ...]:
    """The properties that a client gives to `what`. Raises NotAllowedError if they are too many or too long."""
    size_bytes = sum(len(each.key.encode()) + len(each.value.encode()) for each in found)
    if len(found) > PROPERTIES_MAX or size_bytes > PROPERTIES_BYTES_MAX:
        msg = f"{what} has {len(found)} properties with {size_bytes} bytes: at most {PROPERTIES_MAX} with {PROPERTIES_BYTES_MAX} are allowed; choose fewer or shorter ones"
        raise NotAllowedError(msg)
    return tuple((each.key, each.value) for each in found)
