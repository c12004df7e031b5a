"""`daybook ledger …`: create, write, read, show, list, delete, recover and verify ledgers."""

import asyncio
import json
import sys
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

import daybook
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    Password,
    ZooKeeper,
    explain_errors,
    find_cluster,
    with_client,
)
from daybook.cli.ledger_view import LIST_TITLES, list_row, shown, topic_of, verify_table
from daybook.cli.lines import batches_of_lines
from daybook.cli.listing import print_json_array, print_tables
from daybook.cli.output import err, out
from daybook.cli.progress import progress
from daybook.core.ids import check_ledger_id

if TYPE_CHECKING:
    from daybook.client.verify import LedgerReport
    from daybook.core.ids import BookieId, EntryId
    from daybook.core.ledger.metadata import LedgerMetadata

app = typer.Typer(no_args_is_help=True, help="Create, write, read and manage ledgers.")


def _ledger_id(ledger_id: int | None) -> int | None:
    """An argument, if a ledger can have that id."""
    try:
        return None if ledger_id is None else check_ledger_id(ledger_id)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


LedgerArgument = Annotated[int, typer.Argument(metavar="LEDGER", callback=_ledger_id, help="the ledger's id")]
COPIES_WAIT_S: Final = 5.0
EnsembleSize = Annotated[int, typer.Option(help="E: over how many bookies entries are spread")]
WriteQuorum = Annotated[int, typer.Option(help="Qw: copies of each entry")]
AckQuorum = Annotated[int, typer.Option(help="Qa: copies before an entry is acknowledged")]
NewEnsembleSize = Annotated[
    int | None, typer.Option(help="E of a new ledger: over how many bookies entries are spread; default: 3")
]
NewWriteQuorum = Annotated[
    int | None, typer.Option(help="Qw of a new ledger: copies of each entry; default: 3")
]
NewAckQuorum = Annotated[
    int | None, typer.Option(help="Qa of a new ledger: copies before an acknowledgement; default: 2")
]
Custom = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="custom metadata; may be given more than once")
]


@app.command()
@explain_errors
def create(
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    ensemble_size: EnsembleSize = 3,
    write_quorum: WriteQuorum = 3,
    ack_quorum: AckQuorum = 2,
    metadata: Custom = None,
) -> None:
    """Create a ledger and print its id; `daybook ledger write LEDGER` attaches to it, once.

    Example: `daybook ledger create --metadata source=sensor-7`
    """
    custom = dict(_key_value(item) for item in metadata or ())

    async def work(client: "daybook.Client") -> "LedgerMetadata":
        created = await client.create_unattached(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password.encode(),
            custom_metadata=custom,
        )
        return created.value

    ledger = with_client(find_cluster(directory, zookeeper, cluster), work)
    from daybook.core.writer.policy import quorum_warning

    if warning := quorum_warning(ledger.quorum):
        err.print(f"[yellow]warning:[/] {warning}")
    out.print(ledger.ledger_id)


def _key_value(item: str) -> tuple[str, bytes]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        msg = f"{item!r} is not KEY=VALUE"
        raise typer.BadParameter(msg, param_hint="--metadata")
    return key, value.encode()


@app.command()
@explain_errors
def write(
    ledger: Annotated[
        int | None,
        typer.Argument(
            metavar="[LEDGER]", callback=_ledger_id, help="attach to this ledger; default: a new ledger"
        ),
    ] = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    ensemble_size: NewEnsembleSize = None,
    write_quorum: NewWriteQuorum = None,
    ack_quorum: NewAckQuorum = None,
    metadata: Custom = None,
    file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="read from here instead of standard input"),
    ] = None,
    keep_open: Annotated[
        bool, typer.Option("--keep-open", help="do not close the ledger at the end")
    ] = False,
) -> None:
    """Write each line of the input as an entry, as soon as it arrives.

    The command prints the ledger's id at once, so that `daybook ledger read --follow` can follow, and at the end how much
    was acknowledged. Example: `tail -F app.log | daybook ledger write`
    """
    custom = dict(_key_value(item) for item in metadata or ())
    quorum = {"ensemble_size": ensemble_size, "write_quorum": write_quorum, "ack_quorum": ack_quorum}
    given: dict[str, Any] = {name: number for name, number in quorum.items() if number is not None}
    if ledger is not None and (given or custom):
        names = [f"--{name.replace('_', '-')}" for name in given] + (["--metadata"] if custom else [])
        left_out = ", ".join(names)
        msg = f"ledger {ledger} keeps what it was created with: leave out {left_out}, or LEDGER for a new one"
        raise typer.BadParameter(msg)

    async def work(client: "daybook.Client") -> None:
        if ledger is None:
            handle = await client.create_ledger(**given, password=password.encode(), custom_metadata=custom)
            out.print(handle.id)
            sys.stdout.flush()
        else:
            handle = await client.attach_ledger(ledger, password=password.encode())
        with file.open("rb") if file else nullcontext(sys.stdin.buffer) as source:
            if source.isatty():
                err.print("each line becomes an entry; Ctrl-D ends")
            await write_lines(handle, source.fileno(), close=not keep_open)

    with_client(find_cluster(directory, zookeeper, cluster), work)


