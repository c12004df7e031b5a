"""Recoveries as scripts drive them, over the bookies of tests/unit/core/small_cluster.py.

create E/Qw/Qa [spares N] [start FIRST LENGTH]    bookies b1 … bN hold the ledger, the spares follow
write 0..3 b1 b2 [lac N]           the writer's adds, on these bookies (3 bytes an entry)
damage b1 2 | wipe b1              an unreadable entry; a lost disk (limbo)
recover [r2]                       start a recovery; further commands name it in front, `r2 answer b1`
[r2] answer b1 b2                  the bookies carry out and answer all they were asked
[r2] fail b1 CODE                  the bookie answers all it was asked with an error
[r2] metadata | [r2] metadata unknown applied | [r2] metadata unknown lost
[r2] tick MS
other repairs FIRST b1 b4 | other closes N LENGTH | other deletes
show                               the metadata, and who holds what
"""

from collections.abc import Sequence
from typing import Final

from daybook.core.effects import (
    CasMetadata,
    ReadMetadata,
    Recovered,
    RecoveryEffect,
    RecoveryFailed,
    SendFence,
    SendFrame,
    SendRead,
)
from daybook.core.errors import Code
from daybook.core.events import CasAnswered, CasOutcome, Tick
from daybook.core.format.frame import decode_header, frame_entry_ids
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.recovery.recovery import LedgerRecovery
from tests.fixtures.memory_bookie import failed
from tests.model.scripts.harness import register
from tests.unit.core.recovery.recovery_kit import recovery_of
from tests.unit.core.small_cluster import Cluster

NAME: Final = "recovery"


class Recoverer:
    """A recovery and what it waits for."""

    def __init__(self, machine: LedgerRecovery, cluster: Cluster) -> None:
        self.machine = machine
        self.cluster = cluster
        self.pending: list[RecoveryEffect] = []

    def take(self, effects: Sequence[RecoveryEffect]) -> list[str]:
        self.pending += effects
        return describe(effects)

    def asked_of(self, names: Sequence[str]) -> list[SendFence | SendRead | SendFrame]:
        """What the bookies were asked, in the order of `names`; it is answered by whoever called."""
        asked = [
            effect
            for name in names
            for effect in self.pending
            if isinstance(effect, (SendFence, SendRead, SendFrame)) and effect.bookie == name
        ]
        self.pending = [effect for effect in self.pending if effect not in asked]
        return asked

    def metadata_asked(self) -> ReadMetadata | CasMetadata:
        effect = next(e for e in self.pending if isinstance(e, (ReadMetadata, CasMetadata)))
        self.pending.remove(effect)
        return effect


