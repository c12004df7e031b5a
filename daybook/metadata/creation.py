"""Creates ledgers in groups: all that a client is to create at one time take one block of ids, in one transaction.

A group is one `multi`: it advances the counter of ids by the size of the block and creates every ledger of it. A client
never holds ids that it has not used. If it did, a snapshot of ZooKeeper could have a counter beyond ids whose ledgers begin
later. After that snapshot was restored, no bookie could distinguish these ledgers from deleted ones, and bookies would
collect them (rule 62). So ids also ascend in the order of creation, whichever client creates, as a topic's list of ledgers must.

While one group is under way the next one gathers. So a client creates thousands of ledgers in a few round trips, and
competes for the counter once for each group.
"""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from daybook.core.errors import MetadataError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.layout import Layout
from daybook.metadata.store.store import (
    BadVersionError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    Versioned,
    parent_of,
)

CREATION_TOKEN: Final = "creationToken"  # noqa: S105 - a field's name
"""Marks the first version of a ledger, or of a topic's list, as one client's own, so that a retry after a lost reply recognises it (rule 42)."""

GROUP_LEDGERS_MAX: Final = 128
GROUP_BYTES_MAX: Final = 500_000
"""Where a group ends: ZooKeeper's default limit of 1 MiB is for a whole transaction, and one ledger takes 90 KB at most."""

Make: TypeAlias = Callable[[LedgerId], LedgerMetadata]


@dataclass(slots=True, eq=False)
class _Wanted:
    """A ledger that a caller waits for."""

    make: Make
    above: LedgerId
    request: str
    created: asyncio.Future[Versioned[LedgerMetadata]]

    def fail(self, error: Exception) -> None:
        """The caller gets `error`, if it still waits."""
        if not self.created.done():
            self.created.set_exception(error)

    def succeed(self, metadata: LedgerMetadata) -> None:
        """The ledger is created, for whoever still waits."""
        if not self.created.done():
            self.created.set_result(Versioned(metadata, 0))


class _Made(NamedTuple):
    """A ledger of a group, as it is to be created."""

    wanted: _Wanted
    metadata: LedgerMetadata
    data: bytes


