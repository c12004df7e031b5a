"""`daybook metadata …`: copy a cluster's metadata into a file, and restore it from there after ZooKeeper lost its data (rule 68)."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daybook.cli.connection import (
    Cluster,
    Directory,
    Json,
    ZooKeeper,
    explain_errors,
    find_cluster,
    with_client,
    with_store,
)
from daybook.cli.listing import print_json_array, print_tables
from daybook.cli.metadata_readmit import readmit
from daybook.cli.output import err, out
from daybook.cli.progress import progress
from daybook.core.ids import LedgerId
from daybook.runtime.clock import unix_ms

if TYPE_CHECKING:
    import daybook
    from daybook.client.inventory import Unnamed
    from daybook.metadata.backup.restore import Export

app = typer.Typer(
    no_args_is_help=True, help="Copy the metadata of a cluster into a file, and restore it from there."
)

File = Annotated[Path, typer.Argument(help="the file of the export", show_default=False)]


@app.command("export")
@explain_errors
def export_metadata(
    file: File,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Write all metadata that ZooKeeper keeps into a file, as it is at one instant, while the cluster works.

    Example: `daybook metadata export metadata-$(date +%F).gz`. The file holds no entries: bookies keep those. It holds hashes
    of passwords, so that only its owner may read it. Entries that are acknowledged after an export are on the bookies;
    ledgers that begin after it are not in the file.
    """
    from daybook.metadata.backup.file import Header, create
    from daybook.metadata.backup.snapshot import open_snapshot, read_snapshot
    from daybook.metadata.instance import read_instance
    from daybook.metadata.layout import Layout
    from daybook.metadata.store.store import MetadataStore

    where = find_cluster(directory, zookeeper, cluster)
    layout = Layout(where.cluster)

    async def work(store: MetadataStore) -> int:
        instance = await read_instance(store, layout)
        with create(file) as writer, open_snapshot() as snapshot:
            at_ms = unix_ms()
            with progress("reading ZooKeeper", "{task.completed:,} nodes") as report:
                await read_snapshot(store, layout, snapshot, report)
            nodes = len(snapshot)
            writer.begin(Header(layout.cluster, instance.instance_id, at_ms))
            with progress("writing the file", "{task.completed:,} nodes") as report:
                for number, node in enumerate(snapshot):
                    writer.write(node._replace(path=node.path.removeprefix(layout.root)))
                    if number % 1000 == 0:
                        report(number, nodes)
            writer.end()
            return nodes

    nodes = with_store(where, work)
    out.print(f"{nodes:,} nodes of cluster {where.cluster} are in {file} ({file.stat().st_size:,} bytes)")


@app.command("import")
@explain_errors
def import_metadata(
    file: File,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="delete the metadata that the cluster has in ZooKeeper first")
    ] = False,
    lost: Annotated[
        list[str] | None,
        typer.Option(metavar="BOOKIE", help="this bookie will not come back; may be given more than once"),
    ] = None,
    wait: Annotated[float, typer.Option(help="seconds to wait for the bookies")] = 600.0,
) -> None:
    """Restore the metadata of an export into a ZooKeeper that lost its data; bookies delete nothing before `confirm`.

    Stop brokers and all other clients first. Bookies have to run at the end: the command waits for them, and asks each for its
    highest ledger, so that no id is given out twice. docs/operations/restore.md has the whole procedure.
    """
    from daybook.metadata.backup.restore import check_export, import_nodes
    from daybook.metadata.layout import Layout
    from daybook.metadata.store.store import MetadataStore

    where = find_cluster(directory, zookeeper, cluster)
    with err.status(f"checking {file}"):
        export = check_export(file)
    unknown = sorted(set(lost or ()) - set(export.bookies))
    if unknown:
        msg = f"the export has no bookie {', '.join(unknown)}; it has {', '.join(export.bookies) or 'none'}"
        raise typer.BadParameter(msg, param_hint="--lost")

    async def write(store: MetadataStore) -> None:
        with progress("writing ZooKeeper", "{task.completed:,} nodes") as report:
            await import_nodes(
                store, Layout(where.cluster), export, overwrite=overwrite, now_ms=unix_ms(), report=report
            )

    with_store(where, write)
    bookies = [bookie for bookie in export.bookies if bookie not in (lost or ())]
    with err.status(f"waiting for {', '.join(bookies)}: start them if they do not run"):
        next_id = with_client(where, lambda client: _let_ledgers_begin(client, export, bookies, wait))
    out.print(
        f"{export.nodes:,} nodes are restored; the next ledger is {next_id}; {export.unclosed:,} ledgers were not closed, "
        "and are IN_RECOVERY"
    )
    err.print(
        "bookies delete nothing until you confirm: `daybook metadata orphans` lists what they have and the metadata lacks"
    )