async def write_lines(handle: "daybook.Ledger", descriptor: int, *, close: bool) -> None:
    """Append lines as they arrive, show progress, and report at the end how many were acknowledged."""
    with progress("writing", "{task.completed:,} entries acknowledged") as tell:

        def acknowledged(appended: "asyncio.Future[tuple[int, int]]") -> None:
            if not appended.cancelled() and appended.exception() is None:
                tell(handle.last_add_confirmed + 1, None)

        appended: asyncio.Future[tuple[int, int]] | None = None
        try:
            async for lines in batches_of_lines(descriptor):
                appended = await handle.submit(lines)
                appended.add_done_callback(acknowledged)
            if appended is not None:
                await appended
                await _all_copies(handle)
            await (handle.close() if close else handle.abandon())
        except BaseException:
            if appended is not None:
                await asyncio.wait([appended], timeout=COPIES_WAIT_S)
            hint = f"`daybook ledger recover {handle.id}` closes it and reports its last entry"
            err.print(f"ledger {handle.id} is left open; {hint}", soft_wrap=True)
            raise
        finally:
            err.print(f"{handle.last_add_confirmed + 1:,} entries, {handle.length:,} bytes acknowledged")


async def _all_copies(handle: "daybook.Ledger") -> None:
    """Wait for the copies beyond the ack quorum: otherwise the end of this process would leave them to repair."""
    try:
        async with asyncio.timeout(COPIES_WAIT_S):
            await handle.replicated()
    except TimeoutError:
        err.print("[yellow]not every bookie has its copies yet:[/] repair restores the missing ones")


@app.command()
@explain_errors
def read(
    ledger: LedgerArgument,
    first: Annotated[int, typer.Option(help="first entry")] = 0,
    last: Annotated[
        int | None, typer.Option(help="last entry; default: the last confirmed one; not with --follow")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="wait for new entries until the ledger closes")
    ] = False,
    recover: Annotated[
        bool, typer.Option("--recover", help="fence and close the ledger first: its writer ends")
    ] = False,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    as_json: Json = False,
) -> None:
    """Print the entries of a ledger, one per line.

    Example: `daybook ledger read 7 --follow | grep ERROR`
    """
    if follow and last is not None:
        msg = "--follow reads until the ledger closes: leave out either --follow or --last"
        raise typer.BadParameter(msg, param_hint="--last")

    async def work(client: "daybook.Client") -> None:
        reader = await client.open_ledger(ledger, recover=recover, password=password.encode())
        end = reader.last_add_confirmed if last is None else last
        entries = reader.tail(first) if follow else reader.read(first, end)
        sink = sys.stdout.buffer
        async with aclosing(entries):
            async for entry in entries:
                sink.write(_line(entry, as_json=as_json))
                if follow:
                    sink.flush()
            sink.flush()

    with_client(find_cluster(directory, zookeeper, cluster), work)


def _line(entry: "daybook.Entry", *, as_json: bool) -> bytes:
    if not as_json:
        return entry.data + b"\n"
    text = entry.data.decode(errors="backslashreplace")
    return json.dumps({"entry_id": entry.entry_id, "data": text}).encode() + b"\n"