class LedgerCreation:
    """Creates the ledgers of one client."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Create ledgers of `layout` in `store`."""
        self._store = store
        self._layout = layout
        self._wanted: deque[_Wanted] = deque()
        self._work: asyncio.Task[None] | None = None
        self._directories: set[str] = set()
        """Those that were there once. They are gone only after an import of metadata has replaced all nodes (rule 68)."""

    async def create(self, make: Make, *, above: LedgerId, request: str = "") -> Versioned[LedgerMetadata]:
        """Create a ledger, in a group with what others want at the same time; see `LedgerManager.create_ledger`.

        `request` is the path of a node to create with it, which names it. Raises NodeExistsError if that exists. A caller
        that is cancelled may leave a ledger behind that nobody writes to.
        """
        wanted = _Wanted(make, above, request, asyncio.get_running_loop().create_future())
        self._wanted.append(wanted)
        if self._work is None:  # a task, so that no caller's cancellation ends what others wait for
            self._work = asyncio.get_running_loop().create_task(self._create_all(), name="create-ledgers")
        return await wanted.created

    async def _create_all(self) -> None:
        """Create group after group until nobody waits. The counter is read anew for each such burst."""
        counter: Versioned[LedgerId] | None = None
        group: list[_Made] = []
        try:
            while self._wanted:
                counter = await self._counter_above(max(each.above for each in self._wanted), counter)
                group = self._next_group(counter.value)
                counter = await self._create_group(group, counter) if group else counter
        except Exception as error:  # noqa: BLE001 - whatever it is, callers wait for it
            for wanted in [*(made.wanted for made in group), *self._wanted]:
                wanted.fail(error)
            self._wanted.clear()
        finally:
            self._work = None

    def _next_group(self, next_id: LedgerId) -> list[_Made]:
        """What is created next, from `next_id` on. A creation with a request is alone: the request may be answered already."""
        group: list[_Made] = []
        size_bytes = 0
        while self._wanted and len(group) < GROUP_LEDGERS_MAX and size_bytes < GROUP_BYTES_MAX:
            if group and (group[0].wanted.request or self._wanted[0].request):
                break
            wanted = self._wanted.popleft()
            if wanted.created.done():
                continue  # its caller is gone
            try:
                group.append(_make(wanted, next_id + len(group)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this caller's alone
                wanted.fail(error)
            else:
                size_bytes += len(group[-1].data)
        return group

    async def _create_group(
        self, group: list[_Made], counter: Versioned[LedgerId]
    ) -> Versioned[LedgerId] | None:
        """Create `group` with the ids from the counter on; the counter afterwards, if that is known."""
        end = counter.value + len(group)
        raised = json.dumps({"next": end, "token": uuid.uuid4().hex}).encode()
        operations: list[Operation] = [Put(self._layout.idgen, raised, counter.version)]
        paths = [self._layout.ledger(made.metadata.ledger_id) for made in group]
        directories = set(map(parent_of, paths))
        is_from_memory = not directories.isdisjoint(self._directories)
        for directory in sorted(directories):
            await self._make_directory(directory)
        operations += [Create(path, made.data) for path, made in zip(paths, group, strict=True)]
        request = group[0].wanted.request
        if request:
            answer = {"ledgerId": counter.value, "token": uuid.uuid4().hex}
            operations.append(Create(request, json.dumps(answer).encode()))
        try:
            await self._store.multi(operations)
        except BadVersionError:
            await self._settle_conflict(group)
            return None
        except NoNodeError:
            if not is_from_memory:
                raise
            self._directories.clear()
            self._wanted.extendleft(made.wanted for made in reversed(group))
            return None
        except NodeExistsError as error:
            if error.path != request:
                raise _counter_is_behind(error.path, counter.value) from error
            group[0].wanted.fail(error)
            return None
        for made in group:
            made.wanted.succeed(made.metadata)
        return Versioned(end, counter.version + 1)

    async def _settle_conflict(self, group: list[_Made]) -> None:
        """Another client took the ids: the group is made again, with the next ones.

        Or an attempt whose answer was lost had taken them, and other clients have recovered or deleted ledgers of the group
        since: then those that are as they were created are this client's own, and the others are made again (rule 42).
        """
        is_own = [False]
        if len(group) > 1:
            paths = [self._layout.ledger(made.metadata.ledger_id) for made in group]
            is_own = await asyncio.gather(
                *(
                    is_as_created(self._store, path, made.data)
                    for path, made in zip(paths, group, strict=True)
                )
            )
        for made, own in zip(reversed(group), reversed(is_own), strict=True):
            if own:
                made.wanted.succeed(made.metadata)
            else:
                self._wanted.appendleft(made.wanted)

    async def _counter_above(
        self, above: LedgerId, counter: Versioned[LedgerId] | None
    ) -> Versioned[LedgerId]:
        """The counter; read after a `sync` if it is not past `above`, since what is known of it may be old."""
        if counter is None:
            counter = await read_counter(self._store, self._layout)
        if counter.value <= above:
            await self._store.sync(self._layout.idgen)
            counter = await read_counter(self._store, self._layout)
        return counter

    async def _make_directory(self, path: str) -> None:
        if path not in self._directories:
            with suppress(NodeExistsError):
                await self._store.create(path, parents=True)
            self._directories.add(path)


async def is_as_created(store: MetadataStore, path: str, data: bytes) -> bool:
    """Whether the node is as a create of `data` left it."""
    try:
        return (await store.get(path)).value == data
    except NoNodeError:
        return False


async def read_counter(store: MetadataStore, layout: Layout) -> Versioned[LedgerId]:
    """The id that the next ledger gets, with the version of the counter's node. Raises NoNodeError."""
    node = await store.get(layout.idgen)
    return Versioned(json.loads(node.value)["next"], node.version)


def _make(wanted: _Wanted, ledger_id: LedgerId) -> _Made:
    """The ledger's first version. Raises MetadataError for an id that is not above what its creator asked for."""
    if ledger_id <= wanted.above:
        msg = (
            f"no ledger above {wanted.above} can be created: the counter of ledger ids is at {ledger_id}, so that id was never "
            "given out, or ZooKeeper went back in time (rule 62): check where the id comes from, and the bookies' alerts"
        )
        raise MetadataError(msg)
    metadata = wanted.make(ledger_id)
    assert metadata.ledger_id == ledger_id
    token = uuid.uuid4().hex
    metadata = replace(metadata, unknown_fields={**metadata.unknown_fields, CREATION_TOKEN: token})
    return _Made(wanted, metadata, metadata.to_json())


def _counter_is_behind(path: str, next_id: LedgerId) -> MetadataError:
    return MetadataError(
        f"{path} exists, and the counter of ledger ids is at {next_id}, so it was set back: raise it above every ledger "
        "that exists or that a bookie holds (`daybook bookie accept-rollback`)"
    )
