"""What people and scripts see of ledgers: the rows and tables of `daybook ledger`."""

import json
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from daybook.client.verify import LedgerReport
    from daybook.core.ledger.metadata import LedgerMetadata

LIST_TITLES: Final = ("ledger", "state", "E/Qw/Qa", "entries", "bytes", "fragments", "bookies", "topic")


def list_row(ledger: "LedgerMetadata") -> tuple[str, ...]:
    """A ledger under `LIST_TITLES`."""
    return (
        str(ledger.ledger_id),
        ledger.state.value,
        "/".join(map(str, ledger.quorum)),
        f"{ledger.last_entry + 1:,}" if ledger.is_closed else "…",
        f"{ledger.length:,}" if ledger.is_closed else "…",
        str(len(ledger.fragments)),
        ", ".join(ledger.last_fragment.bookies),
        escape(topic_of(ledger)),
    )


def topic_of(ledger: "LedgerMetadata") -> str:
    """The topic that the ledger belongs to, as a broker or a job wrote it into the metadata; empty without one."""
    from daybook.core.ledger.metadata import TOPIC_KEY

    return ledger.custom_metadata.get(TOPIC_KEY, b"").decode(errors="replace")


def shown(metadata: "LedgerMetadata") -> dict[str, Any]:
    """The stored record without the hash of the password, which bookies accept as the ledger's key."""
    record: dict[str, Any] = json.loads(metadata.to_json())
    return {**record, "password": "(hidden)"}


def verify_table(report: "LedgerReport") -> Table:
    """The copies by bookie; a row is red where one is missing or damaged."""
    table = Table("bookie", "copies owed", "found", "missing", "damaged", "unread", "unread because")
    for copy in report.copies:
        row: list[Any] = [copy.owed, copy.found, len(copy.missing), len(copy.damaged), copy.unread]
        style = "" if copy.is_whole else "red"
        table.add_row(copy.bookie, *(f"{number:,}" for number in row), copy.error, style=style)
    return table
