"""`daybook ledger …`: create, write, read, show, list, delete, recover and verify ledgers."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import daybook
from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    Password,
    ZooKeeper,
    err,
    explain_errors,
    find_cluster,
    out,
    with_client,
)
from daybook.client.verify import LedgerReport, verify_ledger
from daybook.core.metadata import LedgerMetadata
from daybook.core.writer_policy import quorum_warning

app = typer.Typer(no_args_is_help=True, help="Create, write, read and look after ledgers.")

LedgerArgument = Annotated[int, typer.Argument(metavar="LEDGER", help="the ledger's id")]
BATCH_BYTES = 256 * 1024
BATCH_ENTRIES = 4096


@app.command()
@explain_errors
def create(
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    ensemble_size: Annotated[int, typer.Option(help="E: over how many bookies entries are spread")] = 3,
    write_quorum: Annotated[int, typer.Option(help="Qw: copies of each entry")] = 3,
    ack_quorum: Annotated[int, typer.Option(help="Qa: copies before an entry is acknowledged")] = 2,
    metadata: Annotated[list[str] | None, typer.Option(help="custom metadata, KEY=VALUE")] = None,
) -> None:
    """Create a ledger and print its id; `daybook ledger write LEDGER` attaches to it, once."""
    custom = dict(_key_value(item) for item in metadata or ())

    async def work(client: daybook.Client) -> LedgerMetadata:
        created = await client.create_unattached(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            password=password.encode(),
            custom_metadata=custom,
        )
        return created.value

    ledger = with_client(find_cluster(directory, zookeeper, cluster), work)
    if warning := quorum_warning(ledger.quorum):
        err.print(f"[yellow]warning:[/] {warning}")
    out.print(ledger.ledger_id)


def _key_value(item: str) -> tuple[str, bytes]:
    key, equals, value = item.partition("=")
    if not equals or not key:
        msg = f"{item!r} is no KEY=VALUE"
        raise typer.BadParameter(msg, param_hint="--metadata")
    return key, value.encode()


@app.command()
@explain_errors
def write(
    ledger: Annotated[
        int | None, typer.Argument(metavar="[LEDGER]", help="attach to this one; else a new one")
    ] = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    file: Annotated[Path | None, typer.Option(help="read from here instead of standard input")] = None,
    keep_open: Annotated[
        bool, typer.Option("--keep-open", help="do not close the ledger at the end")
    ] = False,
) -> None:
    """Write each line of the input as an entry; print the ledger's id and what was acknowledged."""

    async def work(client: daybook.Client) -> tuple[int, int, int]:
        if ledger is None:
            handle = await client.create_ledger(password=password.encode())
        else:
            handle = await client.attach_ledger(ledger, password=password.encode())
        with file.open("rb") if file else sys.stdin.buffer as source:
            pending = None
            for batch in _batches(source):
                pending = await handle.submit(batch)
            if pending is not None:
                await pending
        if keep_open:
            await handle.abandon()
        else:
            await handle.close()
        return handle.id, handle.last_add_confirmed + 1, handle.length

    ledger_id, entries, length = with_client(find_cluster(directory, zookeeper, cluster), work)
    err.print(f"{entries:,} entries, {length:,} bytes acknowledged")
    out.print(ledger_id)


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    """Lines without their ends, in batches that a pipe's reader sees soon enough."""
    batch: list[bytes] = []
    size_bytes = 0
    for line in source:
        batch.append(line.rstrip(b"\n"))
        size_bytes += len(line)
        if size_bytes >= BATCH_BYTES or len(batch) >= BATCH_ENTRIES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


