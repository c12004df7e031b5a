"""`daybook bookie …`: look at bookies, start them again, replace a lost disk, drain one, check its checksums."""

import json
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.table import Table

import daybook
from daybook.cli.audit import drain_and_forget, run_with_stop
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    ZooKeeper,
    err,
    explain_errors,
    find_cluster,
    out,
    with_client,
)
from daybook.cli.local_cluster import start_one
from daybook.client.calls import BookieCalls
from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId
from daybook.core.placement import BookieInfo
from daybook.runtime.clock import unix_ms
from daybook.wire import bookie_pb2 as pb

app = typer.Typer(no_args_is_help=True, help="Look after bookies.")

BookieArgument = Annotated[str, typer.Argument(metavar="BOOKIE", help="the bookie's id")]
SCRUB_TIMEOUT_S = 3600.0
GIB = 1 << 30


@app.command("list")
@explain_errors
def list_bookies(
    directory: Directory = None, zookeeper: ZooKeeper = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """List the registered bookies: where they stand, whether they take writes, how full they are."""

    async def work(client: daybook.Client) -> list[BookieInfo]:
        return list(client.bookies().values())

    bookies = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps([asdict(bookie) for bookie in bookies]))
        return
    table = Table("bookie", "state", "address", "region", "zone", "rack", "node", "free", "capacity")
    for bookie in bookies:
        table.add_row(
            bookie.bookie,
            "[green]writable[/]" if bookie.writable else "[yellow]read-only[/]",
            bookie.address,
            bookie.region,
            bookie.zone,
            bookie.rack,
            bookie.node,
            f"{bookie.free_bytes / GIB:.1f} GiB",
            f"{bookie.capacity_bytes / GIB:.1f} GiB",
        )
    out.print(table)


@app.command()
@explain_errors
def info(
    bookie: BookieArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Ask a bookie about itself: its life, space, caches, streams and ledgers in limbo."""

    async def work(client: daybook.Client) -> pb.GetInfoResponse:
        response: pb.GetInfoResponse = await calls_of(client, bookie).stub.get_info(pb.GetInfoRequest())
        return response

    answer = with_client(find_cluster(directory, zookeeper, cluster), work)
    record = _record(answer)
    if as_json:
        out.print_json(json.dumps(record))
        return
    table = Table(show_header=False)
    for name, value in record.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
    out.print(table)


def _record(answer: pb.GetInfoResponse) -> dict[str, Any]:
    """Field names as in bookie.proto, numbers as numbers (protobuf's own JSON makes strings of 64-bit ones)."""
    names = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: getattr(answer, name) for name in names}


def calls_of(client: daybook.Client, bookie: BookieId) -> BookieCalls:
    """The calls of a registered bookie. Raises DaybookError."""
    calls = client.channels.calls(bookie)
    if calls is None:
        known = ", ".join(client.bookies()) or "none"
        msg = f"bookie {bookie!r} is not registered (there are: {known})"
        raise DaybookError(msg)
    return calls


@app.command()
@explain_errors
def start(
    bookie: BookieArgument,
    directory: Annotated[
        Path, typer.Option("--dir", envvar="DAYBOOK_DIR", help="directory of the local cluster")
    ],
) -> None:
    """Start a bookie of a local cluster again, on the data it has."""
    entry = start_one(directory, bookie)
    out.print(f"bookie {entry.id} serves at {entry.address} as process {entry.pid}")


@app.command()
@explain_errors
def replace(
    bookie: BookieArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Let a bookie that lost its disk start once on empty directories; it then vouches for nothing until repaired."""
    where = find_cluster(directory, zookeeper, cluster)
    question = f"Is the old process of {bookie} certainly dead, and is its data lost for good?"
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)

    async def work(client: daybook.Client) -> None:
        now_ms = unix_ms()
        await client.directory.authorise_replacement(bookie, by=getuser(), now_ms=now_ms)

    with_client(where, work)
    out.print(f"bookie {bookie} may start once on empty directories; the auditor then restores what it owes")


@app.command()
@explain_errors
def scrub(
    bookie: BookieArgument,
    ledger: Annotated[int, typer.Option(help="only this ledger; default: all")] = -1,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Check the checksum of every entry on a bookie now; exit code 1 if one is damaged."""

    async def work(client: daybook.Client) -> pb.ScrubResponse:
        request = pb.ScrubRequest(ledger_id=ledger)
        response: pb.ScrubResponse = await calls_of(client, bookie).stub.scrub(
            request, timeout=SCRUB_TIMEOUT_S
        )
        return response

    answer = with_client(find_cluster(directory, zookeeper, cluster), work)
    out.print(f"{answer.entries:,} entries of {answer.ledgers:,} ledgers checked")
    for damaged in answer.damaged:
        err.print(f"[red]ledger {damaged.ledger_id}: {len(damaged.entries)} entries are damaged[/]")
    if answer.damaged:
        err.print("the auditor replaces them from other copies: `daybook audit` does it now")
        raise typer.Exit(1)


@app.command()
@explain_errors
def decommission(
    bookie: BookieArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="once it is drained, wait until its process is stopped")
    ] = False,
) -> None:
    """Take a bookie out of the cluster: read-only, copy its ledgers elsewhere, delete its cookie once it is stopped.

    Can be interrupted and run again at any point. Stopping the process for good is yours to do, in the end.
    """
    gone = run_with_stop(
        find_cluster(directory, zookeeper, cluster),
        lambda client, stop: drain_and_forget(client, stop, bookie, wait=wait),
    )
    if gone:
        out.print(f"bookie {bookie} is out of the cluster; its directories may be deleted")
    else:
        out.print(
            f"no ledger names bookie {bookie} any more: stop it for good, then run this again to delete its cookie"
        )
