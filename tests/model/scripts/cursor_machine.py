"""Cursors as scripts drive them, over the subscription in memory of tests/unit/core/topics/cursor_world.py.

open one [1:-1]                    a broker takes the topic over and opens the cursor; it begins there if there is none
ack one 1:0 …                      entries are acknowledged
through one 1:5                    everything up to an entry
seek one 1:3
do one [N]                         the oldest request (N of them) is carried out and answered
run one                            all of them are, and what follows from that
lose one [applied]                 it has no answer; `applied`: it was carried out all the same
list one [silently]                the owner writes the topic's list; `silently`: the cursor does not know yet
tick one MS | flush one | close one | delete one
destroy LEDGER
show                               the node, the ledgers with the number of their records
state one                          what the cursor knows, and what trimming may rely on
"""

from collections.abc import Sequence
from typing import Final

from daybook.core.topics.cursor_events import (
    AppendRecord,
    CloseRequested,
    CreateCursor,
    CreateCursorLedger,
    CursorEffect,
    CursorEnded,
    CursorOpened,
    CursorPersisted,
    DeleteCursor,
    DeleteRequested,
    FlushRequested,
    HolesDropped,
    PutCursor,
    ReadCursor,
    ReadLastRecord,
    RecordLost,
)
from daybook.core.topics.cursor_record import NO_LEDGER, CursorRecord
from daybook.core.topics.events import CloseLedger, DeleteLedger, Retrying
from daybook.core.topics.ledger_list import Position
from tests.model.scripts.harness import register
from tests.unit.core.topics.cursor_world import CursorWorld, Holder

NAME: Final = "cursor"


class ScriptedHolder(Holder):
    """A broker whose effects become lines."""

    def __init__(self, world: CursorWorld, initial: CursorRecord | None) -> None:
        self.lines: list[str] = []
        super().__init__(world, initial=initial)

    def _take(self, effects: Sequence[CursorEffect]) -> None:
        self.lines += map(describe, effects)
        super()._take(effects)

    def answers(self) -> list[str]:
        """What it did since it was asked last."""
        lines, self.lines = self.lines, []
        return lines


class CursorMachine:
    """Commands become events of brokers."""

    def __init__(self) -> None:
        self._world = CursorWorld()
        self._holders: dict[str, ScriptedHolder] = {}

    def do_open(self, name: str, begin: str = "") -> list[str]:
        initial = CursorRecord(Position.parse(begin)) if begin else None
        self._holders[name] = ScriptedHolder(self._world, initial)
        return self._holders[name].answers()

    def do_ack(self, name: str, *positions: str) -> list[str]:
        acks = self._holders[name].acks
        known = [position for position in positions if not acks.ack(Position.parse(position))]
        return [f"{position} was acknowledged before" for position in known]

    def do_through(self, name: str, position: str) -> list[str]:
        self._holders[name].acks.ack_through(Position.parse(position))
        return []

    def do_seek(self, name: str, position: str) -> list[str]:
        self._holders[name].acks.reset(Position.parse(position))
        return []

    def do_do(self, name: str, times: str = "1") -> list[str]:
        for _ in range(int(times)):
            self._holders[name].carry_out()
        return self._holders[name].answers()

    def do_run(self, name: str) -> list[str]:
        self._holders[name].run()
        return self._holders[name].answers()

    def do_lose(self, name: str, applied: str = "") -> list[str]:
        self._holders[name].fail(applied=applied == "applied")
        return self._holders[name].answers()

    def do_list(self, name: str, silently: str = "") -> list[str]:
        self._holders[name].write_list(says_so=silently != "silently")
        return self._holders[name].answers()

    def do_tick(self, name: str, ms: str) -> list[str]:
        self._holders[name].tick(int(ms))
        return self._holders[name].answers()

    def do_flush(self, name: str) -> list[str]:
        self._holders[name].step(FlushRequested())
        return self._holders[name].answers()

    def do_close(self, name: str) -> list[str]:
        self._holders[name].step(CloseRequested())
        return self._holders[name].answers()

    def do_delete(self, name: str) -> list[str]:
        self._holders[name].step(DeleteRequested())
        return self._holders[name].answers()

    def do_destroy(self, ledger_id: str) -> list[str]:
        del self._world.ledgers[int(ledger_id)]
        return []

    def do_show(self) -> list[str]:
        record = self._world.record
        ledgers = [f"{each}: {len(ledger.records)} records" for each, ledger in self._world.ledgers.items()]
        return ["no node" if record is None else _record(record), ", ".join(ledgers) or "no ledger"]

    def do_state(self, name: str) -> list[str]:
        holder = self._holders[name]
        return [f"{_record(holder.acks.record(99))}; trimming may rely on {holder.machine.persisted}"]


def _record(record: CursorRecord) -> str:
    ranges = [f"{each.first}..{each.last_entry}" for each in record.ranges]
    named = "" if record.cursor_ledger == NO_LEDGER else f", see ledger {record.cursor_ledger}"
    return " ".join([f"acknowledged to {record.mark_delete}", *ranges]) + named


def describe(effect: CursorEffect) -> str:
    """An effect as a line."""
    match effect:
        case ReadCursor():
            return "read list and node" if effect.judge else "read node"
        case CreateCursor():
            return f"create node: {_record(effect.record)}"
        case PutCursor():
            versions = f"over version {effect.expected_version}, list at {effect.list_version}"
            return f"write node: {_record(effect.record)} {versions}"
        case DeleteCursor():
            return "delete node"
        case CreateCursorLedger():
            return "create ledger"
        case ReadLastRecord():
            return f"recover {effect.ledger_id} and read its last record"
        case AppendRecord():
            return f"append to {effect.ledger_id}: {_record(CursorRecord.from_json(effect.data))}"
        case CloseLedger():
            return f"close {effect.ledger_id}"
        case DeleteLedger():
            return f"delete {effect.ledger_id}"
        case _:
            return _result(effect)


def _result(
    effect: CursorOpened | CursorPersisted | RecordLost | HolesDropped | Retrying | CursorEnded,
) -> str:
    match effect:
        case CursorOpened():
            return "opened"
        case CursorPersisted():
            return "persisted"
        case RecordLost():
            return f"lost the record of {effect.ledger_id}"
        case HolesDropped():
            return f"dropped {effect.count} ranges"
        case Retrying():
            return "retries later"
        case CursorEnded():
            return "ended" if effect.error is None else f"ended: {type(effect.error).__name__}"


register(NAME, CursorMachine)