class RecoveryMachine:
    """Commands become events of recoveries, effects become lines."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._recoveries: dict[str, Recoverer] = {}

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "create a ledger first"
        return self._cluster

    def do_create(self, quorum: str, *options: str) -> list[str]:
        ensemble, write, ack = map(int, quorum.split("/"))
        words = list(options)
        spares = int(words[words.index("spares") + 1]) if "spares" in words else 0
        start = None
        if "start" in words:
            at = words.index("start")
            start = (int(words[at + 1]), int(words[at + 2]))
        self._cluster = Cluster(ensemble, write, ack, spares=spares, start=start)
        return []

    def do_write(self, entries: str, *words: str) -> list[str]:
        names = [word for word in words if word.startswith("b")]
        lac = int(words[words.index("lac") + 1]) if "lac" in words else None
        first, _, last = entries.partition("..")
        lines = []
        for entry_id in range(int(first), int(last or first) + 1):
            for name, code in self.cluster.write(entry_id, names, lac=lac).items():
                if code is not Code.OK:
                    lines.append(f"{name} refuses {entry_id}: {code.name}")
        return lines

    def do_damage(self, name: str, entry_id: str) -> list[str]:
        self.cluster.bookies[name].damaged.add(int(entry_id))
        return []

    def do_wipe(self, name: str) -> list[str]:
        self.cluster.wipe(name)
        return []

    def do_recover(self, name: str = "r1") -> list[str]:
        machine = recovery_of(self.cluster)
        self._recoveries[name] = Recoverer(machine, self.cluster)
        return self._recoveries[name].take(machine.start())

    def do_r1(self, command: str, *arguments: str) -> list[str]:
        return self._perform(self._recoveries["r1"], command, arguments)

    def do_r2(self, command: str, *arguments: str) -> list[str]:
        return self._perform(self._recoveries["r2"], command, arguments)

    def do_answer(self, *names: str) -> list[str]:
        return self.do_r1("answer", *names)

    def do_fail(self, *arguments: str) -> list[str]:
        return self.do_r1("fail", *arguments)

    def do_metadata(self, *arguments: str) -> list[str]:
        return self.do_r1("metadata", *arguments)

    def do_tick(self, now_ms: str) -> list[str]:
        return self.do_r1("tick", now_ms)

    def _perform(self, recoverer: Recoverer, command: str, arguments: Sequence[str]) -> list[str]:
        lines: list[str] = []
        if command == "tick":
            return recoverer.take(recoverer.machine.step(Tick(int(arguments[0]))))
        if command == "metadata":
            return self._metadata(recoverer, arguments)
        if command == "answer":
            events = [e for asked in recoverer.asked_of(arguments) for e in self.cluster.perform(asked)]
        else:
            assert command == "fail", f"a recovery has no command {command!r}"
            name, code = arguments
            events = [failed(asked, Code[code]) for asked in recoverer.asked_of([name])]
        for event in events:
            lines += recoverer.take(recoverer.machine.step(event))
        return lines

    def _metadata(self, recoverer: Recoverer, arguments: Sequence[str]) -> list[str]:
        asked = recoverer.metadata_asked()
        if not arguments or arguments[-1] == "applied":
            (event,) = self.cluster.perform(asked)
        if arguments:
            assert isinstance(asked, CasMetadata), "only a compare-and-set can have an unknown outcome"
            event = CasAnswered(asked.request_id, CasOutcome.UNKNOWN)
        return recoverer.take(recoverer.machine.step(event))

    def do_other(self, what: str, *arguments: str) -> list[str]:
        meta = self.cluster.meta
        if what == "repairs":
            first, old, new = arguments
            self.cluster.metadata = meta.with_replica(int(first), old, new)
        elif what == "closes":
            self.cluster.metadata = meta.closed(int(arguments[0]), int(arguments[1]))
        else:
            assert what == "deletes", f"nobody {what} a ledger"
            self.cluster.metadata = None
        self.cluster.version += 1
        return []

    def do_show(self) -> list[str]:
        lines = [describe_metadata(self.cluster.meta)] if self.cluster.metadata else ["deleted"]
        for name, bookie in self.cluster.bookies.items():
            held = runs(sorted(bookie.entries)) or "nothing"
            lac = bookie.ledger.last_add_confirmed()
            marks = [" fenced"] * lac.fenced + [" limbo"] * lac.limbo
            lines.append(f"{name}: {held} lac {lac.last_add_confirmed}{''.join(marks)}")
        return lines


def runs(entry_ids: Sequence[int]) -> str:
    """Entry ids as runs: 0..3 5."""
    found: list[list[int]] = []
    for entry_id in entry_ids:
        if found and found[-1][1] == entry_id - 1:
            found[-1][1] = entry_id
        else:
            found.append([entry_id, entry_id])
    return " ".join(f"{a}..{b}" if a != b else str(a) for a, b in found)


def describe_metadata(meta: LedgerMetadata) -> str:
    """State, end and ensembles in a line."""
    ensembles = ", ".join(f"{f.first_entry}: {' '.join(f.bookies)}" for f in meta.fragments)
    end = f" at {meta.last_entry} length {meta.length}" if meta.is_closed else ""
    return f"{meta.state.value}{end} ({ensembles})"


def describe(effects: Sequence[RecoveryEffect]) -> list[str]:
    """Effects as lines, the same request to several bookies in one."""
    lines: list[str] = []
    for effect in effects:
        if isinstance(effect, (SendFence, SendRead, SendFrame)):
            what = _request(effect)
            verb, _, rest = what.partition("|")
            if lines and lines[-1].startswith(f"{verb} ") and lines[-1].endswith(rest):
                lines[-1] = f"{lines[-1].removesuffix(rest)} {effect.bookie}{rest}"
            else:
                lines.append(f"{verb} {effect.bookie}{rest}")
        else:
            lines.append(_other(effect))
    return lines


def _request(effect: SendFence | SendRead | SendFrame) -> str:
    """What is asked: the verb, then after a bar what follows the bookies' names."""
    if isinstance(effect, SendFence):
        return "fence|"
    if isinstance(effect, SendRead):
        return f"{'fencing-read' if effect.fence else 'read'}|: from {effect.first}"
    header = decode_header(effect.frame)
    flag = "" if header.is_recovery else " WITHOUT RECOVERY FLAG"
    entries = runs(list(frame_entry_ids(effect.frame, header)))
    return f"write-back|: {entries} lac {header.last_add_confirmed} length {header.length_at_lac}{flag}"


def _other(effect: RecoveryEffect) -> str:
    if isinstance(effect, ReadMetadata):
        return "read metadata"
    if isinstance(effect, CasMetadata):
        return f"cas {describe_metadata(effect.metadata)} over version {effect.expected_version}"
    if isinstance(effect, Recovered):
        return f"recovered: {describe_metadata(effect.metadata)}"
    assert isinstance(effect, RecoveryFailed)
    return f"failed {type(effect.error).__name__}: {effect.error}"


register(NAME, RecoveryMachine)
