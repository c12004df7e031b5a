"""Holds the tasks of a job in the middle of their reading, so that a test changes what they read at a known moment.

Tasks are other processes, which cannot import the tests: they connect to a socket of the test's, and wait until it is closed. What runs in
a task is therefore made in a function.
"""

import socket
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

LIMIT_S: Final = 120


class Gate:
    """For `with`: tasks that come to it wait until it opens, and at the end of the block it is open."""

    def __init__(self) -> None:
        """Closed."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT_S)
        self._held: list[socket.socket] = []

    @property
    def port(self) -> int:
        """Where tasks connect."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()

    def wait_for(self, tasks: int) -> None:
        """Return once so many tasks wait. Raises TimeoutError."""
        while len(self._held) < tasks:
            self._held.append(self._listener.accept()[0])

    def wait_until_gone(self) -> None:
        """Return once the process of each task that waits has ended. For a gate that is closed. Raises TimeoutError."""
        for each in self._held:
            each.settimeout(LIMIT_S)
            assert each.recv(1) == b"", "a task sends nothing"

    def waiting(self) -> int:
        """How many tasks wait now: one whose process has ended does not. For a gate that is closed."""
        return sum(map(_runs, self._held))

    def open(self) -> None:
        """Let them go, and whoever comes later."""
        self._listener.close()
        for each in self._held:
            each.close()


def _runs(task: socket.socket) -> bool:
    try:
        return task.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


def gated(port: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What makes a task wait behind the first thing that it reads."""

    def hold(found: Iterator[Any]) -> Iterator[Any]:
        import contextlib
        import socket

        for number, each in enumerate(found):
            yield each
            if not number:
                with (
                    contextlib.suppress(ConnectionError),  # the gate is open
                    socket.create_connection(("127.0.0.1", port)) as door,
                ):
                    door.recv(1)

    return hold


def gated_source(port: int) -> Any:
    """Daybook's source, under a name of its own, whose tasks come to a gate."""
    from daybook_spark.source import DaybookDataSource

    hold = gated(port)

    class GatedSource(DaybookDataSource):
        @classmethod
        def name(cls) -> str:
            return f"daybook_gated_{port}"

        def reader(self, schema: Any) -> Any:
            reader = super().reader(schema)
            read = reader.read
            reader.read = lambda partition: hold(iter(read(partition)))  # type: ignore[method-assign]  # a test wraps it
            return reader

    return GatedSource


def gated_entries(port: int) -> Any:
    """What tasks of a compaction call for the entries of their part, and come to a gate."""
    from daybook_spark.compact.entries import stored_entries

    hold = gated(port)
    return lambda where, part: hold(stored_entries(where, part))