async def _let_ledgers_begin(
    client: "daybook.Client", export: "Export", bookies: list[str], wait_s: float
) -> LedgerId:
    """The last step of an import; the id of the next ledger."""
    from daybook.cli.asked_bookies import AskedBookies
    from daybook.metadata.backup.restore import finish

    asked = AskedBookies(client)
    await asked.until_registered(
        bookies,
        wait_s,
        "start them and import again with --overwrite; a bookie that is gone for good is named with --lost",
    )
    highest = await asked.highest_held(bookies)
    next_id = await finish(client.store, client.layout, export, highest_held=highest)
    for bookie in bookies:
        await asked.accept_roll_back(bookie)
    return next_id


@app.command()
@explain_errors
def orphans(
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """List what bookies have and the metadata does not name: ledgers, and copies of ledgers. It deletes nothing.

    After a restore these are the ledgers that began after the export. "elsewhere" means that the metadata has the ledger, on
    other bookies than these.
    """

    async def work(client: "daybook.Client") -> None:
        if as_json:
            await print_json_array(_records(_unnamed(client)))
        else:
            await print_tables(("ledger", "metadata", "entries", "bookies"), _rows(_unnamed(client)))

    with_client(find_cluster(directory, zookeeper, cluster), work)


async def _unnamed(client: "daybook.Client") -> "AsyncIterator[Unnamed]":
    """What the bookies with a cookie hold. Raises DaybookError if one does not run: the list would not be complete."""
    from daybook.cli.asked_bookies import AskedBookies
    from daybook.client.inventory import unnamed_ledgers

    bookies = list(await client.directory.cookies())
    async for each in unnamed_ledgers(client, AskedBookies(client), bookies):
        yield each


async def _records(found: "AsyncIterator[Unnamed]") -> AsyncIterator[dict[str, Any]]:
    async for each in found:
        yield asdict(each)


async def _rows(found: "AsyncIterator[Unnamed]") -> AsyncIterator[tuple[str, ...]]:
    async for each in found:
        where = "elsewhere" if each.is_in_metadata else "none"
        entries = f"{each.first_entry}-{each.last_entry}"
        yield str(each.ledger_id), where, entries, ", ".join(each.bookies)


@app.command()
@explain_errors
def confirm(
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """End a restore: from then on bookies delete what the metadata does not name, for good."""
    from daybook.metadata.hold import CollectionHold, end_hold, read_hold

    where = find_cluster(directory, zookeeper, cluster)

    async def count(client: "daybook.Client") -> tuple[CollectionHold | None, int, int]:
        hold = await read_hold(client.store, client.layout)
        if hold is None or not hold.is_held:
            return None, 0, 0
        found = [each.is_in_metadata async for each in _unnamed(client)]
        return hold, found.count(False), found.count(True)

    with err.status("asking the bookies what they have"):
        hold, ledgers, copies = with_client(where, count)
    if hold is None:
        out.print(
            "the metadata was not restored, or a restore is confirmed already: there is nothing to confirm"
        )
        return
    err.print(
        f"{ledgers:,} ledgers are not in the metadata; of {copies:,} ledgers some copies lie elsewhere than it says"
    )
    if not yes and not typer.confirm("May bookies delete for good what the metadata does not name?"):
        raise typer.Exit(1)
    ended = hold
    with_client(where, lambda client: end_hold(client.store, client.layout, ended))
    out.print(
        "the restore is confirmed: the next garbage collection of each bookie deletes what the metadata does not name"
    )


app.command()(readmit)
