"""Partitioned topics: how many partitions a topic has. The partitions are topics, `<name>-partition-<n>`.

The number only grows: to take a partition away would lose its messages, and move the keys of all others. The record is created
before the partitions, and a broker creates those that are missing when a client asks for them, so a creation that ended half-way
does no harm.

A deletion first records in `deletion` that it has begun, and deletes the record last. Meanwhile nobody creates a partition: clients
of a partition that was just deleted would create it again, and nobody would delete it any more (rule 67). Each creation of a
partition checks the record's version in its transaction. A deletion that ended half-way is finished by another request for it.
"""

import json
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from daybook.core.errors import MetadataError, NoSuchTopicError, PolicyError, TopicExistsError, TopicNameError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import check_integer
from daybook.core.topics.name import TopicName
from daybook.metadata.creation import CREATION_TOKEN
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Versioned,
)
from daybook.metadata.topics import TopicManager

FORMAT_VERSION: Final = 1
PARTITIONS_MAX: Final = 1_000
_ATTEMPTS: Final = 5
"""So many times a change is tried again because somebody else has changed the record meanwhile."""
_PARTITION: Final = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")


class Deletion(StrEnum):
    """How a deletion that has begun ends."""

    IF_UNUSED = "ifUnused"
    """It is given up where a partition is used."""
    FORCED = "forced"
    """Every partition is deleted, also by a request without force that finishes it."""


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    """The record of a partitioned topic, with fields of a later release that are written back."""

    partitions: int
    unknown_fields: Mapping[str, Any]
    deletion: Deletion | None = None
    """The deletion that has begun, and is not finished; earlier releases write it back."""

    def to_json(self) -> bytes:
        """The stored form."""
        record = {**self.unknown_fields, "formatVersion": FORMAT_VERSION, "partitions": self.partitions}
        if self.deletion is not None:
            record["deletion"] = self.deletion.value
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "PartitionedTopic":
        """Read a stored record. Raises MetadataError."""
        return read_record(
            data,
            "partitioned topic",
            FORMAT_VERSION,
            lambda record: cls(
                check_integer(record.pop("partitions")),
                record,
                Deletion(record.pop("deletion")) if "deletion" in record else None,
            ),
        )

    def check_stays(self, name: TopicName) -> None:
        """Raise NoSuchTopicError if the topic is being deleted."""
        if self.deletion is not None:
            raise NoSuchTopicError(unfinished_deletion(name))


class PartitionManager:
    """The partitioned topics of one cluster. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the partitioned topics of `layout` in `store`."""
        self._store = store
        self._layout = layout
        self._topics = TopicManager(store, layout)

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
            found = await self.read(name)
            is_there = found is None or found.value.deletion is None
            msg = f"partitioned topic {name} exists already" if is_there else unfinished_deletion(name)
            raise TopicExistsError(msg) from error

    async def create_partition(self, name: TopicName, index: int) -> None:
        """Create a partition that the record counts, unless the topic is deleted meanwhile.

        Raises TopicExistsError, NoSuchTopicError for one that the record does not count, and MetadataError if the record changes
        too often.
        """
        for _ in range(_ATTEMPTS):
            found = await self.read(name)
            if found is not None:
                found.value.check_stays(name)
            number = 0 if found is None else found.value.partitions
            if found is None or index >= number:
                msg = (
                    f"{name} has {number} partitions, and {partition(name, index)} is none of them: create more, "
                    "or use another name"
                )
                raise NoSuchTopicError(msg)
            unchanged = Check(self._layout.partitioned_topic(name), found.version)
            with suppress(BadVersionError, NoNodeError):
                await self._topics.create(partition(name, index), checks=[unchanged])
                return
        raise _changed(name)

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Give a topic more partitions. Raises NoSuchTopicError, PolicyError, MetadataError if somebody else did so meanwhile."""
        found = await self.read(name)
        if found is None:
            raise _no_such_topic(name)
        found.value.check_stays(name)
        _check_number(partitions)
        if partitions <= found.value.partitions:
            msg = f"{name} has {found.value.partitions} partitions: the number can only grow, and {partitions} is not more"
            raise PolicyError(msg)
        record = replace(found.value, partitions=partitions)
        try:
            await self._store.put(self._layout.partitioned_topic(name), record.to_json(), found.version)
        except BadVersionError as error:
            raise _changed(name) from error
        except NoNodeError as error:
            raise _no_such_topic(name) from error

    async def begin_deletion(self, name: TopicName, *, force: bool) -> Versioned[PartitionedTopic]:
        """Record that the topic is being deleted: from then on nobody creates a partition. The record as it is then.

        It may be repeated; a deletion that was begun by force stays one. Raises NoSuchTopicError, and MetadataError if the record
        changes too often.
        """
        for _ in range(_ATTEMPTS):
            found = await self.read(name)
            if found is None:
                raise _no_such_topic(name)
            wanted = Deletion.FORCED if force else found.value.deletion or Deletion.IF_UNUSED
            if wanted is found.value.deletion:
                return found
            record = replace(found.value, deletion=wanted)
            with suppress(BadVersionError, NoNodeError):
                path = self._layout.partitioned_topic(name)
                return Versioned(record, await self._store.put(path, record.to_json(), found.version))
        raise _changed(name)

    async def give_deletion_up(self, name: TopicName, begun: Versioned[PartitionedTopic]) -> None:
        """Let the topic stay, unless somebody else has changed the record since this deletion was begun."""
        record = replace(begun.value, deletion=None)
        with suppress(BadVersionError, NoNodeError):
            await self._store.put(self._layout.partitioned_topic(name), record.to_json(), begun.version)

    async def delete(self, name: TopicName, version: int) -> None:
        """Forget that a topic has partitions; whoever calls has begun the deletion, with this version, and deleted these before.

        Raises NoSuchTopicError, MetadataError if the record was changed meanwhile: the deletion was given up, or begun again.
        """
        try:
            await self._store.delete(self._layout.partitioned_topic(name), version)
        except BadVersionError as error:
            raise _changed(name) from error
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


def unfinished_deletion(name: TopicName) -> str:
    """What is wrong with a partitioned topic while it is being deleted, and what to do."""
    return (
        f"partitioned topic {name} is being deleted, and its deletion is not finished: ask for the deletion again, "
        f"`daybook topic delete --force {name}` finishes it"
    )


def _changed(name: TopicName) -> MetadataError:
    return MetadataError(
        f"the partitions of {name} were changed by another client meanwhile: read them and try again"
    )
