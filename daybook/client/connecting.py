"""How a process becomes a client of a cluster."""

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from daybook.client.client import Client
from daybook.client.pending import CLIENT_PENDING_BYTES_MAX
from daybook.client.recovery import RECOVERIES_RUNNING_MAX
from daybook.core.placement.policies import make_policy
from daybook.core.placement.policy import PlacementPolicy
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def connect(
    zookeeper: str,
    *,
    cluster: str = "daybook",
    placement: PlacementPolicy | None = None,
    writer_policy: WriterPolicy | None = None,
    credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
    zone: str = "",
    rack: str = "",
    zookeeper_options: ZooKeeperOptions | None = None,
    name: str | None = None,
    recoveries_max: int = RECOVERIES_RUNNING_MAX,
    registry: "CollectorRegistry | None" = None,
    pending_bytes_max: int = CLIENT_PENDING_BYTES_MAX,
    await_cluster_s: float = 0.0,
) -> Client:
    """A client of `cluster`, whose metadata is in the ZooKeeper at `zookeeper` ("host:port,…"); use `async with`.

    `credentials` is asked for the TLS credentials of each new connection to a bookie; None means plaintext. `zone` and
    `rack` say where this process is, so that it reads from near bookies first. At most `recoveries_max` ledgers are
    recovered at a time. `registry` shows the client's metrics (docs/metrics.md) until the client is closed; a registry is for
    one client. `pending_bytes_max` bounds what all ledgers together have appended and not yet on every bookie that should have it:
    appends wait beyond it. A cluster that does not exist is waited for `await_cluster_s`.
    """
    client = Client(
        lambda: ZooKeeperStore.open(zookeeper, zookeeper_options),
        cluster=cluster,
        placement=placement or make_policy(),
        writer_policy=writer_policy or WriterPolicy(),
        credentials=credentials,
        zone=zone,
        rack=rack,
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        recoveries_max=recoveries_max,
        pending_bytes_max=pending_bytes_max,
        await_cluster_s=await_cluster_s,
    )
    if registry is not None:
        from daybook.client.metrics import (
            ClientMetrics,  # imports Prometheus, which a client without a registry does without
        )

        ClientMetrics(client.counts).register(registry)
    return client
