"""Which nodes below a path changed, without a watch for each of them.

Whoever reads a large tree as it was at one instant needs to know what changed after it was read. A watch for each node
would cost memory for each, here and at the server; this one costs memory only for what changed and was not read again
yet. The server sends a change before every answer that follows it, so an answer to a `sync` proves that every earlier
change is known here. A lost connection ends the watch: nobody knows what the server would have sent meanwhile.
"""

from daybook.core.errors import MetadataUnavailableError


class WatchLostError(MetadataUnavailableError):
    """The connection to the store was lost while a tree was watched: begin again."""


class TreeWatch:
    """The paths at or below `root` that may have changed since they were taken; `MetadataStore.watch_tree` makes it."""

    def __init__(self, root: str) -> None:
        """Nothing changed yet."""
        self.root = root
        self._changed: set[str] = set()
        self._is_lost = False

    def notice(self, path: str | None) -> None:
        """`path` may have changed; None: the connection was lost."""
        if path is None:
            self._is_lost = True
        elif path == self.root or path.startswith(f"{self.root}/"):
            self._changed.add(path)

    def take(self) -> list[str]:
        """The changed paths in order, parents before their children; each is returned once. Raises WatchLostError."""
        if self._is_lost:
            msg = f"the connection to ZooKeeper was lost while {self.root} was watched: run the command again"
            raise WatchLostError(msg)
        changed, self._changed = sorted(self._changed), set()
        return changed
