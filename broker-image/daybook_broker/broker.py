"""One broker: the ledger client, the topics, who owns them, and the ports, put together.

A broker serves before it is registered, and is registered before anybody is sent to it. At a stop it hands its topics over first, so that
their clients continue elsewhere at once, and then ends.
"""

import asyncio
import ssl
import uuid
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Final

import daybook
from daybook.core.errors import DaybookError, NoSuchTopicError, NotOwnerError, TopicExistsError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BundleLoad
from daybook.metadata.brokers import BrokerInfo, Urls
from daybook.metadata.partitions import PartitionManager, partition, partition_of
from daybook.metadata.policies import PolicyManager
from daybook.metadata.topics import TopicManager
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook.runtime.ports import Address, parse_address, reachable
from daybook.runtime.tls import FollowingContext
from daybook_broker.auth.access import Access
from daybook_broker.collecting import Collection
from daybook_broker.connection.handlers import HANDLERS
from daybook_broker.connection.listener import Connections, Listener
from daybook_broker.cut_off import CutOff
from daybook_broker.errors import NotAllowedError, NotReadyError
from daybook_broker.metrics import BrokerMetrics
from daybook_broker.ownership.api import Elsewhere, NotReady, OwnershipOptions
from daybook_broker.ownership.ownership import Ownership
from daybook_broker.settings import BrokerSettings
from daybook_broker.topics.ledger_reads import LedgerReads
from daybook_broker.topics.offloaded_files import OffloadedFiles
from daybook_broker.topics.peer import BrokerUrls
from daybook_broker.topics.registry import TopicRegistry, Unload
from daybook_broker.topics.services import TopicServices
from daybook_broker.topics.tail_cache import TailCache
from daybook_broker.topics.topic_lists import TopicLists
from daybook_broker.topics.upkeep import Upkeep

log = get_logger(__name__)

_REGISTRATION: Final = "it registers in ZooKeeper"
_IN_DOUBT: Final = "the session of the broker may have ended: ZooKeeper does not answer it"


