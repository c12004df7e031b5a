"""`daybook up`: a local cluster in the foreground, until it is told to stop."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from daybook.cli.bookie_process import is_running, reap
from daybook.cli.cluster_file import ClusterError, ClusterFile
from daybook.cli.connection import err, explain_errors, out
from daybook.cli.local_cluster import LocalCluster, start_one
from daybook.runtime.signals import StopEvent, stop_on_signals

_WATCH_MS: Final = 500


@explain_errors
def up(
    directory: Annotated[Path, typer.Option("--dir", help="where data, logs and cluster.json go")],
    bookies: Annotated[int, typer.Option(min=1, help="how many bookies")] = 3,
    racks: Annotated[str, typer.Option(help="r1,r2,…: given to the bookies in turn; default: one each")] = "",
    brokers: Annotated[int, typer.Option(min=0, help="how many brokers")] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="start a bookie again when it ends by itself")
    ] = False,
) -> None:
    """Run ZooKeeper and bookies on this machine; Ctrl-C or SIGTERM stops all of them."""
    if brokers:
        msg = "this release has no brokers yet: leave --brokers out"
        raise ClusterError(msg)
    names = [rack for rack in racks.split(",") if rack]
    with stop_on_signals() as stop:
        with err.status(f"starting ZooKeeper and {bookies} bookies"):
            cluster = LocalCluster(directory, bookies=bookies, racks=names)
            cluster.start()
        try:
            out.print(_table(cluster.file))
            out.print(f"use it with [bold]--dir {directory}[/]; stop it with Ctrl-C")
            _watch(directory, stop, restart=restart)
        finally:
            with err.status("stopping"):
                cluster.stop()


def _table(file: ClusterFile) -> Table:
    table = Table(
        "bookie", "rack", "address", "process", title=f"cluster {file.cluster!r}, ZooKeeper {file.zookeeper}"
    )
    for bookie in file.bookies:
        table.add_row(bookie.id, bookie.rack, bookie.address, str(bookie.pid))
    return table


def _watch(directory: Path, stop: StopEvent, *, restart: bool) -> None:
    """Wait for the stop; say which bookies end meanwhile, and start them again if asked to."""
    told: set[int] = set()
    while not stop.wait(_WATCH_MS):
        reap()
        for bookie in ClusterFile.read(directory).bookies:
            if bookie.pid in told or is_running(bookie):
                continue
            told.add(bookie.pid)
            if restart:
                err.print(f"bookie {bookie.id} (process {bookie.pid}) ended and is started again")
                start_one(directory, bookie.id)
            else:
                hint = f"daybook bookie start --dir {directory} {bookie.id}"
                err.print(f"bookie {bookie.id} (process {bookie.pid}) ended; start it again with `{hint}`")
