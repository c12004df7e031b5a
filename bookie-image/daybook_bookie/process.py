"""The life of the process: everything started in order, a wait for the end, everything ended in order.

The health server comes first, so that a long replay is reported as alive and not ready; registration comes last, so
that no client finds a bookie that does not serve. After a failure of journal or store, and once another process is the
bookie, nothing is ended in order: no thread may answer anything any more (rule 23, rule 57).
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Final

from daybook.core.bookie.life import BookieLife, LifeState
from daybook.core.errors import DaybookError
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.store.settings import options_of_process
from daybook.metadata.store.store import MetadataStore
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.descriptors import raise_descriptor_limit
from daybook.runtime.garbage import collect_rarely
from daybook.runtime.health import HealthServer
from daybook.runtime.logs import get_logger
from daybook.runtime.metrics import MetricsServer, new_registry
from daybook.runtime.ports import parse_address, reachable
from daybook.runtime.scheduling import ask_for_short_slices
from daybook.runtime.signals import StopEvent, stop_on_signals
from daybook.runtime.tls import TlsContexts, TlsError, TlsFiles, server_credentials
from daybook_bookie.bookie import Bookie
from daybook_bookie.disk.directory import DirectoryLock
from daybook_bookie.identity.boot import open_storage
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.server import BookieServer
from daybook_bookie.settings import BookieSettings

_LOG: Final = get_logger(__name__)

SWITCH_INTERVAL_S: Final = 0.0005
"""How long a thread keeps the interpreter from the others: they hand messages to each other all the time."""


def run(settings: BookieSettings, open_store: Callable[[], Awaitable[MetadataStore]] | None = None) -> int:
    """Serve until a signal or a failure; the exit code."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    ask_for_short_slices()
    raise_descriptor_limit()
    life = BookieLife(settings.bookie_id)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        try:
            process = _Process(settings, life, stop, open_store or _zookeeper(settings), stack)
        except (DaybookError, TlsError, OSError, ValueError) as error:
            _LOG.error("the bookie cannot start", reason=str(error), kind=type(error).__name__)
            return life.exit_code
        stop.wait()
        process.end()
        return life.exit_code


class _Process:
    """A bookie with its sockets, from start to end."""

    def __init__(
        self,
        settings: BookieSettings,
        life: BookieLife,
        stop: StopEvent,
        open_store: Callable[[], Awaitable[MetadataStore]],
        stack: ExitStack,
    ) -> None:
        """Start everything; what was started is in `stack` or ended if something fails."""
        self._settings = settings
        self._life = life
        self._stop = stop
        self._bookie: Bookie | None = None
        tls = TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_ca)
        credentials = server_credentials(tls) if settings.tls_certificate else None
        plain = parse_address(settings.plain_address) if settings.plain_address else None
        stack.callback(DirectoryLock(settings.journal_dir, settings.store_dir).close)
        registry = new_registry()
        metrics = BookieMetrics(registry)
        self._health = HealthServer(
            parse_address(settings.health_address), liveness=[self._liveness], readiness=[self._readiness]
        )
        stack.callback(self._health.close)
        self._metrics_server = MetricsServer(registry, parse_address(settings.metrics_address))
        stack.callback(self._metrics_server.close)
        link = MetadataLink(open_store, settings.cluster, settings.bookie_id)
        with ExitStack() as undo:
            undo.callback(link.close)
            storage = open_storage(settings, link, life)
            undo.callback(storage.close)
            bookie = Bookie(
                settings,
                storage,
                link,
                metrics,
                life=life,
                on_end=stop.set,
            )
            self._server = BookieServer(
                bookie,
                parse_address(settings.address),
                credentials,
                plain,
                lane=settings.lane,
                tls_context=TlsContexts(tls, server_side=True).current if settings.tls_certificate else None,
            )
            undo.pop_all()
        bookie.start()
        self._server.start()
        self._bookie = bookie
        _LOG.info("serving", address=str(self._server.address), boot_id=bookie.boot_id)
        if self._server.plain_address is not None:
            _LOG.warning("serving without TLS as well", address=str(self._server.plain_address))
        collect_rarely()
        bookie.register(self._info(), self._write_ready_file)

    def end(self) -> None:
        """Stop in order. Storage may fail during the stop as well, and that is no orderly end."""
        assert self._bookie is not None
        self._exit_if_it_must()
        _LOG.info("stopping", reason=self._stop.reason)
        self._bookie.link.unregister()
        self._server.stop(self._settings.drain_ms / 1000)
        self._exit_if_it_must()
        self._bookie.stop()
        self._exit_if_it_must()

    def _exit_if_it_must(self) -> None:
        """After a failure, or beside a successor, no thread may answer anything any more: end at once."""
        life = self._life
        if not life.must_end:
            return
        if life.state is LifeState.SUPERSEDED:
            _LOG.critical("the bookie stops: it was replaced", reason=life.end_reason)
        else:
            _LOG.critical(
                "the bookie stops: what is durable is unknown, the next start replays", reason=life.end_reason
            )
        sys.stderr.flush()
        os._exit(life.exit_code)

    def _info(self) -> BookieInfo:
        settings = self._settings
        own = settings.advertised_address or reachable(self._server.address)
        plain = settings.advertised_plain_address
        if not plain and self._server.plain_address is not None:
            plain = reachable(self._server.plain_address)
        return BookieInfo(
            bookie=settings.bookie_id,
            address=plain or own,
            tls_address=own if plain else "",
            lane_address=self._server.advertised_lane,
            ip_address=settings.advertised_ip_address,
            region=settings.region,
            zone=settings.zone,
            rack=settings.rack,
            node=settings.node,
        )

    def _write_ready_file(self) -> None:
        """Tell whoever started this process where it serves, in one step."""
        file = self._settings.ready_file
        if file is None:
            return
        record = {
            "bookie_id": self._settings.bookie_id,
            "pid": os.getpid(),
            "address": self._settings.advertised_address or reachable(self._server.address),
            "health_address": reachable(self._health.address),
            "metrics_address": reachable(self._metrics_server.address),
        }
        aside = file.with_name(f"{file.name}.tmp")
        aside.write_text(json.dumps(record), encoding="utf-8")
        aside.replace(file)

    def _liveness(self) -> str | None:
        """This process only: never ZooKeeper, never others."""
        bookie = self._bookie
        if bookie is None:
            return None
        return bookie.journal.progress() or bookie.store_thread.progress()

    def _readiness(self) -> str | None:
        """Replayed and registered; a read-only bookie is ready."""
        if self._bookie is None:
            return "the bookie starts: it reads its journal and store"
        if not self._bookie.link.is_registered:
            return "the bookie is not registered in ZooKeeper yet"
        return None


def _zookeeper(settings: BookieSettings) -> Callable[[], Awaitable[MetadataStore]]:
    async def connect() -> MetadataStore:
        return await ZooKeeperStore.open(settings.zookeeper, options_of_process(settings))

    return connect
