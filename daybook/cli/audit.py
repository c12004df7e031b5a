"""`daybook audit` and `recover`, and the services `auditor` and `autorecovery`: what finds under-replicated ledgers and repairs them.

They are processes for people, for scripts and for Kubernetes: progress goes to standard error, `--json` prints one
object on standard output, SIGTERM ends the copy under way and then the process, and exit code 0 means that everything
that was asked for is done.
"""

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

import daybook
from daybook.autorecovery.cycles import AuditCycles
from daybook.autorecovery.decommission import Decommission
from daybook.autorecovery.elected import ElectedAuditor
from daybook.autorecovery.metrics import AuditorMetrics, WorkerMetrics
from daybook.autorecovery.pool import WorkProgress, WorkReport
from daybook.autorecovery.report import AuditReport
from daybook.autorecovery.serving import Serving
from daybook.autorecovery.settings import AutoRecoverySettings
from daybook.autorecovery.worker import RepairWorker
from daybook.cli.audit_view import print_report, print_tasks, print_work, progress_bar
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    Where,
    ZooKeeper,
    explain_errors,
    find_cluster,
    with_client,
)
from daybook.cli.output import err, out
from daybook.client.placement_settings import placement_policy
from daybook.core.errors import DaybookError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId, check_ledger_id
from daybook.metadata.tasks import LostBookieDelayError, RepairTasks, check_lost_bookie_delay_s
from daybook.runtime.settings import SettingsError, load_settings
from daybook.runtime.signals import stop_on_signals

T = TypeVar("T")

STOP_S = 5.0
"""How long a worker has to end after its copies are done or given up."""


def _delay(delay_s: float | None) -> float | None:
    """The delay of an option, if auditors can wait for it: NaN passes the library's `min`."""
    try:
        return None if delay_s is None else check_lost_bookie_delay_s(delay_s)
    except LostBookieDelayError as error:
        raise typer.BadParameter(str(error)) from error


HealthAddress = Annotated[
    str | None, typer.Option("--health-address", help="host:port of grpc.health.v1; port 0 takes a free one")
]
MetricsAddress = Annotated[
    str | None, typer.Option("--metrics-address", help="host:port of the Prometheus endpoint")
]
Delay = Annotated[
    float | None,
    typer.Option(
        "--delay",
        callback=_delay,
        help="seconds a bookie must be away to be lost; default: the cluster's setting",
    ),
]
Grace = Annotated[
    float | None, typer.Option("--grace", min=0, help="seconds that open ledgers in need are left to writers")
]


class Switch(StrEnum):
    """The cluster's switch of repair."""

    ON = "on"
    OFF = "off"


