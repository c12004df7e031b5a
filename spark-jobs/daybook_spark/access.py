"""How drivers and tasks reach a cluster: with the same options and the same environment."""

from typing import Any

import daybook
from daybook.client.detached import DetachedClient
from daybook.metadata.store.environment import zookeeper_options
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.tls import TlsFiles, client_credentials
from daybook_spark.options import Where


def open_client(where: Where, **options: Any) -> daybook.Client:
    """A client of the cluster, for `async with`. Raises TlsError, SettingsError."""
    return daybook.connect(
        where.zookeeper,
        cluster=where.cluster,
        zookeeper_options=zookeeper_options(),
        **_credentials(where),
        **options,
    )


def detached_client(where: Where) -> DetachedClient:
    """A client of what a driver has found in the cluster. Raises TlsError, SettingsError."""
    settings = zookeeper_options()
    return DetachedClient(
        lambda: ZooKeeperStore.open(where.zookeeper, settings), cluster=where.cluster, **_credentials(where)
    )


def _credentials(where: Where) -> dict[str, Any]:
    files = TlsFiles(where.tls_certificate, where.tls_key, where.tls_ca)
    return {"credentials": client_credentials(files)} if files.paths else {}
