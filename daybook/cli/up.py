"""`daybook up`: a local cluster in the foreground, until a signal stops it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from daybook.cli.connection import explain_errors
from daybook.cli.output import err, out
from daybook.local import bookie_process, broker_process
from daybook.local.child import reap
from daybook.local.cluster_file import ClusterError, ClusterFile
from daybook.runtime.signals import StopEvent, stop_on_signals

_WATCH_MS: Final = 200

_PEM: Final[dict[str, Any]] = {"exists": True, "dir_okay": False, "resolve_path": True}


@explain_errors
def up(
    directory: Annotated[Path, typer.Option("--dir", help="directory for data, logs and cluster.json")],
    bookies: Annotated[int, typer.Option(min=1, help="number of bookies")] = 3,
    racks: Annotated[
        str,
        typer.Option(
            help="r1,r2,…: assigned to new bookies in turn, those that are in DIR keep theirs; default: one rack per bookie"
        ),
    ] = "",
    brokers: Annotated[int, typer.Option(min=0, help="number of brokers")] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="start a bookie or a broker again when it ends by itself")
    ] = False,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM certificate of the bookies, for 127.0.0.1", **_PEM)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of that certificate", **_PEM)] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(help="PEM file of the CA that must have signed clients' certificates", **_PEM),
    ] = None,
) -> None:
    """Run ZooKeeper, bookies and brokers on this machine; Ctrl-C or SIGTERM stops all of them.

    Once all serve, DIR/cluster.json lists their addresses and process ids. Data stays in DIR: run it there again to continue.
    Example: `daybook up --dir /tmp/daybook --bookies 4 --racks r1,r2,r3 --brokers 2`
    """
    if (tls_certificate is None) != (tls_key is None) or (tls_ca and not tls_certificate):
        msg = "TLS needs --tls-certificate and --tls-key; with --tls-ca bookies also require certificates of clients"
        raise typer.BadParameter(msg)
    if brokers and tls_certificate and not tls_ca:
        msg = "with TLS, --brokers needs --tls-ca as well: brokers check the bookies' certificates, and show the same one"
        raise typer.BadParameter(msg)
    files = {"tls_certificate": tls_certificate, "tls_key": tls_key, "tls_ca": tls_ca}
    settings: dict[str, object] = {name: str(path) for name, path in files.items() if path}
    names = [rack for rack in racks.split(",") if rack]
    from daybook.local.cluster import LocalCluster

    with stop_on_signals() as stop:
        cluster = LocalCluster(
            directory,
            bookies=bookies,
            racks=names,
            settings=settings,
            brokers=brokers,
            broker_settings={f"bookie_{name}": path for name, path in settings.items()},
        )
        with err.status("starting ZooKeeper, bookies and brokers"):
            cluster.start()
        try:
            _show(cluster.file)
            _warn_of_kept_racks(cluster.file, names)
            out.print(
                f"The cluster serves; use it with --dir {directory}, stop it with Ctrl-C", soft_wrap=True
            )
            _watch(directory, stop, restart=restart)
        finally:
            with err.status("stopping"):
                cluster.stop()


def _show(file: ClusterFile) -> None:
    title = f"cluster {file.cluster!r}, ZooKeeper {file.zookeeper}"
    table = Table("bookie", "rack", "address", "process", title=title)
    for bookie in file.bookies:
        table.add_row(bookie.id, bookie.rack, bookie.address, str(bookie.pid))
    out.print(table)
    if file.brokers:
        table = Table("broker", "for Pulsar clients", "admin", "process")
        for broker in file.brokers:
            table.add_row(broker.id, broker.service_url, broker.admin_url, str(broker.pid))
        out.print(table)


def _warn_of_kept_racks(file: ClusterFile, racks: Sequence[str]) -> None:
    """Report bookies that were there before, in other racks than those that the command asks for."""
    kept = [
        f"{bookie.id} in {bookie.rack}"
        for n, bookie in enumerate(file.bookies)
        if racks and bookie.rack != racks[n % len(racks)]
    ]
    if kept:
        err.print(
            f"[yellow]warning:[/] bookies keep the racks that they started with: {escape(', '.join(kept))}; "
            "--racks is for new ones: for other racks give another directory",
            soft_wrap=True,
        )


def _watch(directory: Path, stop: StopEvent, *, restart: bool) -> None:
    """Wait for the stop; report processes that end meanwhile, and restart them with --restart."""
    reported: set[int] = set()
    while not stop.wait(_WATCH_MS):
        reap()
        for kind, name, pid in _ended(directory):
            if pid in reported:
                continue
            reported.add(pid)
            ended = f"{kind} {name} (process {pid}) ended"
            if restart:
                err.print(f"{ended}; it is restarted")
                _start_again(directory, kind, name)
            else:
                hint = f"daybook {kind} start --dir {directory} {name}"
                err.print(f"{ended}; start it again with `{hint}`", soft_wrap=True)


def _ended(directory: Path) -> Iterator[tuple[str, str, int]]:
    """Kind, id and process of what does not run any more."""
    file = ClusterFile.read(directory)
    for bookie in file.bookies:
        if not bookie_process.is_running(bookie):
            yield "bookie", bookie.id, bookie.pid
    for broker in file.brokers:
        if not broker_process.is_running(directory, broker):
            yield "broker", broker.id, broker.pid


def _start_again(directory: Path, kind: str, name: str) -> None:
    """Start a process; if it does not start, report why and keep the others running."""
    from daybook.local.cluster import start_one, start_one_broker

    start: Callable[[Path, str], object] = start_one if kind == "bookie" else start_one_broker
    try:
        start(directory, name)
    except ClusterError as error:
        err.print(f"[red]{error}[/]", soft_wrap=True)
