"""Ledger metadata in the store: created once, changed by compare-and-set, listed whole or not at all.

A creation (creation.py) is one `multi` of id counter, ledgers and, for a Kubernetes object, its request. So a repeated
request finds its ledger, and an id is never given out twice. `check_transition` validates every change before it is sent
(rule 11, rule 17, rule 53, rule 56); the store finds out the outcome of a change whose reply was lost (rule 42).
"""

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress

from daybook.core.errors import AlreadyAttachedError, DaybookError, MetadataError, NoSuchLedgerError
from daybook.core.ids import NO_ENTRY, LedgerId, check_ledger_id
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.ledger.transitions import check_transition
from daybook.metadata.creation import LedgerCreation, read_counter
from daybook.metadata.layout import Layout
from daybook.metadata.store.read_ahead import read_ahead
from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    StoreError,
    Versioned,
)
from daybook.metadata.tree import list_ids


class LedgerManager:
    """The ledgers of one cluster. Raises MetadataUnavailableError from every method while the store does not answer."""

    def __init__(self, store: MetadataStore, layout: Layout) -> None:
        """Work on the ledgers of `layout` in `store`."""
        self._store = store
        self._layout = layout
        self._creation = LedgerCreation(store, layout)

    async def create_ledger(
        self,
        make: Callable[[LedgerId], LedgerMetadata],
        *,
        above: LedgerId = NO_ENTRY,
        request_uid: str | None = None,
    ) -> Versioned[LedgerMetadata]:
        """Create a ledger with the next id; `make` returns its first metadata and may be called more than once.

        The id is above that of every ledger that was created before. `above` makes sure of one that the caller knows:
        MetadataError if it is not below the next id, and nothing is created. With the `request_uid` of a Kubernetes
        object, repeated calls create the ledger once. Calls at the same time share transactions.
        """
        if request_uid is None:
            return await self._creation.create(make, above=above)
        while True:
            ledger_id = await self.ledger_of_request(request_uid)
            if ledger_id is not None:
                return await self.read(ledger_id)
            with suppress(NodeExistsError):  # another process has just answered the request
                return await self._creation.create(
                    make, above=above, request=self._layout.request(request_uid)
                )

    async def next_id(self) -> LedgerId:
        """The id that the next ledger gets, read after a `sync`; 0 if the counter does not exist."""
        await self._store.sync(self._layout.idgen)
        try:
            return (await read_counter(self._store, self._layout)).value
        except NoNodeError:
            return 0

    async def raise_next_id(self, at_least: LedgerId) -> LedgerId:
        """Raise the counter so that no new ledger gets an id below `at_least`; return the next id (rule 62)."""
        check_ledger_id(at_least)
        while True:
            counter = await read_counter(self._store, self._layout)
            if counter.value >= at_least:
                return await self.next_id()
            raised = json.dumps({"next": at_least, "token": uuid.uuid4().hex}).encode()
            with suppress(BadVersionError):
                await self._store.put(self._layout.idgen, raised, counter.version)

    async def ledger_of_request(self, request_uid: str) -> LedgerId | None:
        """The ledger that was created for a Kubernetes object, or None."""
        try:
            answer = await self._store.get(self._layout.request(request_uid))
        except NoNodeError:
            return None
        ledger_id: LedgerId = json.loads(answer.value)["ledgerId"]
        return ledger_id

    async def adopt(self, request_uid: str, ledger: Versioned[LedgerMetadata]) -> None:
        """Assign an existing ledger to a Kubernetes object, as if it had been created for it.

        Raises BadVersionError if the ledger changed since `ledger` was read, NoNodeError if it is gone, NodeExistsError
        if the object has a ledger already.
        """
        ledger_id = ledger.value.ledger_id
        answer = json.dumps({"ledgerId": ledger_id}).encode()
        is_as_read = Check(self._layout.ledger(ledger_id), ledger.version)
        await self._store.multi([is_as_read, Create(self._layout.request(request_uid), answer)])

    async def forget_request(self, request_uid: str) -> None:
        """Delete the record of a creation whose Kubernetes object is gone; do nothing if there is none."""
        with suppress(NoNodeError):
            await self._store.delete(self._layout.request(request_uid))

    async def read(self, ledger_id: LedgerId, *, sync: bool = False) -> Versioned[LedgerMetadata]:
        """The metadata and its version. Raises NoSuchLedgerError, and MetadataError for data that cannot be read.

        `sync` first where ownership, deletion or a first frame depends on the answer (rule 20, rule 46).
        """
        path = self._layout.ledger(ledger_id)
        if sync:
            await self._store.sync(path)
        try:
            node = await self._store.get(path)
        except NoNodeError as error:
            raise _no_such_ledger(ledger_id) from error
        return _parse(ledger_id, node)

    async def read_each(
        self, ledger_ids: Sequence[LedgerId], *, sync: bool = False
    ) -> list[Versioned[LedgerMetadata] | DaybookError]:
        """For each of `ledger_ids` what `read` would return, or the error that it would raise for this ledger alone."""
        if sync:
            await self._store.sync(self._layout.ledgers)
        nodes = await self._store.get_each([self._layout.ledger(each) for each in ledger_ids])
        found: list[Versioned[LedgerMetadata] | DaybookError] = []
        for ledger_id, node in zip(ledger_ids, nodes, strict=True):
            if isinstance(node, StoreError):
                found.append(_no_such_ledger(ledger_id) if isinstance(node, NoNodeError) else node)
                continue
            try:
                found.append(_parse(ledger_id, node))
            except MetadataError as error:
                found.append(error)
        return found

    async def cas(
        self, current: Versioned[LedgerMetadata], new: LedgerMetadata, *, timeout_s: float | None = None
    ) -> Versioned[LedgerMetadata]:
        """Replace `current` by `new` and return it with its version.

        Raises BadVersionError if the metadata changed meanwhile (read it again, rule 11), NoSuchLedgerError, MetadataError
        for a change that the protocol does not allow, OutcomeUnknownError if no answer came; `timeout_s=math.inf` waits
        until the outcome is known (rule 46). Two clients that write exactly the same bytes both succeed: a change that
        only one client may win carries a token, as an attach does.
        """
        check_transition(current.value, new)
        path = self._layout.ledger(new.ledger_id)
        try:
            version = await self._store.put(path, new.to_json(), current.version, timeout_s=timeout_s)
        except NoNodeError as error:
            raise _no_such_ledger(new.ledger_id) from error
        return Versioned(new, version)

    async def attach(self, ledger_id: LedgerId, writer_token: str) -> Versioned[LedgerMetadata]:
        """Attach an OPEN ledger for writing, once (rule 53); a second call with the same token is the same attach.

        Raises AlreadyAttachedError, NoSuchLedgerError.
        """
        while True:
            current = await self.read(ledger_id, sync=True)
            if current.value.writer_token == writer_token and current.value.state is LedgerState.OPEN:
                return current
            if current.value.writer_token is not None or current.value.state is not LedgerState.OPEN:
                msg = (
                    f"ledger {ledger_id} is {current.value.state.value} and "
                    f"{'was attached for writing before' if current.value.writer_token else 'takes no writer'}: "
                    "recover it and create a new ledger to write on"
                )
                raise AlreadyAttachedError(msg)
            try:
                return await self.cas(current, current.value.attached(writer_token))
            except BadVersionError:
                continue

    async def delete(self, ledger_id: LedgerId, version: int) -> None:
        """Delete the metadata if it is still at `version` (rule 56). Raises BadVersionError, NoSuchLedgerError."""
        try:
            await self._store.delete(self._layout.ledger(ledger_id), version)
        except NoNodeError as error:
            raise _no_such_ledger(ledger_id) from error

    async def pages(self) -> AsyncIterator[tuple[LedgerId, ...]]:
        """The ids of all ledgers in ascending order, page by page; an error is raised, a short list never returned (rule 28)."""
        async for page in list_ids(self._store, self._layout.ledgers):
            yield page

    async def ids(self) -> AsyncIterator[LedgerId]:
        """The ids of all ledgers in ascending order; see `pages`."""
        async for page in self.pages():
            for ledger_id in page:
                yield ledger_id

    async def read_all(self) -> AsyncGenerator[Versioned[LedgerMetadata], None]:
        """Every ledger's metadata in order of id, at most READS_IN_FLIGHT_MAX reads at a time (rule 37).

        A ledger that is deleted meanwhile is left out; any other error is raised (rule 28).
        """
        async with aclosing(read_ahead(self.ids(), self._read_if_there)) as reads:
            async for found in reads:
                yield found

    async def _read_if_there(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        try:
            return await self.read(ledger_id)
        except NoSuchLedgerError:
            return None

    async def watch(self, ledger_id: LedgerId) -> AsyncIterator[Versioned[LedgerMetadata] | None]:
        """Yield the ledger's metadata now and after each change; None while the ledger does not exist."""
        async for node in self._store.watch_node(self._layout.ledger(ledger_id)):
            yield None if node is None else _parse(ledger_id, node)


def _parse(ledger_id: LedgerId, node: Versioned[bytes]) -> Versioned[LedgerMetadata]:
    metadata = LedgerMetadata.from_json(node.value)
    if metadata.ledger_id != ledger_id:
        msg = f"the metadata of ledger {ledger_id} names ledger {metadata.ledger_id}: the node was moved or copied"
        raise MetadataError(msg)
    return Versioned(metadata, node.version)


def _no_such_ledger(ledger_id: LedgerId) -> NoSuchLedgerError:
    return NoSuchLedgerError(f"ledger {ledger_id} does not exist: it was never created, or it was deleted")
