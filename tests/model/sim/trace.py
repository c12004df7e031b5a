"""What happened, for a reader: a trace of one seed, and the counts of what a run of many seeds has met.

A simulator that never reached a state proves nothing about it, so the states that matter have names here, the run
counts them, and a default run that misses one fails.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final

from daybook.core.effects import Effect, PublishLac, SendFrame
from daybook.core.errors import DaybookError
from daybook.core.events import Event
from daybook.core.format.entries import Entry
from daybook.core.format.frame import decode_header, last_entry
from daybook.core.format.lac_table import decode_lac_row
from daybook.core.ledger.metadata import LedgerMetadata

STATES: Final[dict[str, str]] = {
    "fence race": "a frame of a live writer met a fence",
    "second recoverer": "two clients recovered one ledger at the same time",
    "deferred change": "a bookie failed while nothing was pending, the ensemble changed with the next append",
    "late failure": "… or at once, because the bookie had not answered for what was acknowledged (rule 45)",
    "no spare": "a writer continued without a bookie, because no other was available",
    "no spare ended": "… and the bookie returned",
    "limbo": "a bookie without its disk could not vouch for a ledger",
    "limbo cleared": "… and the ledger was copied back",
    "limbo cleared before the close": "… of an open ledger, whose writer continued without the bookie",
    "second wipe during repair": "a disk was lost again while it was being copied back",
    "over-replicated removed": "a bookie removed replicas that metadata places elsewhere now",
    "cas conflict": "a compare-and-set met another version",
    "unknown cas": "a compare-and-set without an answer",
    "session expired": "a ZooKeeper session expired",
    "deletion against recovery": "a ledger was deleted while a recovery of it was under way",
    "deletion against repair": "a ledger was deleted while a repair of it was under way",
    "recovery against repair": "a ledger was recovered and repaired at the same time",
    "deletion, recovery and repair": "all three were under way on one ledger",
    "stopped by its disk": "a write, a sync or a commit failed, and the bookie stopped (rule 23)",
    "read what was not written": "… and the next process had the same pages, which no sync writes any more (rule 23)",
    "refresh after a change": "a reader asked for the LAC after the metadata that it was opened with had changed (rule 59)",
    "replaced beside its process": "a bookie that was cut off and lived was replaced (rule 57)",
    "superseded": "… and its old process read that, and stopped",
    "a leave that ended": "… or its old process had registered again before the replacement had the claim, and the replacement was refused",
    "no witness": "a recovery asked for a bookie's process, and none was registered (rule 57)",
    "torn group": "a crash kept some sectors of what was not synced, and the replay cut it off (rule 25)",
    "journal refused": "a damaged journal was refused, and its bookie replaced (rule 25)",
    "harmless damage": "… or the damage was in bytes that no replay reads, and changed nothing",
    "journal trimmed": "journal files went, after a flush (rule 24)",
    "journal full": "the journal found no room for a file, and the waiting frames were refused (rule 30)",
    "store full": "a flush found no room, and was repeated later (rule 30)",
    "damaged entry": "a read met an entry that its bookie has and cannot read (rule 26)",
    "damage repaired": "… and a repair restored it",
    "LAC published again": "a row of a table of LACs may have vanished with its stream (rule 48)",
    "LAC before the attachment": "a writer sent a row before the bookie had let it in, which takes none (rule 48)",
    "LAC that a poll waits for": "a row woke a reader's long poll, once it was durable (rule 48)",
    "waited for room": "an append of the shipped client waited for room (back-pressure)",
    "met its own change": "a retry of its metadata store found the change of its earlier attempt (rule 42)",
    "repaired as it ships": "the shipped worker put other bookies into a fragment",
    "bookie decommissioned": "the shipped tools drained, stopped and forgot a bookie, and its disk was discarded",
    "list conflict": "an owner's change of its topic's list met another version (rule 38)",
    "two owners": "an owner took a topic over that another one was serving",
    "delivered again": "the next owner of a topic found less than was acknowledged, since that was not persisted yet (rule 40)",
    "cursor rolled": "a cursor's ledger was replaced by another one (rule 40)",
    "cursor recovered": "an owner found a subscription in the ledger of its cursor",
    "topic unloaded": "an owner gave its topic up in order",
    "followed to the close": "a shipped reader followed a ledger to a close that another client had made",
}

RARE: Final = "limbo cleared before the close"
"""The state that a few hundred seeds may miss; a test of its own reaches it, where disks are lost often."""
"""The named states; `STATES[name]` says what it means."""

FAULTS: Final = (
    "loss",
    "duplicate",
    "reorder",
    "slow message",
    "one-way partition",
    "pause",
    "bookie crash",
    "client crash",
    "unsynced records lost",
    "unsynced records kept",
    "disk lost",
    "fsync stall",
    "slow disk",
    "EIO",
    "bit flip",
    "misdirected write",
    "lost file",
    "ENOSPC",
    "read-only",
    "read error",
    "ZooKeeper outage",
    "ZooKeeper request lost",
    "ZooKeeper reply lost",
    "ZooKeeper reply slow",
    "ZooKeeper request late",
    "session expiry",
    "cut off from ZooKeeper",
    "short listing",
    "frame refused",
)
"""The classes of faults that a run injects."""


class Trace:
    """Lines of one seed as they happen; silent unless `enabled`, so that a swarm pays nothing for it."""

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.lines: list[str] = []

    def add(self, now_us: int, who: str, what: str) -> None:
        """Note that `who` did or met `what`."""
        self.lines.append(f"{now_us / 1000:>11.3f} ms  {who:<14} {what}")


class Tally:
    """Counts of faults and named states."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.states: Counter[str] = Counter()

    def fault(self, name: str) -> None:
        """Count a fault; the class must be a declared one, so that a typing slip cannot hide."""
        assert name in FAULTS, name
        self.faults[name] += 1

    def state(self, name: str) -> None:
        """Count a named state."""
        assert name in STATES, name
        self.states[name] += 1

    def add(self, other: "Tally") -> None:
        """Add the counts of another run."""
        self.faults.update(other.faults)
        self.states.update(other.states)

    def missing_states(self) -> list[str]:
        """The named states that were never reached, but for RARE."""
        return [name for name in STATES if not self.states[name] and name != RARE]


