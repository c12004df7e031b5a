"""What a lost attempt of the same call left behind, so that a retry distinguishes its own change from another client's (rule 42).

A node is the call's own if an earlier attempt was lost and the node has the call's bytes and, if it is ephemeral, the present
session as its owner. A sequence node is recognised by a token in its name, and a put by the next version with its bytes.
"""

from collections.abc import Sequence

from daybook.metadata.store.store import Create, Delete, NoNodeError, Operation, Put, parent_of
from daybook.metadata.store.transport import Transport


class OwnChanges:
    """Recognises the changes of this client; asked only after an attempt whose answer was lost."""

    def __init__(self, transport: Transport) -> None:
        """Read through `transport`."""
        self._transport = transport

    async def was_created(self, path: str, data: bytes, *, ephemeral: bool) -> bool:
        """Whether the node at `path` is what a lost attempt of the same call created."""
        try:
            node = await self._transport.get(path)
        except NoNodeError:
            return False
        owner = self._transport.session.session_id if ephemeral else 0
        return node.data == data and node.owner == owner

    async def sequence_node(self, prefix: str) -> str | None:
        """The node that a lost attempt created under the token that `prefix` ends in."""
        parent = parent_of(prefix)
        await self._transport.sync(parent)
        try:
            children = await self._transport.children(parent)
        except NoNodeError:
            return None
        token = prefix.rpartition("/")[2]
        return next((f"{parent}/{name}" for name in children.value if name.startswith(token)), None)

    async def was_put(self, path: str, data: bytes, version: int) -> bool:
        """Whether the node is as a lost put of `data` at `version` left it."""
        try:
            node = await self._transport.get(path)
        except NoNodeError:
            return False
        return node.version == version + 1 and node.data == data

    async def was_replaced(self, path: str, data: bytes) -> bool:
        """Whether there is another node at `path` than the one with `data`, which a lost delete was sent for.

        The sync comes first: a server that lags would show the old node, and the retry would delete its successor.
        """
        await self._transport.sync(path)
        try:
            return (await self._transport.get(path)).data != data
        except NoNodeError:
            return False

    async def was_applied(self, operations: Sequence[Operation]) -> bool:
        """Whether a lost attempt applied `operations`: judged by its creates, else by its puts, else by its deletes."""
        created = [operation for operation in operations if isinstance(operation, Create)]
        if created:
            return all(
                [await self.was_created(item.path, item.data, ephemeral=item.ephemeral) for item in created]
            )
        put = [operation for operation in operations if isinstance(operation, Put)]
        if put:
            return all(
                [
                    item.version is not None and await self.was_put(item.path, item.data, item.version)
                    for item in put
                ]
            )
        deleted = [operation for operation in operations if isinstance(operation, Delete)]
        return bool(deleted) and all([await self._is_gone(item.path) for item in deleted])

    async def _is_gone(self, path: str) -> bool:
        try:
            await self._transport.get(path)
        except NoNodeError:
            return True
        return False
