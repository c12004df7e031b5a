"""`kubectl daybook topic list|stats|backlog|owner|unload|explain`: what is typed, and what is printed."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from daybook.cli.connection import Json, explain_errors
from daybook.cli.kubectl.api import Api, Object
from daybook.cli.kubectl.options import Context, Everywhere, Kubeconfig, Namespace, connect
from daybook.cli.output import err, out
from daybook.cli.topic.partitions import partitions_of
from daybook.core.topics.name import TopicName

if TYPE_CHECKING:
    from daybook.cli.kubectl.topic.pods import PodAdmin
    from daybook.client.topic_reports import BrokerReport, TopicReport

app = typer.Typer(
    no_args_is_help=True, help="See topics and their backlogs, hand them over, and find out what is wrong."
)

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or its last part")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="DAYBOOK_TOKEN_FILE",
        help="file with the token for brokers that ask who one is",
    ),
]


class Brokers(NamedTuple):
    """What a command asks."""

    api: Api
    namespace: str
    pods: Sequence[Object]
    admin: "PodAdmin"


def _brokers(
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    token_file: Path | None,
    *,
    everywhere: bool = False,
) -> Brokers:
    """The brokers of a namespace. Raises ApiError, AdminError if there are none, OSError for a token that cannot be read."""
    from daybook.cli.kubectl.topic.pods import PodAdmin, broker_pods

    token = "" if token_file is None else token_file.read_text("utf-8").strip()
    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    pods = broker_pods(api, where)
    return Brokers(api, where, pods, PodAdmin(api, pods, token))


def _parts(admin: "PodAdmin", name: TopicName) -> list[TopicName]:
    """The partitions of a topic, or the topic itself. Raises AdminError, also if the topic is being deleted."""
    from daybook.client.broker_admin import AdminError
    from daybook.metadata.partitions import unfinished_deletion

    found = admin.ask("GET", name, "partitions")
    if found.get("deleted"):
        raise AdminError(unfinished_deletion(name))
    return partitions_of(name, found["partitions"])


@app.command("list")
@explain_errors
def list_topics(
    within: Annotated[
        str, typer.Argument(metavar="[TENANT/NAMESPACE]", help="default: every namespace")
    ] = "",
    token_file: TokenFile = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """The topics that brokers have in memory, and those that Topic resources name; needs a token of a superuser or of a job.

    Exit code 1 if a broker does not answer: then the list is not complete.
    """
    from daybook.cli.kubectl.topic import views
    from daybook.cli.kubectl.topic.listing import list_all

    brokers = _brokers(namespace, kubeconfig, context, token_file, everywhere=everywhere)
    records, failures = list_all(brokers.api, brokers.namespace, brokers.admin, within)
    if as_json:
        out.print_json(json.dumps(records))
    else:
        out.print(views.list_table(records))
    for broker, why in failures.items():
        err.print(f"[yellow]without the topics of broker {broker}:[/] {why}", soft_wrap=True)
    if failures:
        raise typer.Exit(1)


def _reports(brokers: Brokers, topic: str) -> "dict[str, tuple[BrokerReport, TopicReport]]":
    """What the owners report of a topic, or of its partitions."""
    from daybook.client.broker_topics import topic as ask

    parts = _parts(brokers.admin, TopicName.parse(topic))
    return {str(each): ask(brokers.admin, each) for each in parts}


def _print_reports(
    found: "dict[str, tuple[BrokerReport, TopicReport]]",
    table: Callable[[Mapping[str, Any]], Any],
    *,
    as_json: bool,
) -> None:
    if as_json:
        records = {
            name: {
                "broker": broker.model_dump(mode="json", by_alias=True),
                **report.model_dump(mode="json", by_alias=True),
            }
            for name, (broker, report) in found.items()
        }
        out.print_json(json.dumps(records))
    else:
        out.print(table(found))


@app.command()
@explain_errors
def stats(
    topic: TopicArgument,
    token_file: TokenFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """What the owner knows of a topic: rates, sizes, producers, consumers, and the bookies that it writes to."""
    from daybook.cli.kubectl.topic import views

    found = _reports(_brokers(namespace, kubeconfig, context, token_file), topic)
    _print_reports(found, views.stats_table, as_json=as_json)


@app.command()
@explain_errors
def backlog(
    topic: TopicArgument,
    token_file: TokenFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """What waits for each subscription of a topic: how much, since when, and for whom."""
    from daybook.cli.kubectl.topic import views

    found = _reports(_brokers(namespace, kubeconfig, context, token_file), topic)
    _print_reports(found, views.backlog_table, as_json=as_json)


@app.command()
@explain_errors
def owner(
    topic: TopicArgument,
    token_file: TokenFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """The broker that owns a topic, with its pod and node."""
    from daybook.cli.kubectl.topic import views
    from daybook.cli.kubectl.topic.observe import owner_of

    brokers = _brokers(namespace, kubeconfig, context, token_file)
    parts = _parts(brokers.admin, TopicName.parse(topic))
    records = [views.owner_record(each, owner_of(brokers.admin, each), brokers.pods) for each in parts]
    if as_json:
        out.print_json(json.dumps(records))
    else:
        out.print(views.owner_table(records))


@app.command()
@explain_errors
def unload(
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option("--to", metavar="POD", help="the pod of its next owner; default: the least busy one"),
    ] = "",
    token_file: TokenFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Hand a topic over to another broker, with all topics of its bundle; their clients continue there at once."""
    from daybook.cli.kubectl.topic.pods import broker_named

    brokers = _brokers(namespace, kubeconfig, context, token_file)
    name = TopicName.parse(topic)
    query = f"?destinationBroker={quote(broker_named(brokers.pods, to), safe='')}" if to else ""
    for each in _parts(brokers.admin, name):
        brokers.admin.ask("PUT", each, f"unload{query}")
    out.print(f"topic {name} is unloaded" + (f" to {to}" if to else ""), markup=False, soft_wrap=True)


@app.command()
@explain_errors
def explain(
    topic: TopicArgument,
    token_file: TokenFile = None,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Why a topic is not as it should be, with evidence and the next command; exit code 1 if something is wrong."""
    from daybook.cli.kubectl.topic.observe import observe
    from daybook.cli.topic.explain.dialect import kubectl
    from daybook.cli.topic.explain.printing import print_explained
    from daybook.runtime.clock import unix_ms

    brokers = _brokers(namespace, kubeconfig, context, token_file)
    parts = _parts(brokers.admin, TopicName.parse(topic))
    snapshots = [
        observe(brokers.api, brokers.namespace, brokers.pods, brokers.admin, each, unix_ms())
        for each in parts
    ]
    print_explained(snapshots, kubectl(brokers.namespace), as_json=as_json)
