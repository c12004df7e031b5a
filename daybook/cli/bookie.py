"""`daybook bookie …`: show bookies, restart them, replace a lost disk, drain a bookie, check its checksums."""

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.table import Table

import daybook
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    ZooKeeper,
    explain_errors,
    find_cluster,
    with_client,
)
from daybook.cli.output import err, out
from daybook.core.errors import DaybookError
from daybook.core.ids import BookieId

if TYPE_CHECKING:
    from daybook.core.placement.policy import BookieInfo
    from daybook.wire import bookie_pb2 as pb
    from daybook.wire.service import BookieStub

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, help="Manage bookies.")

BookieArgument = Annotated[str, typer.Argument(metavar="BOOKIE", help="the bookie's id")]
SCRUB_TIMEOUT_S: Final = 3600.0
GIB: Final = 1 << 30
PLACES: Final = ("region", "zone", "rack", "node")


@app.command("list")
@explain_errors
def list_bookies(
    directory: Directory = None, zookeeper: ZooKeeper = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """List the registered bookies: their racks, whether they accept writes, how full they are."""

    async def work(client: "daybook.Client") -> "list[BookieInfo]":
        return list(client.bookies().values())

    bookies = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps([asdict(bookie) for bookie in bookies]))
        return
    places = [name for name in PLACES if any(getattr(bookie, name) for bookie in bookies)]
    table = Table("bookie", "state", "address", *places, "free")
    for bookie in bookies:
        table.add_row(
            bookie.bookie,
            "[green]writable[/]" if bookie.writable else "[yellow]read-only[/]",
            bookie.address,
            *(getattr(bookie, name) for name in places),
            f"{bookie.free_bytes / GIB:.1f} of {bookie.capacity_bytes / GIB:.1f} GiB",
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
    """Show the state of a bookie: its process, space, caches, streams and ledgers in limbo."""

    answer = with_client(
        find_cluster(directory, zookeeper, cluster), lambda client: bookie_info(client, bookie)
    )
    record = _record(answer)
    if as_json:
        out.print_json(json.dumps(record))
        return
    table = Table(show_header=False)
    for name, value in record.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if type(value) is int else str(value))
    out.print(table)


async def bookie_info(client: "daybook.Client", bookie: BookieId) -> "pb.GetInfoResponse":
    """The state that a bookie reports."""
    from daybook.client.transport.calls import CALL_TIMEOUT_S
    from daybook.wire import bookie_pb2 as pb

    request = pb.GetInfoRequest()
    return await ask(client, bookie, lambda stub: stub.get_info(request, timeout=CALL_TIMEOUT_S))


def _record(answer: "pb.GetInfoResponse") -> dict[str, Any]:
    """Field names as in bookie.proto, numbers as numbers (protobuf's own JSON writes 64-bit numbers as strings)."""
    from google.protobuf.json_format import MessageToDict

    names = MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: getattr(answer, name) for name in names}


async def ask(
    client: "daybook.Client", bookie: BookieId, call: "Callable[[BookieStub], Awaitable[T]]"
) -> "T":
    """The answer of a registered bookie. Raises DaybookError when there is none."""
    import grpc
    import grpc.aio

    from daybook.wire.connection_failure import why_unreachable

    calls = client.channels.calls(bookie)
    if calls is None:
        known = ", ".join(client.bookies()) or "none"
        msg = f"bookie {bookie!r} is not registered (registered are: {known}); does it run?"
        raise DaybookError(msg)
    try:
        return await call(calls.stub)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            msg = f"bookie {bookie} refuses: {error.details()}"
            raise DaybookError(msg) from error
        address = client.bookies()[bookie].address
        why = why_unreachable(error.details() or "", address, secure=client.channels.is_secure)
        msg = f"bookie {bookie} at {address} does not answer: {why}"
        raise DaybookError(msg) from error


@app.command()
@explain_errors
def start(
    bookie: BookieArgument,
    directory: Annotated[
        Path, typer.Option("--dir", envvar="DAYBOOK_DIR", help="directory of the local cluster")
    ],
) -> None:
    """Start a bookie of a local cluster again, with its data."""
    from daybook.local.cluster import start_one

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
    force: Annotated[
        bool, typer.Option("--force", help="also for an id without a cookie and without ledgers")
    ] = False,
) -> None:
    """Authorise a bookie that lost its disk to start once on empty directories; it is then in limbo until repaired."""
    where = find_cluster(directory, zookeeper, cluster)
    if not force:
        with_client(where, lambda client: _refuse_unknown(client, bookie))
    question = f"Is the old process of {bookie} certainly dead, and is its data lost for good?"
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)

    async def work(client: "daybook.Client") -> None:
        from daybook.runtime.clock import unix_ms

        now_ms = unix_ms()
        await client.directory.authorise_replacement(bookie, by=getuser(), now_ms=now_ms)

    with_client(where, work)
    out.print(
        f"bookie {bookie} may start once on empty directories, within a day; repair then restores its entries"
    )


