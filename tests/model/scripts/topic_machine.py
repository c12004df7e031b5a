"""Owners of a topic as scripts drive them, over the topic in memory of tests/unit/core/topics/world.py.

own one                            a broker takes the topic over, under the token `one`
publish one a b                    messages
do one [N]                         the owner's oldest request (N of them) is carried out and answered
lose one [applied]                 it has no answer; `applied`: it was carried out all the same
ack one [N]                        N entries that were sent, or all, are stored and acknowledged
store LEDGER N                     N entries are stored, and nobody acknowledges them
close LEDGER                       somebody recovers and closes a ledger
fail one LEDGER                    the owner's handle of a ledger takes no more
tick one MS | trim one 0:1 … | unload one
show                               the list, and what is in the topic
"""

from collections.abc import Sequence
from typing import Final

from daybook.core.topics.events import (
    Append,
    CasList,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    ListKnown,
    ManagedLedgerEffect,
    Published,
    PublishFailed,
    ReadList,
    RecoverLedger,
    Retrying,
    TopicEnded,
    TrimRequested,
    UnloadRequested,
)
from daybook.core.topics.ledger_list import LedgerList, Position
from daybook.core.topics.trimming import Retention
from tests.model.scripts.harness import register
from tests.unit.core.topics.world import Owner, World

NAME: Final = "topic"


class ScriptedOwner(Owner):
    """An owner whose effects become lines."""

    def __init__(self, world: World, token: str) -> None:
        self.lines: list[str] = []
        super().__init__(world, token)

    def _take(self, effects: Sequence[ManagedLedgerEffect]) -> None:
        self.lines += map(describe, effects)
        super()._take(effects)

    def answers(self) -> list[str]:
        """What it did since it was asked last."""
        lines, self.lines = self.lines, []
        return lines


class TopicMachine:
    """Commands become events of owners."""

    def __init__(self) -> None:
        self._world = World()
        self._owners: dict[str, ScriptedOwner] = {}

    def do_own(self, name: str) -> list[str]:
        self._owners[name] = ScriptedOwner(self._world, name)
        return self._owners[name].answers()

    def do_publish(self, name: str, *messages: str) -> list[str]:
        owner = self._owners[name]
        refusal = owner.machine.refusal
        if refusal is not None:
            return [f"refused: {type(refusal).__name__}"]
        owner.publish(*(message.encode() for message in messages))
        return owner.answers()

    def do_do(self, name: str, count: str = "1") -> list[str]:
        for _ in range(int(count)):
            self._owners[name].carry_out()
        return self._owners[name].answers()

    def do_lose(self, name: str, applied: str = "") -> list[str]:
        self._owners[name].fail(applied=applied == "applied")
        return self._owners[name].answers()

    def do_ack(self, name: str, count: str = "") -> list[str]:
        self._owners[name].acknowledge(int(count) if count else None)
        return self._owners[name].answers()

    def do_store(self, ledger_id: str, count: str) -> list[str]:
        return (
            [] if all(self._world.ledgers[int(ledger_id)].store() for _ in range(int(count))) else ["refused"]
        )

    def do_close(self, ledger_id: str) -> list[str]:
        ended = self._world.ledgers[int(ledger_id)].close()
        return [f"closed with {ended.entries} entries"]

    def do_fail(self, name: str, ledger_id: str) -> list[str]:
        self._owners[name].fail_handle(int(ledger_id))
        return self._owners[name].answers()

    def do_tick(self, name: str, ms: str) -> list[str]:
        self._owners[name].tick(int(ms))
        return self._owners[name].answers()

    def do_trim(self, name: str, *marks: str) -> list[str]:
        self._owners[name].step(TrimRequested(tuple(map(Position.parse, marks)), Retention()))
        return self._owners[name].answers()

    def do_unload(self, name: str) -> list[str]:
        self._owners[name].step(UnloadRequested())
        return self._owners[name].answers()

    def do_show(self) -> list[str]:
        messages = [f"{position} {data.decode()}" for position, data in self._world.topic()]
        return [_list(self._world.ledger_list), ", ".join(messages) or "empty"]


def _list(found: LedgerList) -> str:
    ledgers = [
        f"{ledger.ledger_id} open" if ledger.is_open else f"{ledger.ledger_id} with {ledger.entries}"
        for ledger in found.ledgers
    ]
    return f"{found.state.value} of {found.owner_token or 'nobody'} [{', '.join(ledgers)}] to {found.last_confirmed}"


def describe(effect: ManagedLedgerEffect) -> str:
    """An effect as a line."""
    match effect:
        case ReadList():
            return "read list"
        case CasList():
            return f"write list {_list(effect.ledger_list)} over version {effect.expected_version}"
        case RecoverLedger():
            return f"recover {effect.ledger_id}"
        case CreateLedger():
            return f"create above {effect.above}"
        case CloseLedger():
            return f"close {effect.ledger_id}"
        case DeleteLedger():
            return f"delete {effect.ledger_id}"
        case Append():
            messages = " ".join(bytes(each).decode() for each in effect.payloads)
            return f"append to {effect.ledger_id}: {messages}"
        case ListKnown() | Published() | PublishFailed() | Retrying() | TopicEnded():
            return _result(effect)


def _result(effect: ListKnown | Published | PublishFailed | Retrying | TopicEnded) -> str:
    match effect:
        case ListKnown():
            return f"list known at version {effect.version}"
        case Published():
            return f"published {effect.count} from {effect.ledger_id}:{effect.first_entry}"
        case PublishFailed():
            return f"failed {effect.count}: {type(effect.error).__name__}"
        case Retrying():
            return "retries later"
        case TopicEnded():
            return "ended" if effect.error is None else f"ended: {type(effect.error).__name__}"


register(NAME, TopicMachine)
