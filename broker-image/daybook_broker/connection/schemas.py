"""What the broker does about schemas while it keeps none: a topic has none, and those that readers need not fetch pass."""

from typing import Final

from daybook.wire.pulsar.pulsar_pb2 import Schema

NO_SCHEMA: Final = b""
"""The version of a topic without a schema. Java's client ends the connection if PRODUCER_SUCCESS does not set it."""
_NEEDS_REGISTRY: Final = frozenset(
    (Schema.Json, Schema.Protobuf, Schema.Avro, Schema.KeyValue, Schema.ProtobufNative, Schema.AutoConsume)
)


def needs_registry(schema: Schema) -> bool:
    """Whether readers of such messages ask the broker for what a writer registered."""
    return schema.type in _NEEDS_REGISTRY
