"""Bundles: the hash ranges of a namespace. A broker owns whole bundles, so that a cluster of many topics has few leases.

A topic belongs to the bundle that the CRC32 of its whole name falls into, so the partitions of one topic spread over brokers. The
ranges are written as Pulsar writes them: `0x08000000_0x10000000` from the first hash of a bundle to the first of the next one, and
`0xffffffff` at the end of the last.
"""

from typing import Final, NamedTuple, Self
from zlib import crc32

from daybook.core.errors import TopicNameError
from daybook.core.topics.name import TopicName, check_entity

BUNDLES_PER_NAMESPACE: Final = 32
_WIDTH: Final = 2**32 // BUNDLES_PER_NAMESPACE
_HASH_MAX: Final = 2**32 - 1


class Bundle(NamedTuple):
    """The topics of a namespace whose hashes are in the range `number`."""

    tenant: str
    namespace: str
    number: int

    @property
    def range(self) -> str:
        """The range, as Pulsar calls it."""
        return f"0x{self.number * _WIDTH:08x}_0x{min((self.number + 1) * _WIDTH, _HASH_MAX):08x}"

    def __str__(self) -> str:
        """The whole name: `tenant/namespace/range`."""
        return f"{self.tenant}/{self.namespace}/{self.range}"

    @classmethod
    def of(cls, topic: TopicName) -> Self:
        """The bundle that a topic belongs to."""
        return cls(topic.tenant, topic.namespace, crc32(str(topic).encode()) // _WIDTH)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises TopicNameError."""
        tenant, _, rest = text.partition("/")
        namespace, _, found = rest.partition("/")
        index = _INDEXES.get(found)
        if index is None:
            msg = f"{text[:200]!r} is no bundle: use tenant/namespace/range, with one of the ranges that `bundles` of the namespace lists"
            raise TopicNameError(msg)
        return cls(check_entity(tenant, "tenant"), check_entity(namespace, "namespace"), index)


def bundles_of(tenant: str, namespace: str) -> tuple[Bundle, ...]:
    """All bundles of a namespace, in the order of their ranges."""
    return tuple(Bundle(tenant, namespace, index) for index in range(BUNDLES_PER_NAMESPACE))


_INDEXES: Final = {bundle.range: bundle.number for bundle in bundles_of("t", "n")}
