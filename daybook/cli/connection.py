"""How a command finds its cluster: `--dir` of a local one, or ZooKeeper's address and the cluster's name."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from rich.console import Console

import daybook
from daybook.cli.cluster_file import ClusterError, ClusterFile
from daybook.core.errors import DaybookError

P = ParamSpec("P")
T = TypeVar("T")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Directory = Annotated[
    Path | None,
    typer.Option("--dir", envvar="DAYBOOK_DIR", help="directory of a local cluster (`daybook up --dir DIR`)"),
]
ZooKeeper = Annotated[
    str | None, typer.Option("--zookeeper", envvar="DAYBOOK_ZOOKEEPER", help="host:port[,…] of ZooKeeper")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", envvar="DAYBOOK_CLUSTER", help="name of the cluster")
]
Password = Annotated[
    str,
    typer.Option("--password", envvar="DAYBOOK_PASSWORD", help="password of the ledger", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster to connect to."""

    zookeeper: str
    cluster: str

    def connect(self) -> daybook.Client:
        """A client of it, to be used with `async with`."""
        return daybook.connect(self.zookeeper, cluster=self.cluster)


def find_cluster(directory: Path | None, zookeeper: str | None, cluster: str | None) -> Where:
    """The cluster that the options name. Raises ClusterError when they name none."""
    if zookeeper is not None:
        return Where(zookeeper, cluster or "daybook")
    if directory is None:
        msg = "which cluster? Give --dir DIR of a local one, or --zookeeper HOST:PORT and --cluster NAME"
        raise ClusterError(msg)
    file = ClusterFile.read(directory)
    return Where(file.zookeeper, cluster or file.cluster)


def explain_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turn the errors that Daybook raises on purpose into one red line and exit code 1."""

    @wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except (DaybookError, ClusterError, OSError) as error:
            err.print(f"[bold red]error:[/] {error}", markup=True, soft_wrap=True)
            raise typer.Exit(1) from error

    return wrapper


def with_client(where: Where, work: Callable[[daybook.Client], Awaitable[T]]) -> T:
    """Run `work` with a connected client."""

    async def run() -> T:
        async with where.connect() as client:
            return await work(client)

    coroutine: Coroutine[Any, Any, T] = run()
    return asyncio.run(coroutine)
