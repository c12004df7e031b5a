"""Topics in the store: the list of ledgers, the policy, and a node for each cursor.

Only a topic's owner writes its list and its cursors (rule 38). The list changes by compare-and-set on its own version. A cursor
changes in one transaction with a check of the list's version, so that an owner that was superseded writes no cursor either, whatever
it still believes. The policy belongs to people: it is a node of its own, and the owner only reads it.

    <topic>                         the list (daybook/core/topics/ledger_list.py)
    <topic>/policy                  a JSON object
    <topic>/cursors/<subscription>  a cursor (daybook/core/topics/cursor_record.py)
    <topic>/jobs/<job>              what a job did the last time (daybook/metadata/job_results.py); only if one ever did
    <topic>/epoch                   how often the topic had another exclusive producer; only if it ever had one
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from daybook.core.errors import MetadataError, NoSuchTopicError, NotOwnerError, TopicExistsError
from daybook.core.topics.cursor_record import NODE_RANGES_MAX, CursorRecord
from daybook.core.topics.ledger_list import LedgerList, check_list_change
from daybook.core.topics.name import TopicName, check_entity, check_subscription
from daybook.metadata.creation import CREATION_TOKEN
from daybook.metadata.layout import Layout, decode_name
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    Versioned,
)
from daybook.metadata.tree import IncompleteListingError, list_directory

_DELETE_ATTEMPTS: Final = 5


class TopicManager:
    """The topics of one cluster. Raises MetadataUnavailableError from every method while the store does not answer.

    Methods that change something raise OutcomeUnknownError if no answer came; `timeout_s=math.inf` waits until the outcome is known.
    """

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the topics of `layout` in `store`."""
        self._store = store
        self._layout = layout

    # The list

    async def create(
        self, name: TopicName, policy: Mapping[str, Any] | None = None, *, checks: Sequence[Check] = ()
    ) -> Versioned[LedgerList]:
        """Create a topic without ledgers, and its tenant and namespace where they are missing. Raises TopicExistsError.

        `checks` hold at the instant of the creation. Raises BadVersionError or NoNodeError if one does not.
        """
        with suppress(NodeExistsError):
            await self._store.create(self._layout.namespace(name.tenant, name.namespace), parents=True)
        first = LedgerList(unknown_fields={CREATION_TOKEN: uuid.uuid4().hex})
        try:
            await self._store.multi(
                [
                    *checks,
                    Create(self._layout.topic(name), first.to_json()),
                    Create(self._layout.topic_policy(name), _policy_json(policy or {})),
                    Create(self._layout.cursors(name)),
                ]
            )
        except NodeExistsError as error:
            msg = f"topic {name} exists already"
            raise TopicExistsError(msg) from error
        return Versioned(first, 0)

    async def read(self, name: TopicName, *, sync: bool = False) -> Versioned[LedgerList]:
        """The list and its version. Raises NoSuchTopicError, and MetadataError for data that cannot be read.

        `sync` first where ownership or a deletion depends on the answer (rule 46).
        """
        path = self._layout.topic(name)
        if sync:
            await self._store.sync(path)
        try:
            node = await self._store.get(path)
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        return Versioned(LedgerList.from_json(node.value), node.version)

    async def cas(
        self,
        name: TopicName,
        current: Versioned[LedgerList],
        new: LedgerList,
        *,
        timeout_s: float | None = None,
    ) -> Versioned[LedgerList]:
        """Replace the list and return it with its version. The owner alone may call this, with its own token in `new`.

        Raises NotOwnerError if the list changed meanwhile: another broker owns the topic (rule 38). Raises NoSuchTopicError,
        and MetadataError for a change that no owner may make.
        """
        check_list_change(current.value, new)
        try:
            version = await self._store.put(
                self._layout.topic(name), new.to_json(), current.version, timeout_s=timeout_s
            )
        except BadVersionError as error:
            raise _not_owner(name) from error
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        return Versioned(new, version)

    async def delete(self, name: TopicName, version: int) -> None:
        """Delete a topic whose list has no ledgers and is still at `version`, with its cursors and its policy.

        Raises NotOwnerError if the list is at another version, NoSuchTopicError, MetadataError if it names ledgers, NotEmptyError
        if jobs leave results faster than it can be deleted.
        """
        found = await self.read(name)
        if found.version != version:
            raise _not_owner(name)
        ledgers = found.value.ids | found.value.compacted_ids
        if ledgers:
            msg = f"topic {name} still has {len(ledgers)} ledgers, which nobody would delete: trim it first"
            raise MetadataError(msg)
        for attempt in range(_DELETE_ATTEMPTS):
            try:
                await self._store.multi(await self._deletion(name, version))
            except BadVersionError as error:
                raise _not_owner(name) from error
            except NoNodeError as error:
                raise _no_such_topic(name) from error
            except NotEmptyError:  # a job left a result meanwhile
                if attempt + 1 == _DELETE_ATTEMPTS:
                    raise
            else:
                return

    async def _deletion(self, name: TopicName, version: int) -> list[Operation]:
        """Everything that there is of the topic."""
        operations: list[Operation] = [
            Delete(self._layout.cursor(name, subscription), None) for subscription in await self.cursors(name)
        ]
        if await self._store.exists(self._layout.topic_epoch(name)) is not None:
            operations.append(Delete(self._layout.topic_epoch(name), None))
        results = self._layout.job_results(name)
        with suppress(NoNodeError):
            jobs = await self._store.children(results)
            operations += [*(Delete(f"{results}/{job}", None) for job in jobs), Delete(results, None)]
        return [
            *operations,
            Delete(self._layout.cursors(name), None),
            Delete(self._layout.topic_policy(name), None),
            Delete(self._layout.topic(name), version),
        ]

    # Listings

    async def tenants(self) -> tuple[str, ...]:
        """The tenants that have, or had, a topic; none in a cluster that never had one."""
        try:
            nodes = await self._store.children(self._layout.topics)
        except NoNodeError:
            return ()
        return _names(self._layout.topics, nodes)

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        """The namespaces of a tenant. Raises NoSuchTopicError, TopicNameError."""
        return await self._names_below(
            self._layout.tenant(check_entity(tenant, "tenant")), f"tenant {tenant}"
        )

    async def topics(self, tenant: str, namespace: str) -> tuple[TopicName, ...]:
        """The topics of a namespace, in order, all of them or an error (rule 28). Raises NoSuchTopicError, TopicNameError."""
        path = self._layout.namespace(check_entity(tenant, "tenant"), check_entity(namespace, "namespace"))
        names = await self._names_below(path, f"namespace {tenant}/{namespace}")
        return tuple(TopicName(tenant, namespace, name) for name in names)

    async def _names_below(self, path: str, what: str) -> tuple[str, ...]:
        try:
            return _names(path, await self._store.children(path))
        except NoNodeError as error:
            msg = f"{what} does not exist: it begins with its first topic"
            raise NoSuchTopicError(msg) from error

    # The policy

    async def policy(self, name: TopicName) -> Versioned[Mapping[str, Any]]:
        """What is set for the topic. Raises NoSuchTopicError, and MetadataError for data that cannot be read."""
        try:
            node = await self._store.get(self._layout.topic_policy(name))
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        try:
            policy = json.loads(node.value)
        except (ValueError, RecursionError) as error:
            msg = f"the policy of {name} is no JSON ({error})"
            raise MetadataError(msg) from error
        if not isinstance(policy, dict):
            msg = f"the policy of {name} is no JSON object: {node.value[:200]!r}"
            raise MetadataError(msg)
        return Versioned(policy, node.version)

    async def set_policy(
        self, name: TopicName, current: Versioned[Mapping[str, Any]], policy: Mapping[str, Any]
    ) -> Versioned[Mapping[str, Any]]:
        """Replace the policy. Raises BadVersionError if somebody else did so meanwhile, NoSuchTopicError."""
        try:
            version = await self._store.put(
                self._layout.topic_policy(name), _policy_json(policy), current.version
            )
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        return Versioned(policy, version)

    # Cursors; `list_version` is that of the list as its owner last wrote it

    async def cursors(self, name: TopicName) -> tuple[str, ...]:
        """The subscriptions of a topic, in order, all of them or an error (rule 28). Raises NoSuchTopicError."""
        path = self._layout.cursors(name)
        try:
            return _names(path, await list_directory(self._store, path))
        except IncompleteListingError:
            if await self._store.exists(self._layout.topic(name)) is None:
                raise _no_such_topic(name) from None
            raise

    async def read_cursor(self, name: TopicName, subscription: str) -> Versioned[CursorRecord]:
        """A cursor. Raises NoSuchTopicError if there is none, and MetadataError for data that cannot be read."""
        try:
            node = await self._store.get(self._cursor(name, subscription))
        except NoNodeError as error:
            raise _no_such_subscription(name, subscription) from error
        return Versioned(CursorRecord.from_json(node.value), node.version)

    async def create_cursor(
        self, name: TopicName, subscription: str, record: CursorRecord, *, list_version: int
    ) -> Versioned[CursorRecord]:
        """Create a cursor. Raises TopicExistsError if there is one, NotOwnerError, NoSuchTopicError, TopicNameError."""
        token = {**record.unknown_fields, CREATION_TOKEN: uuid.uuid4().hex}
        marked = replace(record, unknown_fields=token)
        try:
            await self._as_owner(
                name, list_version, Create(self._cursor(name, subscription), marked.to_json())
            )
        except NodeExistsError as error:
            msg = f"topic {name} has a subscription {subscription!r} already"
            raise TopicExistsError(msg) from error
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        return Versioned(marked, 0)

    async def put_cursor(
        self,
        name: TopicName,
        subscription: str,
        current: Versioned[CursorRecord],
        new: CursorRecord,
        *,
        list_version: int,
    ) -> Versioned[CursorRecord]:
        """Replace a cursor and return it as it is stored, with its version: a node takes NODE_RANGES_MAX ranges (rule 40).

        Raises NotOwnerError, NoSuchTopicError.
        """
        stored = new.limited(NODE_RANGES_MAX)
        put = Put(self._cursor(name, subscription), stored.to_json(), current.version)
        try:
            await self._as_owner(name, list_version, put)
        except NoNodeError as error:
            raise _no_such_subscription(name, subscription) from error
        return Versioned(stored, current.version + 1)

    async def delete_cursor(self, name: TopicName, subscription: str, *, list_version: int) -> None:
        """Delete a cursor. Raises NotOwnerError, NoSuchTopicError."""
        try:
            await self._as_owner(name, list_version, Delete(self._cursor(name, subscription), None))
        except NoNodeError as error:
            raise _no_such_subscription(name, subscription) from error

    # The epoch of exclusive producers

    async def epoch(self, name: TopicName) -> int | None:
        """The epoch of the last exclusive producer; None if there never was one. Raises MetadataError for data that cannot be read."""
        try:
            node = await self._store.get(self._layout.topic_epoch(name))
        except NoNodeError:
            return None
        try:
            return int(node.value)
        except ValueError as error:
            msg = f"the epoch of {name} is no number: {node.value[:200]!r}"
            raise MetadataError(msg) from error

    async def put_epoch(self, name: TopicName, epoch: int, *, list_version: int) -> None:
        """Store the epoch of a new exclusive producer. Raises NotOwnerError, NoSuchTopicError."""
        path, data = self._layout.topic_epoch(name), str(epoch).encode()
        is_there = await self._store.exists(path) is not None
        try:
            await self._as_owner(
                name, list_version, Put(path, data, None) if is_there else Create(path, data)
            )
        except NoNodeError as error:
            raise _no_such_topic(name) from error
        except NodeExistsError as error:  # the topic's owner alone writes it, one epoch after the other
            raise _not_owner(name) from error

    async def _as_owner(self, name: TopicName, list_version: int, change: Operation) -> None:
        """Change a cursor only while the list is as its owner wrote it (rule 38)."""
        try:
            await self._store.multi([Check(self._layout.topic(name), list_version), change])
        except BadVersionError as error:
            raise _not_owner(name) from error

    def _cursor(self, name: TopicName, subscription: str) -> str:
        return self._layout.cursor(name, check_subscription(subscription))


def _policy_json(policy: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(policy), separators=(",", ":"), sort_keys=True).encode()


def _names(path: str, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """The names of nodes, in order of the names."""
    try:
        return tuple(sorted(map(decode_name, nodes)))
    except ValueError as error:
        msg = f"{path} has a node that is no name ({error}): remove nodes that do not belong there"
        raise IncompleteListingError(msg) from error


def _no_such_topic(name: TopicName) -> NoSuchTopicError:
    return NoSuchTopicError(f"topic {name} does not exist: it was never created, or it was deleted")


def _no_such_subscription(name: TopicName, subscription: str) -> NoSuchTopicError:
    return NoSuchTopicError(
        f"topic {name} has no subscription {subscription!r}: it was never created, or it was deleted"
    )


def _not_owner(name: TopicName) -> NotOwnerError:
    return NotOwnerError(
        f"topic {name} was changed by another broker, which owns it now: look the topic up again"
    )
