"""All links to Daybook clusters: opened when an object first needs one, and closed when none does any more.

Opening a link continues in the background, so that a ZooKeeper that does not answer costs its own objects a short wait and others
nothing.
"""

import asyncio
from collections.abc import Iterable
from contextvars import Context
from typing import Final

from daybook.client.client import Client
from daybook.core.errors import MetadataUnavailableError
from daybook.core.ids import BookieId
from daybook.core.placement.policies import make_policy
from daybook.core.writer.policy import WriterPolicy
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.instance import ensure_cluster, read_instance
from daybook.metadata.layout import Layout
from daybook.metadata.store.environment import zookeeper_options
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook.runtime.tls import TlsFiles, client_credentials
from daybook_operator.clusters.context import LinkContext
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.zookeeper_access import are_among

_LOG: Final = get_logger(__name__)


class Clusters:
    """All links."""

    def __init__(self, context: LinkContext) -> None:
        """None yet."""
        self._context = context
        self._opening: dict[ClusterRef, asyncio.Task[ClusterLink]] = {}

    async def link(self, ref: ClusterRef) -> ClusterLink:
        """The link to `ref`, which is formatted if it is new. Raises MetadataUnavailableError, MetadataError.

        Waits a bounded time for ZooKeeper; the attempt continues, so that a later call finds it done.
        """
        opening = self._opening.get(ref)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = asyncio.create_task(self._open(ref), name=f"link to {ref}", context=Context())
            self._opening[ref] = opening
        timeout_s = self._context.settings.zookeeper_timeout_ms / 1000
        await asyncio.wait({opening}, timeout=timeout_s)
        has_ended_early = opening.done() and opening.cancelled()  # by `keep_only` or `close`
        if not opening.done() or has_ended_early:
            raise _unanswered(ref)
        return opening.result()

    async def peek(self, ref: ClusterRef) -> tuple[str, dict[BookieId, str]]:
        """The instance id of a cluster and the boots of its registered bookies; nothing is formatted or kept.

        Raises UnknownClusterError where there is none, MetadataUnavailableError.
        """
        layout = Layout(ref.cluster)
        try:
            async with asyncio.timeout(self._context.settings.zookeeper_timeout_ms / 1000):
                store = await ZooKeeperStore.open(ref.zookeeper, self._options(ref))
                try:
                    await store.sync(layout.root)
                    instance = await read_instance(store, layout)
                    bookies = await BookieDirectory(store, layout).bookies()
                finally:
                    await store.close()
        except TimeoutError as error:
            raise _unanswered(ref) from error
        return instance.instance_id, {bookie: info.boot_id for bookie, info in bookies.items()}

    def find(self, ref: ClusterRef) -> ClusterLink | None:
        """The link to `ref`, if it is open."""
        opening = self._opening.get(ref)
        return opening.result() if opening is not None and _is_open(opening) else None

    async def keep_only(self, refs: Iterable[ClusterRef]) -> None:
        """Close the links that nothing needs any more."""
        for ref in sorted(self._opening.keys() - set(refs), key=str):
            await self._close(self._opening.pop(ref))

    async def close(self) -> None:
        """Close all links."""
        await asyncio.gather(*(self._close(opening) for opening in self._opening.values()))
        self._opening.clear()

    async def _close(self, opening: asyncio.Task[ClusterLink]) -> None:
        if _is_open(opening):
            await opening.result().close()
        else:
            opening.cancel()
            # it raises only if this task is cancelled itself
            await asyncio.gather(opening, return_exceptions=True)

    def _options(self, ref: ClusterRef) -> ZooKeeperOptions:
        """Credentials go to servers of the operator's own ZooKeeper alone: whoever may edit a pool may name any server."""
        options = zookeeper_options()
        is_own = are_among(ref.zookeeper, self._context.settings.zookeeper)
        return options if is_own else options.anonymous()

    async def _open(self, ref: ClusterRef) -> ClusterLink:
        settings = self._context.settings

        async def open_store() -> MetadataStore:
            store = await ZooKeeperStore.open(ref.zookeeper, self._options(ref))
            try:
                await ensure_cluster(store, Layout(ref.cluster), created_at_ms=unix_ms())
            except BaseException:
                await store.close()
                raise
            return store

        files = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_ca)
        client = Client(
            open_store,
            cluster=ref.cluster,
            placement=make_policy(),
            writer_policy=WriterPolicy(),
            credentials=client_credentials(files) if settings.speaks_tls else lambda: None,
            zone="",
            rack="",
            name=self._context.name,
        )
        await client.__aenter__()
        _LOG.info("linked to a cluster", cluster=str(ref))
        return ClusterLink(ref, client, self._context)


def _unanswered(ref: ClusterRef) -> MetadataUnavailableError:
    msg = f"ZooKeeper at {ref.zookeeper} does not answer: check that it runs and that the address is right"
    return MetadataUnavailableError(msg)


def _is_open(opening: asyncio.Task[ClusterLink]) -> bool:
    return opening.done() and not opening.cancelled() and opening.exception() is None
