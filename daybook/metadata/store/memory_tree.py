"""ZooKeeper's tree of nodes in memory: the meaning of its operations, without clients or connections.

`MemoryServer` shares one among its stores; the simulator has one for each server that it simulates.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from daybook.metadata.store.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    Versioned,
    parent_of,
)
from daybook.metadata.store.transport import Node


@dataclass(slots=True)
class _Tree:
    """A node with the counters of its changes."""

    data: bytes
    created_at_ms: int
    owner: int = 0
    version: int = 0
    children_version: int = 0
    sequence: int = 0
    children: set[str] = field(default_factory=set)


class MemoryTree:
    """The nodes. It calls `on_change` with the path of each node that was created, changed or deleted, and with its parent's."""

    def __init__(self, on_change: Callable[[str], None] = lambda _path: None) -> None:
        """The root node alone."""
        self.clock_ms = 0
        """The wall clock of the server, which stands still until the test moves it."""
        self._nodes: dict[str, _Tree] = {"/": _Tree(b"", 0)}
        self._on_change = on_change

    def end_session(self, session_id: int) -> None:
        """Remove the session's ephemeral nodes."""
        for path in sorted(path for path, node in self._nodes.items() if node.owner == session_id):
            self._remove(path)

    def read(self, path: str) -> Node:
        """The node at `path`. Raises NoNodeError."""
        node = self._node(path)
        return Node(node.data, node.version, node.owner, node.created_at_ms)

    def list(self, path: str) -> Versioned[tuple[str, ...]]:
        """The children of `path`. Raises NoNodeError."""
        node = self._node(path)
        return Versioned(tuple(sorted(node.children)), node.children_version)

    def apply(self, operations: Iterable[Operation], session_id: int) -> None:
        """All operations or none."""
        undo: list[Callable[[], None]] = []
        try:
            for operation in operations:
                undo.insert(0, self._apply(operation, session_id))
        except Exception:
            for revert in undo:
                revert()
            raise

    def next_sequence(self, path: str) -> str:
        """`path` with the next sequence number of its parent."""
        parent = self._node(parent_of(path), asked_for=path)
        parent.sequence += 1
        return f"{path}{parent.sequence - 1:010d}"

    def _apply(self, operation: Operation, session_id: int) -> Callable[[], None]:
        """Apply one operation; return a function that undoes it."""
        match operation:
            case Create(path, data, ephemeral):
                self._node(parent_of(path), asked_for=path)
                if path in self._nodes:
                    raise NodeExistsError(path)
                self._insert(path, _Tree(data, self.clock_ms, owner=session_id if ephemeral else 0))
                return lambda: self._remove(path)
            case Delete(path, version):
                node = self._at_version(path, version)
                if node.children:
                    raise NotEmptyError(path)
                self._remove(path)
                return lambda: self._insert(path, node)
            case Put(path, data, version):
                node = self._at_version(path, version)
                before = (node.data, node.version)
                node.data, node.version = data, node.version + 1
                self._on_change(path)
                return lambda: self._restore(node, *before)
            case Check(path, version):
                self._at_version(path, version)
                return lambda: None

    def _restore(self, node: _Tree, data: bytes, version: int) -> None:
        node.data, node.version = data, version

    def _node(self, path: str, *, asked_for: str | None = None) -> _Tree:
        if path not in self._nodes:
            raise NoNodeError(asked_for or path)
        return self._nodes[path]

    def _at_version(self, path: str, version: int | None) -> _Tree:
        node = self._node(path)
        if version is not None and node.version != version:
            raise BadVersionError(path, f"it is at version {node.version}, not {version}")
        return node

    def _insert(self, path: str, node: _Tree) -> None:
        self._nodes[path] = node
        self._count_child(path).add(path.rpartition("/")[2])

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        self._count_child(path).discard(path.rpartition("/")[2])

    def _count_child(self, path: str) -> set[str]:
        parent = self._nodes[parent_of(path)]
        parent.children_version += 1
        self._on_change(path)
        self._on_change(parent_of(path))
        return parent.children
