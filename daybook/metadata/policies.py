"""Tenants and namespaces with what is set for them, and the policy that holds for a topic.

A tenant and a namespace are names with a record: the data of their nodes, which are the directories of what is below them. A
namespace without a record sets nothing. A topic's own policy is the node below the topic (daybook/metadata/topics.py).
"""

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from daybook.core.errors import MetadataError, NoSuchTopicError, PolicyError, TopicExistsError
from daybook.core.topics.manager import check_manager
from daybook.core.topics.name import TopicName, check_entity
from daybook.core.topics.policy import Applied, Policy, PolicyLayer, applied, merged
from daybook.metadata.creation import CREATION_TOKEN
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Versioned,
)
from daybook.metadata.topics import TopicManager

_EMPTY: Final = b"{}"


class PolicyManager:
    """What is set in one cluster, over the broker's default. Raises MetadataUnavailableError while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout, default: Policy | None = None) -> None:
        """Work on the policies of `layout` in `store`; `default` holds where nothing is set."""
        self._store = store
        self._layout = layout
        self._topics = TopicManager(store, layout)
        self.default: Final = default or Policy()

    # Names

    async def create_tenant(self, tenant: str) -> None:
        """Create a tenant. Raises TopicExistsError, TopicNameError."""
        await self._create(self._layout.tenant(check_entity(tenant, "tenant")), f"tenant {tenant}")

    async def create_namespace(self, tenant: str, namespace: str, layer: PolicyLayer | None = None) -> None:
        """Create a namespace, and its tenant where it is missing. Raises TopicExistsError, TopicNameError, PolicyError."""
        merged(self.default, layer or PolicyLayer())
        await self._create(
            self._namespace(tenant, namespace), f"namespace {tenant}/{namespace}", layer or PolicyLayer()
        )

    async def delete_tenant(self, tenant: str) -> None:
        """Delete a tenant without namespaces. Raises NoSuchTopicError, NotEmptyError."""
        await self._delete(
            self._layout.tenant(check_entity(tenant, "tenant")), f"tenant {tenant}", "namespaces"
        )

    async def delete_namespace(self, tenant: str, namespace: str) -> None:
        """Delete a namespace without topics. Raises NoSuchTopicError, NotEmptyError."""
        await self._delete(self._namespace(tenant, namespace), f"namespace {tenant}/{namespace}", "topics")

    async def _create(self, path: str, what: str, layer: PolicyLayer | None = None) -> None:
        record = {**(layer.to_record() if layer else {}), CREATION_TOKEN: uuid.uuid4().hex}
        try:
            await self._store.create(path, json.dumps(record).encode(), parents=True)
        except NodeExistsError as error:
            msg = f"{what} exists already"
            raise TopicExistsError(msg) from error

    async def _delete(self, path: str, what: str, contents: str) -> None:
        try:
            await self._store.delete(path)
        except NoNodeError as error:
            msg = f"{what} does not exist"
            raise NoSuchTopicError(msg) from error
        except NotEmptyError as error:
            raise NotEmptyError(path, f"{what} still has {contents}: delete them first") from error

    # Policies

    async def namespace(self, tenant: str, namespace: str) -> Versioned[PolicyLayer]:
        """What is set for a namespace. Raises NoSuchTopicError, TopicNameError, and MetadataError for data that cannot be read."""
        what = f"namespace {tenant}/{namespace}"
        try:
            node = await self._store.get(self._namespace(tenant, namespace))
        except NoNodeError as error:
            msg = f"{what} does not exist: it begins with its first topic, or is created"
            raise NoSuchTopicError(msg) from error
        try:
            record = json.loads(node.value or _EMPTY)
            layer = PolicyLayer.from_record(record)
        except (ValueError, TypeError, RecursionError) as error:
            msg = f"the policy of {what} cannot be read ({error}): {node.value[:200]!r}"
            raise MetadataError(msg) from error
        return Versioned(layer, node.version)

    async def set_namespace(
        self, tenant: str, namespace: str, current: Versioned[PolicyLayer], layer: PolicyLayer
    ) -> None:
        """Replace what is set for a namespace. Raises PolicyError, NoSuchTopicError, BadVersionError."""
        merged(self.default, layer)
        try:
            await self._store.put(
                self._namespace(tenant, namespace), json.dumps(layer.to_record()).encode(), current.version
            )
        except NoNodeError as error:
            msg = f"namespace {tenant}/{namespace} does not exist: it was deleted meanwhile"
            raise NoSuchTopicError(msg) from error

    async def topic(self, name: TopicName) -> Versioned[PolicyLayer]:
        """What is set for a topic. Raises NoSuchTopicError, and MetadataError for data that cannot be read."""
        found = await self._topics.policy(name)
        return Versioned(_layer(found.value, f"topic {name}"), found.version)

    async def set_topic(
        self, name: TopicName, current: Versioned[PolicyLayer], layer: PolicyLayer, *, manager_uid: str = ""
    ) -> None:
        """Replace what is set for a topic. Raises PolicyError, NoSuchTopicError, BadVersionError.

        Raises ManagedTopicError if a Topic resource manages the topic and `manager_uid` is not its UID.
        """
        check_manager(current.value.managed_by, manager_uid)
        merged(self.default, await self._namespace_of(name), layer)
        before: Versioned[Mapping[str, Any]] = Versioned(current.value.to_record(), current.version)
        await self._topics.set_policy(name, before, layer.to_record())

    async def of(self, name: TopicName) -> Policy:
        """What holds for a topic. Raises NoSuchTopicError, MetadataError, and PolicyError for layers that do not go together."""
        found = await self.applied(name)
        if found.contradiction:
            policy = found.policy
            msg = (
                f"the policies of {name} and of its namespace do not go together over the brokers' settings: {found.contradiction}; "
                f"until then its owner serves it with durability={policy.durability.value}, degrade={policy.degrade.value}, "
                f"ensembleSize={policy.ensemble_size}, writeQuorum={policy.write_quorum}"
            )
            raise PolicyError(msg)
        return found.policy

    async def applied(self, name: TopicName) -> Applied:
        """What the owner serves a topic with. Raises NoSuchTopicError, MetadataError, and PolicyError for a value that is wrong in itself."""
        layer = await self.topic(name)
        return applied(self.default, await self._namespace_of(name), layer.value)

    async def _namespace_of(self, name: TopicName) -> PolicyLayer:
        with suppress(NoSuchTopicError):
            return (await self.namespace(name.tenant, name.namespace)).value
        return PolicyLayer()

    def _namespace(self, tenant: str, namespace: str) -> str:
        return self._layout.namespace(check_entity(tenant, "tenant"), check_entity(namespace, "namespace"))


def _layer(record: Mapping[str, Any], what: str) -> PolicyLayer:
    try:
        return PolicyLayer.from_record(record)
    except PolicyError as error:
        msg = f"the policy of {what} cannot be read: {error}"
        raise MetadataError(msg) from error
