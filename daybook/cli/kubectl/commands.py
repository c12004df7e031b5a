"""The commands of `kubectl daybook`: what is typed, and what is printed. What is judged is in the modules beside."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from daybook.cli.connection import Json, explain_errors
from daybook.cli.kubectl.api import Api, ApiError, Object
from daybook.cli.kubectl.options import Context, Everywhere, Kubeconfig, Namespace, connect
from daybook.cli.kubectl.topic.commands import app as topic_app
from daybook.cli.kubectl.world import World, observe, place
from daybook.cli.output import err, out

app = typer.Typer(
    name="kubectl daybook",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    help="Pools of bookies, ledgers and topics: how they are, why, and what to do.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(no_args_is_help=True, help="Look at ledgers.")
recover_app = typer.Typer(no_args_is_help=True, help="See what lacks replicas, and its repair.")
app.add_typer(ledger_app, name="ledger")
app.add_typer(recover_app, name="recover")
app.add_typer(topic_app, name="topic")

PoolName = Annotated[str, typer.Argument(metavar="[POOL]", help="default: all pools")]


def _pools(world: World, name: str) -> list[Object]:
    """The pools that are meant. Raises ApiError when there is none of that name."""
    found = [pool for pool in world.pools if name in ("", place(pool)[1])]
    if name and not found:
        known = ", ".join(place(pool)[1] for pool in world.pools) or "none"
        msg = f"there is no BookiePool {name!r} here (there are: {known}); try another namespace with -n NAMESPACE or -A"
        raise ApiError(msg)
    return found


def _no_pools(namespace: str) -> str:
    """What is printed where there are no pools; most often they are in another namespace."""
    if not namespace:
        return "there are no pools in any namespace"
    return f"there are no pools in namespace {namespace}; try another one with -n NAMESPACE, or all with -A"


def _the_pool(world: World, name: str) -> Object:
    """The pool that is meant, where one must be. Raises ApiError."""
    found = _pools(world, name)
    if len(found) != 1:
        known = ", ".join("/".join(place(pool)) for pool in found) or "none"
        msg = f"which pool? There are: {known}"
        raise ApiError(msg)
    return found[0]


@app.command()
@explain_errors
def status(
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """The pools of a namespace, or of all, at a glance; exit code 1 if something is wrong."""
    from daybook.cli.kubectl import views
    from daybook.cli.kubectl.explain import deepest, explain

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    world = observe(api.listing, where)
    findings = explain(world)
    if as_json:
        records = [views.status_record(pool) for pool in world.pools]
        out.print_json(json.dumps({"pools": records, "findings": [each.record() for each in findings]}))
    else:
        out.print(views.status_table(world.pools) if world.pools else _no_pools(where))
        if "Pod" not in world.unread:
            out.print(f"{views.control_line(world, 'operator')}, {views.control_line(world, 'zookeeper')}")
        for finding in deepest(findings):
            out.print(f"{finding.subject}: {finding.what}", style="yellow", markup=False, soft_wrap=True)
        _tell_unread(world)
    if findings:
        err.print("`kubectl daybook explain` says why, and what to do")
        raise typer.Exit(1)


@app.command()
@explain_errors
def bookies(
    pool: PoolName = "",
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Every bookie: where it stands, whether it takes writes, how full it is."""
    from daybook.cli.kubectl import views

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    pools = _pools(observe(api.listing, where), pool)
    if as_json:
        out.print_json(json.dumps(views.bookie_records(pools)))
    else:
        out.print(views.bookie_table(pools))


