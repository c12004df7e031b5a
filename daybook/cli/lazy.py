"""A command group that imports a command only when it runs, so that help and completion are fast.

The libraries of a command take most of a second to import, too long for a person who asks for help, or a shell that
completes a word.
"""

from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

_CLUSTERS: Final = "Clusters"
_LEDGERS: Final = "Ledgers"
_TOPICS: Final = "Topics"
_HEALING: Final = "Repair"
_JOBS: Final = "Jobs"


class Later(NamedTuple):
    """The place of a command: a function or a `typer.Typer` of a module, with its line in the list of commands."""

    module: str
    attribute: str
    panel: str
    line: str

    def load(self, name: str) -> Any:
        """Import the command."""
        found = getattr(import_module(self.module), self.attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = name
            return group
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        return typer.main.get_command(single)


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`."""

    COMMANDS: ClassVar[dict[str, Later]] = {
        "up": Later("daybook.cli.up", "up", _CLUSTERS, "Run ZooKeeper, bookies and brokers on this machine."),
        "demo": Later(
            "daybook.cli.demo", "demo", _CLUSTERS, "Write real data, kill processes, lose nothing."
        ),
        "bookie": Later("daybook.cli.bookie", "app", _CLUSTERS, "Manage bookies."),
        "broker": Later("daybook.cli.broker", "app", _CLUSTERS, "Manage brokers."),
        "metadata": Later(
            "daybook.cli.metadata", "app", _CLUSTERS, "Copy metadata into a file, and restore it."
        ),
        "ledger": Later("daybook.cli.ledger", "app", _LEDGERS, "Create, write, read and manage ledgers."),
        "topic": Later(
            "daybook.cli.topic.commands", "app", _TOPICS, "Create, write, read and manage topics."
        ),
        "audit": Later("daybook.cli.audit", "audit", _HEALING, "Find ledgers that lack replicas, now."),
        "recover": Later("daybook.cli.audit", "recover", _HEALING, "Restore the replicas that ledgers lack."),
        "auditor": Later(
            "daybook.cli.audit", "auditor", _HEALING, "Find ledgers that lack replicas, continuously."
        ),
        "spark": Later(
            "daybook.cli.spark.commands",
            "app",
            _JOBS,
            "Retention, compaction, offload, restore, audit and sweep, on Spark.",
        ),
        "autorecovery": Later(
            "daybook.cli.audit", "autorecovery", _HEALING, "Run auditor and worker in one process."
        ),
    }

    def __init__(self, **attributes: Any) -> None:
        """Create placeholders for all commands, sufficient for lists of commands."""
        super().__init__(**attributes)
        for name, later in self.COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=later.line, rich_help_panel=later.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Import the command that runs or is completed; see TyperGroup."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.COMMANDS and type(command) is TyperCommand:
            command = self.COMMANDS[name].load(name)
        return name, command, rest