async def _refuse_unknown(client: "daybook.Client", bookie: BookieId) -> None:
    """Raise DaybookError for an id that no bookie ever had: the authorisation would apply to a later bookie of that name."""
    known = await client.directory.cookies()
    if bookie in known:
        return
    async with aclosing(client.list_ledgers()) as ledgers:
        async for ledger in ledgers:
            if bookie in ledger.value.bookies():
                return
    msg = (
        f"no bookie {bookie!r} ever served here: it has no cookie (bookies with a cookie: {', '.join(known) or 'none'}) and no "
        "ledger names it; check the id. If its cookie was deleted and its directories say so, use --force"
    )
    raise DaybookError(msg)


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

    async def work(client: "daybook.Client") -> "pb.ScrubResponse":
        from daybook.wire import bookie_pb2 as pb

        request = pb.ScrubRequest(ledger_id=ledger)
        return await ask(client, bookie, lambda stub: stub.scrub(request, timeout=SCRUB_TIMEOUT_S))

    with err.status(f"bookie {bookie} reads its entries"):
        answer = with_client(find_cluster(directory, zookeeper, cluster), work)
    out.print(f"{answer.entries:,} entries of {answer.ledgers:,} ledgers checked")
    for damaged in answer.damaged:
        err.print(f"[red]ledger {damaged.ledger_id}: {len(damaged.entries)} entries are damaged[/]")
    if answer.damaged:
        err.print("repair replaces them from other copies: `daybook audit` starts it now")
        raise typer.Exit(1)


@app.command("accept-rollback")
@explain_errors
def accept_rollback(
    bookie: BookieArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Accept a ZooKeeper that went back in time: the bookie then deletes the ledgers that ZooKeeper does not know.

    This raises the counter of ledger ids past all ledgers of the bookie, so that no id is given out twice.
    """
    where = find_cluster(directory, zookeeper, cluster)
    noticed = with_client(where, lambda client: bookie_info(client, bookie))
    if not noticed.collection_refused:
        out.print(
            f"bookie {bookie} has not detected that ZooKeeper went back in time: there is nothing to accept"
        )
        return
    err.print(f"bookie {bookie}: {noticed.collection_refused}")
    question = (
        "Does ZooKeeper have its newest available data, and may this bookie delete for good the entries of every "
        "ledger that ZooKeeper does not know?"
    )
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)

    async def work(client: "daybook.Client") -> "pb.AcceptRollBackResponse":
        from daybook.client.transport.calls import CALL_TIMEOUT_S
        from daybook.wire import bookie_pb2 as pb

        await client.ledgers.raise_next_id(noticed.highest_ledger + 1)
        request = pb.AcceptRollBackRequest(highest_ledger=noticed.highest_ledger)
        return await ask(client, bookie, lambda stub: stub.accept_roll_back(request, timeout=CALL_TIMEOUT_S))

    answer = with_client(where, work)
    if not answer.accepted:
        msg = f"bookie {bookie} continues as before: {answer.detail}; run this command again"
        raise DaybookError(msg)
    out.print(
        f"bookie {bookie} accepts ZooKeeper again; its next garbage collection deletes the ledgers that ZooKeeper does not know"
    )


@app.command()
@explain_errors
def decommission(
    bookie: BookieArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="after the drain, wait until its process is stopped")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="cancel: the bookie stays and accepts writes again")
    ] = False,
) -> None:
    """Remove a bookie from the cluster: make it read-only, copy its ledgers elsewhere, delete its cookie once it is stopped.

    You can interrupt this and run it again at any point. At the end you stop the process for good.
    """
    from daybook.autorecovery.decommission import Decommission
    from daybook.cli.audit import drain_and_forget, run_with_stop

    where = find_cluster(directory, zookeeper, cluster)
    if cancel:
        with_client(where, lambda client: Decommission(client, bookie).cancel())
        out.print(f"bookie {bookie} stays; copies that were made elsewhere stay there")
        return
    gone = run_with_stop(
        where,
        lambda client, stop: drain_and_forget(client, stop, bookie, wait=wait),
    )
    if gone:
        out.print(f"bookie {bookie} is out of the cluster; its directories may be deleted")
    else:
        out.print(
            f"no ledger names bookie {bookie} any more: stop it for good, then run this again to delete its cookie"
        )