@ledger_app.command("map")
@explain_errors
def ledger_map(
    ledger: Annotated[
        str, typer.Argument(metavar="[LEDGER]", help="name of the resource; default: all")
    ] = "",
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Which bookies, in which racks, hold which entries; what is missing is marked."""
    from daybook.cli.kubectl import views

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    found = [each for each in api.listing("Ledger", where) if ledger in ("", place(each)[1])]
    if ledger and not found:
        msg = f"there is no Ledger {ledger!r} here: `kubectl get ledgers -A` lists all"
        raise ApiError(msg)
    if as_json:
        out.print_json(json.dumps([{"name": place(each)[1], **(each.get("status") or {})} for each in found]))
        return
    for each in found:
        out.print(views.ledger_map(each))


@app.command()
@explain_errors
def drain(
    pool: Annotated[str, typer.Argument(help="the pool")] = "",
    to: Annotated[int | None, typer.Option("--to", help="bookies to keep; default: one less")] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="keep all bookies that the pool still has")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="only follow the drain that is under way")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="follow the drain to its end")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Take the highest bookies out of a pool: read-only, copied elsewhere, forgotten, then stopped.

    The operator does it, one bookie after the other; interrupt this command as you like. --cancel calls it off for all that
    are not forgotten yet.
    """
    from daybook.cli.kubectl.drain import drain_line, plan_drain

    api, where = connect(namespace, kubeconfig, context)
    world = observe(api.listing, where)
    chosen = _the_pool(world, pool)
    if not watch:
        have = (chosen.get("status") or {}).get("replicas", chosen["spec"]["replicas"])
        after = have if cancel else chosen["spec"]["replicas"] - 1 if to is None else to
        if not cancel:
            plan = plan_drain(world, chosen, after)
            if plan.refusals:
                raise ApiError("\n".join(plan.refusals))
            out.print(
                f"{plan.before} → {plan.after} bookies; these leave, in this order: {', '.join(plan.leaving)}"
            )
            for warning in plan.warnings:
                err.print(f"[yellow]mind:[/] {warning}", soft_wrap=True)
            if not yes and not typer.confirm("Drain them?"):
                raise typer.Exit(1)
        api.scale("BookiePool", *place(chosen), after)
        out.print(f"the pool is to have {after} bookies")
    if wait or watch:
        _follow(api.watch("BookiePool", *place(chosen)), drain_line)


@recover_app.command("plan")
@explain_errors
def recover_plan(
    pool: PoolName = "",
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """What lacks replicas, which Jobs repair it, and what the rest waits for."""
    from rich.table import Table

    from daybook.cli.kubectl.recovery import recovery_plan

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    world = observe(api.listing, where)
    plans = [recovery_plan(world, each) for each in _pools(world, pool)]
    if as_json:
        out.print_json(json.dumps(plans))
        return
    for plan in plans:
        table = Table(show_header=False, title=plan["pool"])
        for name, value in plan.items():
            if name not in ("pool", "jobs", "ledgers") and value not in ([], {}, None, ""):
                table.add_row(name, str(value))
        for job in plan["jobs"]:
            table.add_row(
                f"Job {job['name']}",
                f"{len(job['ledgers'])} ledgers, since {job['startedAt']}, {job['failed']} failed",
            )
        for ledger in plan["ledgers"]:
            table.add_row(f"Ledger {ledger['name']}", f"lacks {', '.join(ledger['missing']) or 'a replica'}")
        out.print(table)


@recover_app.command("watch")
@explain_errors
def recover_watch(
    pool: Annotated[str, typer.Argument(metavar="[POOL]", help="the pool")] = "",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Follow a pool's repair until everything is fully replicated."""
    from daybook.cli.kubectl.recovery import recovery_line

    api, where = connect(namespace, kubeconfig, context)
    chosen = _the_pool(observe(api.listing, where), pool)
    _follow(api.watch("BookiePool", *place(chosen)), recovery_line)


@app.command()
@explain_errors
def explain(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="a pool or a ledger; default: all")] = "",
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Why something is not as it should be, with evidence and the next command; exit code 1 if something is."""
    from daybook.cli.kubectl import explain as explaining
    from daybook.cli.kubectl import views

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    world = observe(api.listing, where)
    if name and not any(place(each)[1] == name for each in (*world.pools, *world.ledgers)):
        msg = f"there is no BookiePool and no Ledger {name!r} here; try another namespace with -n NAMESPACE or -A"
        raise ApiError(msg)
    findings = explaining.explain(world, name)
    if as_json:
        out.print_json(json.dumps([finding.record() for finding in findings]))
    else:
        for finding in findings:
            out.print(views.tree_of(finding), soft_wrap=True)
        _tell_unread(world)
    if findings:
        raise typer.Exit(1)
    if not as_json:
        out.print("everything is as it should be" if world.pools else _no_pools(where))


@app.command()
@explain_errors
def report(
    to: Annotated[Path, typer.Option("--to", help="the file to write")] = Path("daybook-report.tar.gz"),
    lines: Annotated[int, typer.Option(min=0, max=100_000, help="of each log")] = 500,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Pack resources, events and logs for an issue, without secrets, addresses and names of machines.

    Look through it before you send it.
    """
    from importlib.metadata import version

    from daybook.cli.kubectl.explain import explain as find
    from daybook.cli.kubectl.report import bundle, pack
    from daybook.runtime.clock import unix_ms

    api, where = connect(namespace, kubeconfig, context, everywhere=everywhere)
    with err.status("reading resources and logs"):
        world = observe(api.listing, where)
        logs = dict(_logs(api, world, where, lines)) if lines else {}
    about = {"daybook": version("daybook"), "namespace": where or "all"}
    files = bundle(world, find(world), logs, about)
    to.write_bytes(pack(files, to.name.partition(".")[0], unix_ms() // 1000))
    out.print(f"{to}: {len(files)} files; read it before you send it")


def _logs(api: Api, world: World, namespace: str, lines: int) -> Iterator[tuple[str, str]]:
    """The ends of all logs, and of the containers before a restart; what cannot be read says why."""
    for pod in world.pods:
        its_namespace, name = place(pod)
        is_control = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component") in (
            "operator",
            "zookeeper",
        )
        if namespace and its_namespace != namespace and not is_control:
            continue
        statuses: list[Object] = (pod.get("status") or {}).get("containerStatuses") or [{}]
        for previous in (False, True) if statuses[0].get("restartCount") else (False,):
            try:
                text = api.log(its_namespace, name, lines, previous=previous)
            except ApiError as error:
                text = f"this log could not be read: {error}\n"
            yield f"{its_namespace}.{name}{'.previous' if previous else ''}", text


def _follow(objects: Iterator[Object], line: Callable[[Object], tuple[str, bool]]) -> None:
    """Print each line that differs from the one before, until it says that it is done."""
    before = ""
    for each in objects:
        text, done = line(each)
        if text != before:
            out.print(text, markup=False, soft_wrap=True)
            before = text
        if done:
            return


def _tell_unread(world: World) -> None:
    for kind, why in world.unread.items():
        err.print(f"[yellow]without {kind}s:[/] {why}", soft_wrap=True)
