"""Partitioned topics: how many partitions a topic has. The partitions are topics, `<name>-partition-<n>`.

The number only grows: to take a partition away would lose its messages, and move the keys of all others. The record is created
before the partitions, and a broker creates those that are missing when a client asks for them, so a creation that ended half-way
does no harm.
"""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daybook.core.errors import MetadataError, NoSuchTopicError, PolicyError, TopicExistsError, TopicNameError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import check_integer
from daybook.core.topics.name import TopicName
from daybook.metadata.creation import CREATION_TOKEN
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import (
    BadVersionError,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
)

FORMAT_VERSION: Final = 1
PARTITIONS_MAX: Final = 1_000
_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    """The record of a partitioned topic, with fields of a later release that are written back."""

    partitions: int
    unknown_fields: Mapping[str, Any]

    def to_json(self) -> bytes:
        """The stored form."""
        record = {**self.unknown_fields, "formatVersion": FORMAT_VERSION, "partitions": self.partitions}
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "PartitionedTopic":
        """Read a stored record. Raises MetadataError."""
        return read_record(
            data,
            "partitioned topic",
            FORMAT_VERSION,
            lambda record: cls(check_integer(record.pop("partitions")), record),
        )


class PartitionManager:
    """The partitioned topics of one cluster. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the partitioned topics of `layout` in `store`."""
        self._store = store
        self._layout = layout

    async def read(self, name: TopicName) -> Versioned[PartitionedTopic] | None:
        """The record of a partitioned topic; None: it is none."""
        try:
            node = await self._store.get(self._layout.partitioned_topic(name))
        except NoNodeError:
            return None
        return Versioned(PartitionedTopic.from_json(node.value), node.version)

    async def create(self, name: TopicName, partitions: int) -> None:
        """Make a topic a partitioned one. Raises TopicExistsError, PolicyError, TopicNameError for the name of a partition."""
        if partition_of(name) is not None:
            msg = (
                f"{name} is the name of a partition: a partition cannot have partitions, choose another name"
            )
            raise TopicNameError(msg)
        _check_number(partitions)
        if await self._store.exists(self._layout.topic(name)) is not None:
            msg = f"topic {name} exists already, without partitions: delete it first, or choose another name"
            raise TopicExistsError(msg)
        record = PartitionedTopic(partitions, {CREATION_TOKEN: uuid.uuid4().hex})
        try:
            await self._store.create(self._layout.partitioned_topic(name), record.to_json(), parents=True)
        except NodeExistsError as error:
            msg = f"partitioned topic {name} exists already"
            raise TopicExistsError(msg) from error

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Give a topic more partitions. Raises NoSuchTopicError, PolicyError, MetadataError if somebody else did so meanwhile."""
        found = await self.read(name)
        if found is None:
            raise _no_such_topic(name)
        _check_number(partitions)
        if partitions <= found.value.partitions:
            msg = f"{name} has {found.value.partitions} partitions: the number can only grow, and {partitions} is not more"
            raise PolicyError(msg)
        record = PartitionedTopic(partitions, found.value.unknown_fields)
        try:
            await self._store.put(self._layout.partitioned_topic(name), record.to_json(), found.version)
        except BadVersionError as error:
            msg = (
                f"the partitions of {name} were changed by another client meanwhile: read them and try again"
            )
            raise MetadataError(msg) from error
        except NoNodeError as error:
            raise _no_such_topic(name) from error

    async def delete(self, name: TopicName) -> None:
        """Forget that a topic has partitions; whoever calls has deleted these before. Raises NoSuchTopicError."""
        try:
            await self._store.delete(self._layout.partitioned_topic(name))
        except NoNodeError as error:
            raise _no_such_topic(name) from error

    async def topics(self, tenant: str, namespace: str) -> tuple[TopicName, ...]:
        """The partitioned topics of a namespace, in order."""
        try:
            nodes = await self._store.children(self._layout.partitioned_topics(tenant, namespace))
        except NoNodeError:
            return ()
        return tuple(sorted(TopicName(tenant, namespace, decode_name(node)) for node in nodes))


def partition(name: TopicName, index: int) -> TopicName:
    """A partition of a partitioned topic."""
    return TopicName(name.tenant, name.namespace, f"{name.local}-partition-{index}")


def partition_of(name: TopicName) -> tuple[TopicName, int] | None:
    """The partitioned topic and the number, if this is the name of a partition."""
    found = _PARTITION.fullmatch(name.local)
    return None if found is None else (TopicName(name.tenant, name.namespace, found[1]), int(found[2]))


def _check_number(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        msg = f"{partitions} partitions: use 1 to {PARTITIONS_MAX}"
        raise PolicyError(msg)


def _no_such_topic(name: TopicName) -> NoSuchTopicError:
    return NoSuchTopicError(
        f"partitioned topic {name} does not exist: it was never created, or it was deleted"
    )
