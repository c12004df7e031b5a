"""What people see of pools, bookies and ledgers: tables and trees; and the same as JSON."""

from collections.abc import Iterable
from typing import Any, Final

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.explain import Finding
from daybook.cli.kubectl.world import World, bookies_of, condition, is_ready, place, rack_of, status_of

GIB: Final = 1 << 30
_STATES: Final = {
    "Writable": "green",
    "ReadOnly": "yellow",
    "Draining": "yellow",
    "Starting": "yellow",
    "Stopped": "dim",
    "Unknown": "yellow",
}
_STATUS: Final = {"True": "green", "False": "red", "Unknown": "yellow"}


def status_record(pool: Object) -> dict[str, Any]:
    """One pool at a glance."""
    status = status_of(pool)
    namespace, name = place(pool)
    return {
        "namespace": namespace,
        "pool": name,
        "phase": status.get("phase", "Pending"),
        "desired": pool["spec"].get("replicas", 0),
        "ready": status.get("readyReplicas", 0),
        "writable": status.get("writableReplicas"),
        "racks": status.get("rackCount", len(status.get("racks") or {})),
        "underReplicated": (status.get("recovery") or {}).get("underReplicated", 0),
        "fullyReplicated": condition(pool, "FullyReplicated")["status"],
        "image": status.get("currentImage", ""),
        "message": status.get("message", ""),
    }


def status_table(pools: Iterable[Object]) -> RenderableType:
    """All pools."""
    table = Table(
        "namespace",
        "pool",
        "phase",
        "ready",
        "writable",
        "racks",
        "under-replicated",
        "fully replicated",
        "message",
    )
    for pool in pools:
        record = status_record(pool)
        verdict = record["fullyReplicated"]
        table.add_row(
            record["namespace"],
            record["pool"],
            record["phase"],
            f"{record['ready']}/{record['desired']}",
            f"{'?' if record['writable'] is None else record['writable']}/{record['desired']}",
            str(record["racks"]),
            str(record["underReplicated"]),
            f"[{_STATUS.get(verdict, 'yellow')}]{verdict}[/]",
            escape(record["message"]),
        )
    return table


def control_line(world: World, component: str) -> str:
    """How many pods of the operator, or of ZooKeeper, are ready."""
    pods = world.component(component)
    ready = sum(map(is_ready, pods))
    colour = "green" if pods and ready == len(pods) else "red" if not ready else "yellow"
    return f"{component}: [{colour}]{ready} of {len(pods)} ready[/]"


def bookie_records(pools: Iterable[Object]) -> list[dict[str, Any]]:
    """The bookies of all pools."""
    return [{"namespace": place(pool)[0], **bookie} for pool in pools for bookie in bookies_of(pool)]


def bookie_table(pools: Iterable[Object]) -> RenderableType:
    """The bookies of all pools: where they stand, whether they take writes, how full they are."""
    table = Table("bookie", "zone/rack", "node", "state", "ready", "used", "ledgers", "message")
    for bookie in bookie_records(pools):
        state = bookie.get("state", "Unknown")
        table.add_row(
            bookie["id"],
            rack_of(bookie),
            bookie.get("node", ""),
            f"[{_STATES.get(state, 'red')}]{state}[/]",
            "yes" if bookie.get("ready") else "no",
            _used(bookie),
            _number(bookie.get("ledgers")),
            escape(bookie.get("message", "")),
        )
    return table


def _used(bookie: dict[str, Any]) -> str:
    if not bookie.get("capacityBytes"):
        return ""
    return f"{bookie.get('usedBytes', 0) / GIB:.1f} of {bookie['capacityBytes'] / GIB:.1f} GiB"


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def ledger_map(ledger: Object) -> RenderableType:
    """Which bookies, in which racks, hold which entries of a ledger; what is missing is marked."""
    status = status_of(ledger)
    namespace, name = place(ledger)
    fragments = status.get("fragments", ())
    last = status.get("lastEntry")
    head = f"{namespace}/{name}: ledger {status.get('ledgerId', '?')}, {status.get('quorum', '')} {status.get('state', 'Pending')}"
    table = Table(
        "entries",
        *(f"position {n}" for n in range(max((len(f["bookies"]) for f in fragments), default=0))),
        title=head,
    )
    for number, fragment in enumerate(fragments):
        following = fragments[number + 1]["firstEntry"] - 1 if number + 1 < len(fragments) else last
        end = "…" if following is None or following < fragment["firstEntry"] else f"{following:,}"
        missing, racks = set(fragment.get("missing") or ()), fragment.get("racks") or ()
        cells = []
        for position, bookie in enumerate(fragment["bookies"]):
            where = f"\n[dim]{escape(racks[position])}[/]" if position < len(racks) else ""
            cells.append(f"[red]{bookie} missing[/]{where}" if bookie in missing else f"{bookie}{where}")
        table.add_row(f"{fragment['firstEntry']:,} – {end}", *cells)
    return table


def tree_of(finding: Finding) -> Tree:
    """A finding, its evidence, the next command, and what lies beneath."""
    tree = Tree(f"[bold]{escape(finding.subject)}[/]: {escape(finding.what)}", guide_style="dim")
    _grow(tree, finding)
    return tree


def _grow(tree: Tree, finding: Finding) -> None:
    for evidence in finding.evidence:
        tree.add(f"[dim]{escape(evidence)}[/]")
    for cause in finding.causes:
        _grow(tree.add(f"[bold]{escape(cause.subject)}[/]: {escape(cause.what)}"), cause)
    if finding.next_command:
        tree.add(f"next: [cyan]{escape(finding.next_command)}[/]")
