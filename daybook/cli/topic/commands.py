"""`daybook topic create|delete|list|stats|explain|skip|seek|unload|policy`: everything about topics but their messages."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table

import daybook
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
from daybook.cli.listing import print_json_array, print_tables
from daybook.cli.output import err, out
from daybook.cli.topic.brokers import admin_of
from daybook.cli.topic.listing import topic_records
from daybook.cli.topic.messages import SubscriptionArgument, TopicArgument, consume, peek, produce
from daybook.cli.topic.partitions import partitions_of
from daybook.client.broker_admin import Admin, subscription_path
from daybook.core.errors import DaybookError
from daybook.core.topics.name import TopicName
from daybook.metadata.partitions import PartitionManager
from daybook.metadata.topics import TopicManager

if TYPE_CHECKING:
    from daybook.cli.topic.explain.facts import Snapshot

app = typer.Typer(no_args_is_help=True, help="Create, write, read and manage topics.")
app.command()(produce)
app.command()(consume)
app.command()(peek)


@app.command()
@explain_errors
def create(
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=0, help="number of partitions; 0: not partitioned")] = 0,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Create a topic. Brokers also create one when it is first used, unless their settings say otherwise."""
    name = TopicName.parse(topic)
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    if partitions:
        admin.ask("PUT", name, "partitions", partitions)
    else:
        admin.ask("PUT", name)
    out.print(f"topic {name} is created" + (f" with {partitions} partitions" if partitions else ""))


