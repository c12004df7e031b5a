"""The identity of a cluster, so that no process works on a missing cluster or on another cluster than its own.

Cookies carry the instance id (rule 29): a bookie refuses a directory that was written for another cluster, or for this
one before it was formatted again.
"""

import asyncio
import json
import uuid
from contextlib import suppress
from dataclasses import dataclass

from daybook.core.errors import MetadataError
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import MetadataStore, NodeExistsError, NoNodeError

FORMAT_VERSION = 1


class UnknownClusterError(MetadataError):
    """The cluster was never formatted in this ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A cluster's identity. `created_at_ms` is wall-clock time, for people."""

    instance_id: str
    created_at_ms: int


async def format_cluster(
    store: MetadataStore, layout: Layout, *, created_at_ms: int, instance_id: str | None = None
) -> Instance:
    """Create the cluster's directories, and its identity last, so that a half-formatted cluster has no identity.

    Raises NodeExistsError if the cluster exists: an existing cluster is never formatted again.
    """
    instance = Instance(instance_id or str(uuid.uuid4()), created_at_ms)
    if await store.exists(layout.instance) is not None:
        raise NodeExistsError(layout.instance, f"cluster {layout.cluster!r} is formatted already")
    for path in layout.directories():
        await make_once(store, path)
    await make_once(store, layout.idgen, b'{"next":0}')
    record = {
        "formatVersion": FORMAT_VERSION,
        "instanceId": instance.instance_id,
        "createdAtMs": created_at_ms,
    }
    await store.create(layout.instance, json.dumps(record).encode())
    return instance


async def read_instance(store: MetadataStore, layout: Layout) -> Instance:
    """Read the cluster's identity. Raises UnknownClusterError, or MetadataError for a cluster of a later release."""
    try:
        record = json.loads((await store.get(layout.instance)).value)
    except NoNodeError as error:
        msg = (
            f"there is no cluster {layout.cluster!r} in this ZooKeeper: check the cluster's name and the ZooKeeper "
            "address, or format it first"
        )
        raise UnknownClusterError(msg) from error
    if record["formatVersion"] != FORMAT_VERSION:
        msg = (
            f"cluster {layout.cluster!r} has metadata format {record['formatVersion']}, this release reads "
            f"{FORMAT_VERSION}: upgrade it first"
        )
        raise MetadataError(msg)
    return Instance(record["instanceId"], record["createdAtMs"])


async def await_instance(store: MetadataStore, layout: Layout, timeout_s: float) -> Instance:
    """Read the cluster's identity, which somebody may still be creating. Raises what `read_instance` raises, after `timeout_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            async for node in store.watch_node(layout.instance):
                if node is not None:
                    break
    return await read_instance(store, layout)


async def ensure_cluster(store: MetadataStore, layout: Layout, *, created_at_ms: int) -> Instance:
    """Read the cluster's identity, and format the cluster first if it is missing; several processes may call this at once."""
    try:
        return await read_instance(store, layout)
    except UnknownClusterError:
        try:
            return await format_cluster(store, layout, created_at_ms=created_at_ms)
        except NodeExistsError:
            return await read_instance(store, layout)


async def make_once(store: MetadataStore, path: str, data: bytes = b"") -> None:
    """Create a node and what is above it, unless it is there."""
    try:
        await store.create(path, data, parents=True)
    except NodeExistsError:
        return