class Broker:
    """A broker over a client that is connected. `start` serves; `stop` hands everything over."""

    def __init__(self, settings: BrokerSettings, client: daybook.Client, metrics: BrokerMetrics) -> None:
        """No I/O yet, but for the keys of tokens. Raises KeyFileError."""
        self.settings = settings
        self.client = client
        self.metrics = metrics
        self.topics = TopicManager(client.store, client.layout)
        self.partitions = PartitionManager(client.store, client.layout)
        self.cache = TailCache(settings.cache_bytes)
        self.reads = LedgerReads(
            client,
            self.cache,
            metrics.totals,
            bytes_max=settings.read_ahead_bytes,
            files=OffloadedFiles(
                settings.offload_cache_bytes,
                lambda reason: metrics.offload_read_failures.labels(reason).inc(),
            ),
        )
        metrics.show("cache_bytes", "What the tail cache holds.", lambda: self.cache.size_bytes)
        metrics.show(
            "read_ahead_bytes", "What was read from bookies and is held.", lambda: self.reads.ahead.size_bytes
        )
        metrics.show(
            "offload_cache_bytes",
            "What was read from files of offloaded ledgers and is kept.",
            lambda: self.reads.files.size_bytes,
        )
        policies = PolicyManager(client.store, client.layout, settings.policy)
        self.access = Access(settings, policies)
        services = TopicServices(
            settings,
            client,
            self.topics,
            policies,
            metrics,
            self.reads,
            lambda: self.ownership.is_certain,
        )
        self.registry = TopicRegistry(services, self._own, self._create)
        self.upkeep = Upkeep(self.registry, client, self.topics)
        metrics.show(
            "backlog_entries",
            "Entries that durable subscriptions have not acknowledged.",
            lambda: self.upkeep.backlog_entries,
        )
        metrics.show(
            "topics_over_quota",
            "Topics that take no producers, because their backlog is over its quota.",
            lambda: self.upkeep.topics_over_quota,
        )
        metrics.show(
            "topics_degraded",
            "Topics that write fewer copies than their policies say.",
            lambda: self.upkeep.topics_degraded,
        )
        metrics.show(
            "largest_list_bytes",
            "Size of the largest list of ledgers that a topic has here.",
            lambda: self.upkeep.largest_list_bytes,
        )
        self.collection = Collection(self.registry, client, self.topics)
        self.topic_lists = TopicLists(client.store, client.layout, self.topics_of)
        self.connections = Connections(self)
        self.service_url = self.tls_url = self.admin_url = self.admin_tls_url = ""
        self._ownership: Ownership | None = None
        self._listeners: list[Listener] = []
        self._leaving: dict[Bundle, Unload] = {}
        self._boot_id = uuid.uuid4().hex
        self._producer_numbers = count()
        self._ticking: asyncio.Task[None] | None = None

    @property
    def ownership(self) -> Ownership:
        """Who owns which topics; there is one from `start` on."""
        assert self._ownership is not None, "the port serves before `start`"
        return self._ownership

    # Its life

    async def start(self, *, admin_url: str, admin_tls_url: str = "") -> None:
        """Serve, then register. Raises DaybookError, OSError, TlsError with what to do."""
        settings = self.settings
        self.admin_url, self.admin_tls_url = admin_url, admin_tls_url
        address = await self._listen(settings.address, "address", None)
        self.service_url = f"pulsar://{settings.advertised_address or reachable(address)}"
        if settings.tls_address:
            tls = FollowingContext(settings.tls_files)
            address = await self._listen(settings.tls_address, "tls_address", tls)
            self.tls_url = f"pulsar+ssl://{settings.advertised_tls_address or reachable(address)}"
        hold_s = settings.lookup_wait_ms / 1000
        self._ownership = Ownership(
            self.client.store,
            self.client.layout,
            self._info(),
            self,
            self._measure,
            options=OwnershipOptions(
                hold_s=hold_s,
                report_s=settings.load_report_ms / 1000,
                shed_s=settings.shed_interval_ms / 1000,
            ),
        )
        await self._ownership.start()
        self._ticking = asyncio.create_task(self._work(), name="upkeep")

    async def _work(self) -> None:
        cut_off = CutOff(self.ownership, self.connections, self.settings.session_timeout_ms / 1000)
        async with asyncio.TaskGroup() as group:
            group.create_task(cut_off.run())
            group.create_task(self.registry.run())
            group.create_task(self.upkeep.run())
            group.create_task(self.collection.run(self.ownership))

    async def _listen(self, address: str, setting: str, tls: ssl.SSLContext | None) -> Address:
        listener = Listener(self.connections, HANDLERS)
        await listener.start(parse_address(address), setting, tls)
        self._listeners.append(listener)
        return listener.address

    def _info(self) -> BrokerInfo:
        names = {text.partition(":")[0] for text in self.settings.listeners}
        url = self.settings.listener_url
        return BrokerInfo(
            self.settings.broker_id,
            boot_id=self._boot_id,
            urls=Urls(self.service_url, self.tls_url),
            admin_urls=Urls(self.admin_url, self.admin_tls_url),
            listeners={name: Urls(url(name, tls=False) or "", url(name, tls=True) or "") for name in names},
            version=daybook.__version__,
            started_at_ms=unix_ms(),
        )

    async def stop(self) -> None:
        """Hand the topics over, and end."""
        if self._ownership is not None:
            await self._ownership.close()
        for listener in self._listeners:
            await listener.close()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self.connections.close()
        self.topic_lists.close()
        await self.registry.close()
        await self.reads.close()

    def problem(self) -> str | None:
        """Why nothing can be asked of this broker; None if it serves."""
        if self._ownership is None or not self._ownership.is_registered:
            return f"the broker does not serve: {_REGISTRATION}"
        return None

    def unready(self) -> str | None:
        """Why clients should not come; None if they may. A broker in doubt of its session answers, and gives no receipt (rule 46)."""
        if (problem := self.problem()) is not None:
            return problem
        return None if self.ownership.is_certain else _IN_DOUBT

    async def failed(self) -> DaybookError:
        """Return the error of a part that ended; never returns while all is well."""
        assert self._ticking is not None
        failed = asyncio.create_task(self.ownership.failed())
        try:
            await asyncio.wait([failed, self._ticking], return_when=asyncio.FIRST_COMPLETED)
            error = failed.result() if failed.done() else self._ticking.exception()
        finally:
            failed.cancel()
        return (
            error
            if isinstance(error, DaybookError)
            else DaybookError(f"a part of the broker ended: {error!r}")
        )

    # What connections ask

    def new_producer_name(self) -> str:
        """A name that no other producer of the cluster has, or had."""
        return f"{self.settings.cluster}-{self.settings.broker_id}-{self._boot_id[:8]}-{next(self._producer_numbers)}"

    async def partitions_of(self, name: TopicName, *, create: bool) -> int:
        """How many partitions a topic has, 0 for none. Raises NoSuchTopicError unless the topic may be created."""
        found = await self.partitions.read(name)
        if found is not None:
            found.value.check_stays(name)
            return found.value.partitions
        settings = self.settings
        if create and settings.auto_create and not settings.auto_create_partitions:
            return 0
        with suppress(NoSuchTopicError):
            await self.topics.read(name)
            return 0
        is_partition = partition_of(name) is not None
        if not create or not (settings.auto_create or is_partition):
            msg = f"topic {name} does not exist: create it first"
            raise NoSuchTopicError(msg)
        if is_partition:
            return 0
        with suppress(TopicExistsError):
            await self.partitions.create(name, settings.auto_create_partitions)
        return await self.partitions_of(name, create=create)

    async def topics_of(self, tenant: str, namespace: str) -> list[TopicName]:
        """The topics of a namespace, in order; a partitioned one with its partitions, or those left of it while it is deleted.

        Raises NoSuchTopicError.
        """
        found: set[TopicName] = set()
        for name in await self.partitions.topics(tenant, namespace):
            record = await self.partitions.read(name)
            if record is not None and record.value.deletion is None:
                found.update(partition(name, index) for index in range(record.value.partitions))
        with suppress(NoSuchTopicError):
            found.update(await self.topics.topics(tenant, namespace))
        return sorted(found)

    # What the registry asks

    async def _own(self, name: TopicName) -> None:
        if self.ownership.owns(name):
            return
        match await self.ownership.lookup(name):
            case Elsewhere(broker):
                msg = f"topic {name} belongs to broker {broker.broker}, or is about to: look it up again"
                raise NotOwnerError(msg)
            case NotReady(why):
                raise NotReadyError(why)

    async def _create(self, name: TopicName) -> None:
        """Create a topic that a client uses for the first time, unless its name says that this is a mistake."""
        if await self.partitions.read(name) is not None:
            msg = f"{name} is a partitioned topic: use its partitions, {partition(name, 0)} and so on"
            raise NotAllowedError(msg)
        found = partition_of(name)
        with suppress(TopicExistsError):
            if found is None:
                await self.topics.create(name)
            else:
                await self.partitions.create_partition(*found)

    # What ownership reports

    def _in(self, bundle: Bundle) -> list[TopicName]:
        return [name for name in self.registry.names() if Bundle.of(name) == bundle]

    def gained(self, bundle: Bundle) -> None:
        """The broker owns a bundle from now on: its topics are loaded when somebody uses them."""
        log.info("a bundle was gained", bundle=str(bundle))
        self.metrics.bundle_moves.labels("gained").inc()

    async def leaving(self, bundle: Bundle) -> None:
        """The bundle is to be handed over: finish what is under way."""
        unload = self._leaving[bundle] = self.registry.unload(self._in(bundle))
        await unload.finished()
        self.metrics.bundle_moves.labels("unloaded").inc()

    def lost(self, bundle: Bundle, to: BrokerInfo | None) -> None:
        """The broker does not own the bundle any more."""
        log.info("a bundle was given up", bundle=str(bundle), to=None if to is None else to.broker)
        self.metrics.bundle_moves.labels("lost").inc()
        urls = None if to is None else BrokerUrls(to.urls.plain, to.urls.tls, to.listeners)
        unload = self._leaving.pop(bundle, None)
        if unload is not None:
            unload.announce(urls)
        self.registry.lose(self._in(bundle), urls)

    def _measure(self) -> Mapping[Bundle, BundleLoad]:
        return self.registry.loads()