@explain_errors
def audit(
    quick: Annotated[
        bool, typer.Option("--quick", help="from metadata, without asking for every entry")
    ] = False,
    list_tasks: Annotated[
        bool, typer.Option("--list", help="show the under-replicated ledgers that are marked")
    ] = False,
    set_delay: Annotated[
        float | None,
        typer.Option(callback=_delay, help="set the cluster's delay of lost bookies, in seconds"),
    ] = None,
    repair: Annotated[
        Switch | None, typer.Option(help="switch repair on or off for the whole cluster")
    ] = None,
    delay: Delay = None,
    grace: Grace = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Find ledgers that lack replicas now, and mark them for workers; `daybook auditor` does so for ever.

    Exits with 1 unless every entry has all its replicas (with --quick: unless nothing is under-replicated).
    """
    where = find_cluster(directory, zookeeper, cluster)
    if set_delay is not None or repair is not None:
        out.print(with_client(where, lambda client: _configure(client, set_delay, repair)))
    elif list_tasks:
        with_client(where, partial(_print_tasks, as_json=as_json))
    else:
        settings = _settings(grace=grace)
        report = run_with_stop(
            where, lambda client, stop: _audit_once(client, stop, settings, delay, full=not quick)
        )
        print_report(report, as_json=as_json)
        if not (report.is_fully_replicated or (quick and not report.found.under_replicated)):
            raise typer.Exit(1)


@explain_errors
def recover(
    ledgers: Annotated[
        list[int] | None, typer.Argument(metavar="[LEDGER]...", help="ledgers to repair")
    ] = None,
    bookie: Annotated[str | None, typer.Option(help="repair every ledger that names this bookie")] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="repair what is marked until nothing is left")
    ] = False,
    serve: Annotated[bool, typer.Option("--serve", help="repair what is marked, for ever")] = False,
    delay: Delay = None,
    grace: Grace = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    health_address: HealthAddress = None,
    metrics_address: MetricsAddress = None,
    as_json: Json = False,
) -> None:
    """Give ledgers back the replicas that they lack; safe to run twice and beside other workers.

    Exit code 0 means that everything that was asked for is repaired; 1 comes with the list of what is not.
    """
    if sum((bool(ledgers), bookie is not None, drain, serve)) != 1:
        msg = "what is to be repaired? Give ledgers, or --bookie ID, or --drain, or --serve"
        raise typer.BadParameter(msg)
    if delay is not None and (drain or serve):
        msg = "--drain and --serve repair what auditors marked after their delay: give --delay to `daybook audit`, or ledgers or --bookie here"
        raise typer.BadParameter(msg, param_hint="--delay")
    where = find_cluster(directory, zookeeper, cluster)
    settings = _settings(grace=grace, health_address=health_address, metrics_address=metrics_address)
    if serve:
        run_with_stop(where, lambda client, stop: _serve(client, stop, settings, auditor=False, worker=True))
        return

    unknown: list[int] = []

    async def work(client: daybook.Client, stop: asyncio.Event) -> WorkReport:
        with progress_bar() as show:
            worker = RepairWorker(
                client, settings, name=worker_name(), placement=placement_policy(), on_progress=show
            )
            if bookie is not None:
                repairing = worker.repair_bookie(bookie, lost_delay_s=delay)
            elif drain:
                repairing = worker.drain()
            else:
                unknown.extend([i for i in ledgers or () if not await _exists(client, i)])
                known = [i for i in ledgers or () if i not in unknown]
                repairing = worker.repair(known, lost_delay_s=delay)
            return await until_stopped(stop, worker, repairing, settings.stop_grace_ms)

    report = run_with_stop(where, work)
    print_work(report, as_json=as_json)
    for ledger in unknown:
        err.print(f"[red]ledger {ledger} does not exist: it was never created, or it was deleted[/]")
    if unknown or not report.is_complete:
        raise typer.Exit(1)


def _service(name: str, does: str, *, worker: bool) -> Callable[..., None]:
    """A command that serves for ever, as the auditor and perhaps as a `worker`: both have the same options."""

    def serve(
        grace: Grace = None,
        directory: Directory = None,
        zookeeper: ZooKeeper = None,
        cluster: Cluster = None,
        health_address: HealthAddress = None,
        metrics_address: MetricsAddress = None,
    ) -> None:
        where = find_cluster(directory, zookeeper, cluster)
        settings = _settings(grace=grace, health_address=health_address, metrics_address=metrics_address)
        run_with_stop(where, lambda client, stop: _serve(client, stop, settings, auditor=True, worker=worker))

    serve.__name__, serve.__doc__ = name, does
    return explain_errors(serve)


auditor = _service(
    "auditor",
    "Find ledgers that lack replicas and mark them for workers, for ever; of several auditors one is elected.",
    worker=False,
)
autorecovery = _service(
    "autorecovery",
    "Be auditor and worker in one process, for ever: all that a small cluster needs to heal itself.",
    worker=True,
)


def worker_name() -> str:
    """Who holds a lock or leads, for people."""
    return f"{socket.gethostname()}-{os.getpid()}"


def _settings(*, grace: float | None, **flags: str | None) -> AutoRecoverySettings:
    """Flags over environment over defaults."""
    if grace is not None and not math.isfinite(grace):
        msg = f"--grace {grace}: use a number of seconds"
        raise typer.BadParameter(msg)
    grace_ms = None if grace is None else round(grace * 1000)
    try:
        return load_settings(AutoRecoverySettings, flags={"open_grace_ms": grace_ms, **flags})
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error


def run_with_stop(where: Where, work: Callable[[daybook.Client, asyncio.Event], Awaitable[T]]) -> T:
    """Run `work` with a client, and an event that SIGTERM sets."""

    async def run() -> T:
        stop = asyncio.Event()
        signalled = asyncio.ensure_future(signals.wait_async())
        signalled.add_done_callback(lambda _: stop.set())
        try:
            async with where.connect() as client:
                return await work(client, stop)
        finally:
            signalled.cancel()
            await asyncio.gather(signalled, return_exceptions=True)

    with stop_on_signals() as signals:
        return asyncio.run(run())


async def until_stopped(
    stop: asyncio.Event, worker: RepairWorker, work: Coroutine[Any, Any, T], grace_ms: int
) -> T:
    """The result of `work` of `worker`, which stops when `stop` is set.

    Raises DaybookError when it does not end by itself then, because a store or a bookie does not answer.
    """
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        worker.stop.set()
        await asyncio.wait({working}, timeout=grace_ms / 1000 + STOP_S)
        if working.done():
            return working.result()
        msg = "stopped while a request had no answer; nothing is lost, run this command again to continue"
        raise DaybookError(msg)
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.gather(stopped, working, return_exceptions=True)


async def _audit_once(
    client: daybook.Client,
    stop: asyncio.Event,
    settings: AutoRecoverySettings,
    delay: float | None,
    *,
    full: bool,
) -> AuditReport:
    with err.status("auditing") as status:
        audits = AuditCycles(
            client,
            settings,
            placement=placement_policy(),
            lost_delay_s=delay,
            on_progress=lambda done, total: status.update(f"auditing: {done} of {total} ledgers"),
        )
        return await audits.once(stop, full=full)


async def _serve(
    client: daybook.Client,
    stop: asyncio.Event,
    settings: AutoRecoverySettings,
    *,
    auditor: bool,
    worker: bool,
) -> None:
    """Serve until the stop, with health and metrics."""
    with Serving(client.store, settings) as serving:
        err.print(f"health at {serving.health_address}, metrics at http://{serving.metrics_address}/metrics")
        async with asyncio.TaskGroup() as parts:
            parts.create_task(serving.stamp(stop))
            if auditor:
                process = ElectedAuditor(
                    client,
                    settings,
                    name=worker_name(),
                    placement=placement_policy(),
                    metrics=AuditorMetrics(serving.registry),
                )
                parts.create_task(process.run(stop))
            if worker:
                repairing = RepairWorker(
                    client,
                    settings,
                    name=worker_name(),
                    placement=placement_policy(),
                    metrics=WorkerMetrics(serving.registry),
                )
                parts.create_task(until_stopped(stop, repairing, repairing.serve(), settings.stop_grace_ms))


async def _exists(client: daybook.Client, ledger_id: LedgerId) -> bool:
    try:
        await client.ledgers.read(check_ledger_id(ledger_id), sync=True)
    except (NoSuchLedgerError, ValueError):
        return False
    return True


async def drain_and_forget(
    client: daybook.Client, stop: asyncio.Event, bookie: BookieId, *, wait: bool
) -> bool:
    """Drain `bookie` with the help of a worker of this process; whether it is out of the cluster.

    Raises NotDrainedError; DaybookError if stopped before it was drained.
    """
    with progress_bar("draining") as show:
        decommission = Decommission(
            client,
            bookie,
            lambda progress: show(WorkProgress(progress.ledgers, progress.ledgers - progress.left, 0, 0)),
        )
        worker = RepairWorker(client, _settings(grace=None), name=worker_name(), placement=placement_policy())
        helping = asyncio.ensure_future(worker.serve())
        try:
            drained = await decommission.drain(stop)
        finally:
            worker.stop.set()
            await asyncio.wait({helping}, timeout=STOP_S)
            helping.cancel()
            await asyncio.gather(helping, return_exceptions=True)
    if not drained:
        msg = f"bookie {bookie} is not drained yet: run this command again to continue"
        raise DaybookError(msg)
    if bookie in await client.directory.bookies():
        if not wait:
            return False
        with err.status(f"bookie {bookie} is drained; waiting until it is stopped"):
            if not await decommission.wait_until_stopped(stop):
                return False
    await decommission.forget()
    return True


async def _configure(client: daybook.Client, delay_s: float | None, repair: Switch | None) -> str:
    """Change what was asked for, and say how it is now."""
    tasks = RepairTasks(client.store, client.layout)
    if delay_s is not None:
        await tasks.set_lost_bookie_delay_s(delay_s)
    if repair is not None:
        await tasks.set_disabled(repair is Switch.OFF)
    state = Switch.OFF if await tasks.disabled() else Switch.ON
    return f"repair is {state.value}; a bookie is lost after {await tasks.lost_bookie_delay_s():g} s"


async def _print_tasks(client: daybook.Client, *, as_json: bool) -> None:
    """The marked ledgers, and whether a worker has each."""
    tasks = RepairTasks(client.store, client.layout)
    locked = frozenset(await tasks.locked())
    async with aclosing(tasks.read_all()) as found:
        await print_tasks((task.value async for task in found), locked, as_json=as_json)