@app.command("list")
@explain_errors
def list_topics(
    namespace: Annotated[
        str | None, typer.Argument(metavar="[TENANT/NAMESPACE]", help="default: every namespace")
    ] = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """List topics and what ZooKeeper has about them; each partition is a topic."""

    async def work(client: "daybook.Client") -> None:
        records = topic_records(TopicManager(client.store, client.layout), namespace)
        if as_json:
            await print_json_array(records)
        else:
            titles = ("topic", "state", "ledgers", "entries", "bytes", "subscriptions")
            await print_tables(titles, (_row(record) async for record in records))

    with_client(find_cluster(directory, zookeeper, cluster), work)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    numbers = (f"{record[name]:,}" for name in ("ledgers", "closed_entries", "closed_bytes"))
    return (record["topic"], record["state"], *numbers, ", ".join(record["subscriptions"]))


@app.command()
@explain_errors
def stats(
    topic: TopicArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Show what the owner knows of a topic: sizes, producers, subscriptions and their backlogs; with --json also rates."""
    name = TopicName.parse(topic)
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    found = {str(each): admin.ask("GET", each, "stats") for each in _parts(admin, name)}
    if as_json:
        out.print_json(json.dumps(found))
        return
    table = Table(
        "topic",
        "messages in",
        "bytes in",
        "stored bytes",
        "producers",
        "subscriptions",
        "durability",
        "degrade",
    )
    for each, record in found.items():
        table.add_row(
            each,
            f"{record.get('msgInCounter', 0):,}",
            f"{record.get('bytesInCounter', 0):,}",
            f"{record.get('storageSize', 0):,}",
            f"{len(record.get('publishers', ())):,}",
            f"{len(record.get('subscriptions', {})):,}",
            str(record.get("durability", "–")),
            str(record.get("degrade", "–")) + (", degraded now" if record.get("isDegraded") else ""),
        )
    out.print(table)
    out.print(_subscriptions(found))


def _subscriptions(found: dict[str, Any]) -> Table:
    table = Table("topic", "subscription", "type", "backlog", "unacknowledged", "consumers")
    for each, record in found.items():
        for subscription, known in sorted(record.get("subscriptions", {}).items()):
            table.add_row(
                each.rpartition("/")[2],
                subscription,
                str(known.get("type") or "–"),
                f"{known.get('msgBacklog', 0):,}",
                f"{known.get('unackedMessages', 0):,}",
                f"{len(known.get('consumers', ())):,}",
            )
    return table


@app.command()
@explain_errors
def explain(
    topic: TopicArgument,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Why a topic is not as it should be, with evidence and the next command; exit code 1 if something is wrong."""
    from daybook.cli.topic.explain.dialect import SHELL
    from daybook.cli.topic.explain.observe import observe
    from daybook.cli.topic.explain.printing import print_explained

    name = TopicName.parse(topic)

    async def work(client: "daybook.Client") -> "list[Snapshot]":
        partitioned = await PartitionManager(client.store, client.layout).read(name)
        if partitioned is not None:
            partitioned.value.check_stays(name)
        parts = partitions_of(name, partitioned.value.partitions if partitioned else 0)
        return [await observe(client, part) for part in parts]

    snapshots = with_client(find_cluster(directory, zookeeper, cluster), work)
    print_explained(snapshots, SHELL, as_json=as_json)


@app.command()
@explain_errors
def skip(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    count: Annotated[int | None, typer.Argument(min=1, help="so many messages; default: all of them")] = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Acknowledge the next messages of a subscription without anybody receiving them; of a partition if COUNT is given."""
    name = TopicName.parse(topic)
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    parts = _parts(admin, name)
    if count is not None and parts != [name]:
        msg = f"{name} has {len(parts)} partitions, each with an order of its own: name one of them, like {parts[0]}"
        raise DaybookError(msg)
    for each in parts:
        action = "skip_all" if count is None else f"skip/{count}"
        admin.ask("POST", each, subscription_path(subscription, action))
    out.print(
        f"subscription {subscription} of {name} skipped {'its backlog' if count is None else f'{count} messages'}"
    )


@app.command()
@explain_errors
def seek(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[
        str,
        typer.Argument(help="earliest, latest, a time like 2026-01-31T12:00, or LEDGER:ENTRY of a partition"),
    ],
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Move a subscription: its consumers continue behind that position, and receive again what they had acknowledged."""
    name = TopicName.parse(topic)
    ledger_id, _, entry_id = to.partition(":")
    is_position = ledger_id.isdecimal() and entry_id.isdecimal()
    action, body = "skip_all", None
    if is_position:
        action, body = "resetcursor", {"ledgerId": int(ledger_id), "entryId": int(entry_id)}
    elif to != "latest":
        action = f"resetcursor/{_time_ms(to)}"
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    parts = _parts(admin, name)
    if is_position and parts != [name]:
        msg = f"{name} has {len(parts)} partitions: a position is of one of them, so name it, like {parts[0]}"
        raise DaybookError(msg)
    for each in parts:
        admin.ask("POST", each, subscription_path(subscription, action), body)
    out.print(f"subscription {subscription} of {name} continues at {to}")


def _time_ms(text: str) -> int:
    """Milliseconds since 1970; without an offset the time is local."""
    if text == "earliest":
        return 0
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        msg = f"{text!r} is no position: use earliest, latest, a time like 2026-01-31T12:00, or LEDGER:ENTRY"
        raise DaybookError(msg) from error


@app.command()
@explain_errors
def unload(
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option("--to", metavar="BROKER", help="the id of its next owner; default: the least busy one"),
    ] = "",
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Hand a topic over to another broker, with all topics of its bundle; their clients continue there at once."""
    name = TopicName.parse(topic)
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    for each in _parts(admin, name):
        admin.ask("PUT", each, "unload" + (f"?destinationBroker={quote(to, safe='')}" if to else ""))
    out.print(f"topic {name} is unloaded" + (f" to {to}" if to else ""))


@app.command()
@explain_errors
def delete(
    topic: TopicArgument,
    force: Annotated[bool, typer.Option("--force", help="also with producers or subscriptions")] = False,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Delete a topic with all its messages, for good."""
    name = TopicName.parse(topic)
    admin = _admin(find_cluster(directory, zookeeper, cluster))
    is_partitioned = admin.ask("GET", name, "partitions")["partitions"] > 0
    admin.ask(
        "DELETE", name, ("partitions" if is_partitioned else "") + f"?force={'true' if force else 'false'}"
    )
    out.print(f"topic {name} is deleted")


@app.command()
@explain_errors
def policy(
    topic: TopicArgument,
    set_values: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="may be given more than once")
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="the namespace's or the brokers' value holds again"),
    ] = None,
    directory: Directory = None,
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Show or change what is set for a topic: durability, degrade, retentionMs, ttlMs, backlogBytes and others.

    Example: `daybook topic policy orders --set durability=sync --set degrade=never --set retentionMs=-1`
    """
    name = TopicName.parse(topic)
    changes = {**dict.fromkeys(unset or ()), **dict(map(_name_value, set_values or ()))}
    from daybook.cli.topic.policies import change_policy

    found = with_client(
        find_cluster(directory, zookeeper, cluster), lambda client: change_policy(client, name, changes)
    )
    for warning in sorted({each.warning for each in found if each.warning}):
        err.print(f"[yellow]warning:[/] {warning}", soft_wrap=True)
    if as_json:
        out.print_json(json.dumps({str(each.topic): each.values for each in found}))
        return
    table = Table("topic", "setting", "value", "set for")
    for each in found:
        for setting, value in each.holds.items():
            where = "the topic" if setting in each.values else "its namespace, or the release's default"
            table.add_row(each.topic.local, setting, str(value), where)
    out.print(table)


def _name_value(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals or not name:
        msg = f"{item!r} is not NAME=VALUE"
        raise typer.BadParameter(msg, param_hint="--set")
    return name, int(text) if text.removeprefix("-").isdecimal() else text


def _admin(where: Where) -> Admin:
    """The admin HTTP of the brokers that are registered now."""
    return with_client(where, admin_of)


def _parts(admin: Admin, topic: TopicName) -> list[TopicName]:
    """The partitions of a topic, or the topic itself."""
    count = admin.ask("GET", topic, "partitions")["partitions"]
    return partitions_of(topic, count)
