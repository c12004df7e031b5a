"""The client that all tasks of a worker process share: its connections outlive a task, because Spark reuses its workers.

It is made by the first task, so after the fork: gRPC does not survive one.
"""

import os
from typing import NamedTuple

from daybook.client.detached import DetachedClient
from daybook.client.loop_thread import LoopThread
from daybook_spark.access import detached_client
from daybook_spark.options import Where


class ProcessClient(NamedTuple):
    """A client, and the loop on which it lives."""

    loop: LoopThread
    client: DetachedClient


_clients: dict[tuple[int, Where], ProcessClient] = {}


def client_of(where: Where) -> ProcessClient:
    """This process's client of a cluster. Raises TlsError, SettingsError."""
    key = os.getpid(), where
    if key not in _clients:
        loop = LoopThread()
        _clients[key] = ProcessClient(loop, loop.call(lambda: detached_client(where)))
    return _clients[key]
