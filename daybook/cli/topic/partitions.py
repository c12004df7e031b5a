"""Which partition of a topic a message belongs to: that of its key, else one after the other.

A client decides it, and brokers do not care. Here it is what Pulsar's clients for Java and Go do unless they are told otherwise; that for C++
and Python has another hash, so producers of both kinds put a key into different partitions.
"""

from collections.abc import Sequence
from typing import Final

from daybook.core.topics.name import TopicName

_HASH_BITS: Final = 32


def partitions_of(topic: TopicName, count: int) -> list[TopicName]:
    """The topics that carry the messages: the partitions, or the topic itself if `count` is 0."""
    if not count:
        return [topic]
    return [TopicName(topic.tenant, topic.namespace, f"{topic.local}-partition-{n}") for n in range(count)]


def partition_of(key: str, partitions: Sequence[object]) -> int:
    """The partition of a key, by the hash of Java's strings."""
    number = 0
    encoded = key.encode("utf-16-be")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) % (1 << _HASH_BITS)
    return (number & (1 << _HASH_BITS - 1) - 1) % len(partitions)