@app.command()
@explain_errors
def show(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Show a ledger's metadata: state, quorums, and which bookies hold which entries."""

    async def work(client: "daybook.Client") -> "LedgerMetadata":
        return (await client.ledgers.read(ledger, sync=True)).value

    metadata = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(data=shown(metadata))
        return
    quorum = "/".join(map(str, metadata.quorum))
    out.print(f"ledger [bold]{ledger}[/]  {metadata.state.value}  E/Qw/Qa {quorum}")
    if metadata.is_closed:
        out.print(f"{metadata.last_entry + 1:,} entries, {metadata.length:,} bytes")
    if topic := topic_of(metadata):
        out.print(f"belongs to topic {topic}", markup=False, soft_wrap=True)
    table = Table("first entry", "last entry", "bookies")
    for index, fragment in enumerate(metadata.fragments):
        end = metadata.fragment_end(index)
        table.add_row(
            str(fragment.first_entry), "open" if end is None else str(end), ", ".join(fragment.bookies)
        )
    out.print(table)


@app.command("list")
@explain_errors
def list_ledgers(
    directory: Directory = None, zookeeper: ZooKeeper = None, cluster: Cluster = None, as_json: Json = False
) -> None:
    """List all ledgers; with --json as one array, one ledger per line."""

    async def work(client: "daybook.Client") -> None:
        async with aclosing(client.list_ledgers()) as found:
            if as_json:
                await print_json_array(shown(ledger.value) async for ledger in found)
            else:
                await print_tables(LIST_TITLES, (list_row(ledger.value) async for ledger in found))

    with_client(find_cluster(directory, zookeeper, cluster), work)


@app.command()
@explain_errors
def delete(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    without_recovery: Annotated[
        bool,
        typer.Option(
            "--without-recovery", help="give up its entries: its disks are lost, so it cannot be closed"
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="also if the ledger belongs to a topic")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a ledger; its bookies free the space at their next garbage collection.

    An open ledger is recovered first. Where recovery fails because disks are lost for good, `--without-recovery` deletes
    the ledger without it: the command fences its bookies; unregistered ones must stay unregistered for the cluster's delay.
    A topic's ledger is refused without `--force`, since the topic would miss it: `daybook topic delete` deletes a topic.
    """
    where = find_cluster(directory, zookeeper, cluster)
    if without_recovery and not yes:
        state = with_client(where, lambda client: _state_for_people(client, ledger))
        if not typer.confirm(f"{state}\nAll its acknowledged entries are lost for good. Delete it?"):
            raise typer.Exit(1)

    async def work(client: "daybook.Client") -> "tuple[BookieId, ...]":
        if not without_recovery and not force:
            await _refuse_if_named(client, ledger)
        return await client.delete_ledger(
            ledger, password=password.encode(), without_recovery=without_recovery, force=force
        )

    _tell_unfenced(with_client(where, work))


def _tell_unfenced(lost: "tuple[BookieId, ...]") -> None:
    """A person makes sure that no process of these lives on."""
    if lost:
        err.print(f"not fenced, because they are lost: {', '.join(lost)}", soft_wrap=True)


async def _refuse_if_named(client: "daybook.Client", ledger: int) -> None:
    """Refuse a topic's ledger before anything is done: brokers and jobs delete their own by the library, which only refuses without recovery."""
    from daybook.client.deletion import refuse_if_named

    refuse_if_named((await client.ledgers.read(ledger, sync=True)).value)


async def _state_for_people(client: "daybook.Client", ledger: int) -> str:
    """The ledger's state, and which of its bookies are registered."""
    metadata = (await client.ledgers.read(ledger, sync=True)).value
    registered = client.bookies()
    named = (
        f"{each}{'' if each in registered else ' (not registered)'}" for each in sorted(metadata.bookies())
    )
    end = metadata.last_entry if metadata.is_closed else metadata.last_fragment.first_entry - 1
    least = f"at least {end + 1:,} entries" if not metadata.is_closed else f"{end + 1:,} entries"
    return f"ledger {ledger} is {metadata.state.value}, has {least}, on {', '.join(named)}."


@app.command()
@explain_errors
def recover(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="its disks are lost: close it also if that gives up acknowledged entries"
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Fence a ledger, recover it and close it; its writer can then append no more.

    Where recovery fails because disks are lost for good, `--accept-loss` closes the ledger without it, at the last entry
    that its bookies know to be acknowledged. A topic goes on behind that. Bookies are fenced as for `delete --without-recovery`.
    """
    where = find_cluster(directory, zookeeper, cluster)
    if accept_loss and not yes:
        state = with_client(where, lambda client: _state_for_people(client, ledger))
        if not typer.confirm(
            f"{state}\nIf it cannot be recovered, its newest entries are lost for good. Close it?"
        ):
            raise typer.Exit(1)

    async def work(client: "daybook.Client") -> "tuple[EntryId, tuple[BookieId, ...]]":
        if not accept_loss:
            reader = await client.open_ledger(ledger, recover=True, password=password.encode())
            return reader.last_add_confirmed, ()
        from daybook.client.accepted_loss import recover_accepting_loss

        metadata, lost = await recover_accepting_loss(client, ledger, password=password.encode())
        return metadata.last_entry, lost

    last, lost = with_client(where, work)
    out.print(f"ledger {ledger} is closed at entry {last}")
    _tell_unfenced(lost)


@app.command()
@explain_errors
def verify(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Read every copy of every confirmed entry and compare; exit code 1 if one is missing or damaged."""

    async def work(client: "daybook.Client") -> "LedgerReport":
        from daybook.client.verify import verify_ledger

        with progress(f"ledger {ledger}", "{task.percentage:>3.0f} %") as tell:
            return await verify_ledger(client, ledger, tell)

    report = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps(report.record()))
    else:
        out.print(verify_table(report))
    if not report.is_whole:
        raise typer.Exit(1)