@app.command()
@explain_errors
def read(
    ledger: LedgerArgument,
    first: Annotated[int, typer.Option(help="first entry")] = 0,
    last: Annotated[int | None, typer.Option(help="last entry; default: the last confirmed one")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="wait for entries to come until it closes")
    ] = False,
    recover: Annotated[
        bool, typer.Option("--recover", help="fence and close it first: its writer ends")
    ] = False,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
    as_json: Json = False,
) -> None:
    """Print the entries of a ledger, a line each."""

    async def work(client: daybook.Client) -> None:
        reader = await client.open_ledger(ledger, recover=recover, password=password.encode())
        end = reader.last_add_confirmed if last is None else last
        entries = reader.tail(first) if follow else reader.read(first, end)
        sink = sys.stdout.buffer
        async for entry in entries:
            sink.write(_line(entry, as_json=as_json))
            if follow:
                sink.flush()
        sink.flush()

    with_client(find_cluster(directory, zookeeper, cluster), work)


def _line(entry: daybook.Entry, *, as_json: bool) -> bytes:
    if not as_json:
        return entry.data + b"\n"
    text = entry.data.decode(errors="backslashreplace")
    return json.dumps({"entryId": entry.entry_id, "data": text}).encode() + b"\n"


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

    async def work(client: daybook.Client) -> LedgerMetadata:
        return (await client.ledgers.read(ledger, sync=True)).value

    metadata = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(metadata.to_json().decode())
        return
    quorum = "/".join(map(str, metadata.quorum))
    out.print(f"ledger [bold]{ledger}[/]  {metadata.state.value}  E/Qw/Qa {quorum}")
    if metadata.is_closed:
        out.print(f"{metadata.last_entry + 1:,} entries, {metadata.length:,} bytes")
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
    """List all ledgers."""

    async def work(client: daybook.Client) -> list[LedgerMetadata]:
        return [found.value async for found in client.list_ledgers()]

    ledgers = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps([json.loads(ledger.to_json()) for ledger in ledgers]))
        return
    table = Table("ledger", "state", "E/Qw/Qa", "entries", "bytes", "fragments", "bookies of the last one")
    for ledger in ledgers:
        table.add_row(
            str(ledger.ledger_id),
            ledger.state.value,
            "/".join(map(str, ledger.quorum)),
            f"{ledger.last_entry + 1:,}" if ledger.is_closed else "…",
            f"{ledger.length:,}" if ledger.is_closed else "…",
            str(len(ledger.fragments)),
            ", ".join(ledger.last_fragment.bookies),
        )
    out.print(table)


@app.command()
@explain_errors
def delete(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
) -> None:
    """Delete a ledger; its bookies free the space at their next garbage collection."""
    with_client(
        find_cluster(directory, zookeeper, cluster),
        lambda client: client.delete_ledger(ledger, password=password.encode()),
    )


@app.command()
@explain_errors
def recover(
    ledger: LedgerArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    password: Password = "",
) -> None:
    """Fence a ledger, recover it and close it: its writer can write no more."""

    async def work(client: daybook.Client) -> int:
        reader = await client.open_ledger(ledger, recover=True, password=password.encode())
        return reader.last_add_confirmed

    last = with_client(find_cluster(directory, zookeeper, cluster), work)
    out.print(f"ledger {ledger} is closed at entry {last}")


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

    async def work(client: daybook.Client) -> LedgerReport:
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Progress(*columns, TimeElapsedColumn(), console=err) as progress:
            task = progress.add_task(f"ledger {ledger}", total=None)

            def on_progress(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            return await verify_ledger(client, ledger, on_progress)

    report = with_client(find_cluster(directory, zookeeper, cluster), work)
    if as_json:
        out.print_json(json.dumps(report.record()))
    else:
        out.print(_verify_table(report))
    if not report.is_whole:
        raise typer.Exit(1)


def _verify_table(report: LedgerReport) -> Table:
    table = Table("bookie", "copies owed", "found", "missing", "damaged", "unreadable because")
    for copy in report.copies:
        row: list[Any] = [copy.owed, copy.found, len(copy.missing), len(copy.damaged)]
        style = "" if copy.is_whole else "red"
        table.add_row(copy.bookie, *(f"{number:,}" for number in row), copy.error, style=style)
    return table