def describe(step: Event | Effect) -> str:
    """An event or an effect on one line."""
    if isinstance(step, SendFrame):
        return f"SendFrame #{step.send_id} to {step.bookie}: {describe_frame(step.frame)}"
    if isinstance(step, PublishLac):
        return f"PublishLac to {' '.join(step.bookies)}: LAC {decode_lac_row(step.row).last_add_confirmed}"
    fields = []
    for name in type(step).__match_args__:
        value = getattr(step, name)
        if isinstance(value, LedgerMetadata):
            text = describe_metadata(value)
        elif isinstance(value, DaybookError):
            text = f"{type(value).__name__}: {value}"
        elif name in ("entries", "payloads") and not isinstance(value, int):
            text = f"{[item.entry_id if isinstance(item, Entry) else len(item) for item in value]}"
        elif name == "bookies" and isinstance(value, Mapping):
            text = " ".join(each if info.writable else f"{each}(ro)" for each, info in value.items())
        else:
            text = value.name if isinstance(value, Enum) else f"{value}"
        fields.append(f"{name}={text}")
    return f"{type(step).__name__}({', '.join(fields)})"


def describe_frame(frame: bytes) -> str:
    """What a frame says, from its header."""
    header = decode_header(frame)
    held = last_entry(frame, header)
    what = f"entries {header.first_entry} … {held}" if header.count else "no entries"
    return f"{what}, LAC {header.last_add_confirmed}{', recovery' * header.is_recovery}"


def describe_metadata(metadata: LedgerMetadata) -> str:
    """State and fragments."""
    fragments = " ".join(f"{found.first_entry}:{'/'.join(found.bookies)}" for found in metadata.fragments)
    end = f" at {metadata.last_entry}" if metadata.is_closed else ""
    return f"<{metadata.state.value}{end} {fragments}>"
