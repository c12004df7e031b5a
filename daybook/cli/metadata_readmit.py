"""`daybook metadata readmit`: a bookie that is younger than the export starts again after a restore, with its disks (rule 68)."""

from typing import TYPE_CHECKING, Annotated

import typer

from daybook.cli.connection import Cluster, Directory, ZooKeeper, explain_errors, find_cluster, with_client
from daybook.cli.output import err, out
from daybook.core.ids import LedgerId

if TYPE_CHECKING:
    import daybook
    from daybook.metadata.backup.readmission import Readmission


@explain_errors
def readmit(
    bookie: Annotated[str, typer.Argument(help="the bookie's id", show_default=False)],
    incarnation: Annotated[
        str, typer.Argument(help="of the cookie on its disks, as the bookie's log says", show_default=False)
    ],
    pool_uid: Annotated[
        str, typer.Option(help="of the cookie on its disks, where the bookie's log has one")
    ] = "",
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be done, and change nothing")
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up", help="undo it for a bookie that did not start, so that ledgers begin again"
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    wait: Annotated[float, typer.Option(help="seconds to wait for the bookie")] = 600.0,
) -> None:
    """Let a bookie that is younger than the export start with its disks, before anything begins after a restore.

    The bookie's log has the whole command. No ledger begins until the bookie runs: the command waits for it, and continues the ids
    above what it has. It refuses where a ledger has begun since the restore, or where the bookie was replaced after the export.
    """
    where = find_cluster(directory, zookeeper, cluster)

    async def check(client: "daybook.Client") -> "Readmission":
        from daybook.metadata.backup.readmission import Readmissions

        readmissions = Readmissions(client.store, client.layout)
        return await readmissions.check(await readmissions.cookie_of(bookie, incarnation, pool_uid))

    planned = with_client(where, check)
    err.print(_in_words(planned))
    if dry_run:
        return
    if give_up:
        if planned.counter is not None:
            msg = f"no readmission of {bookie} has begun: there is nothing to give up"
            raise typer.BadParameter(msg, param_hint="--give-up")
        with_client(where, lambda client: _give_up(client, planned))
        out.print(f"{bookie} is not readmitted; the next ledger is {planned.next_id}")
        return
    if not yes and not typer.confirm(
        f"May no ledger begin until {bookie} runs, with the disks that have this cookie?"
    ):
        raise typer.Exit(1)
    with err.status(f"waiting for {bookie}: start it if it does not run"):
        next_id = with_client(where, lambda client: _readmit(client, planned, wait))
    out.print(f"{bookie} is readmitted; the next ledger is {next_id}")


def _in_words(planned: "Readmission") -> str:
    begun = (
        "goes on: no ledger begins now" if planned.counter is None else "begins: no ledger begins meanwhile"
    )
    return (
        f"the readmission of {planned.cookie.bookie} {begun}; ids continue at {planned.next_id} or above what it has; {len(planned.unclosed):,} ledgers "
        "that are not closed will be closed only after it was asked"
    )


async def _give_up(client: "daybook.Client", planned: "Readmission") -> None:
    from daybook.metadata.backup.readmission import Readmissions

    await Readmissions(client.store, client.layout).give_up(planned)


async def _readmit(client: "daybook.Client", planned: "Readmission", wait_s: float) -> LedgerId:
    from daybook.cli.asked_bookies import AskedBookies
    from daybook.metadata.backup.readmission import Readmissions

    readmissions, asked, bookie = (
        Readmissions(client.store, client.layout),
        AskedBookies(client),
        planned.cookie.bookie,
    )
    await readmissions.begin(planned)
    await asked.until_registered(
        [bookie], wait_s, "start it and give the same command again, or the command with --give-up"
    )
    next_id = await readmissions.end(planned, highest_held=await asked.highest_held([bookie]))
    await asked.accept_roll_back(bookie)
    return next_id
