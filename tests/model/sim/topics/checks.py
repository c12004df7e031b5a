"""The promise of a topic, checked during a run: what was acknowledged is in it once, in order for each publisher, and for good.

Each subscription gets all of it (cursor_oracle.py). An oracle beside every topic remembers each list that it had and each message that was published. What is in a ledger, the ledger's
own oracle knows; it remembers ledgers that were deleted, too, so that the history of a topic is whole in the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from daybook.core.ids import EntryId, LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerState
from daybook.core.topics.cursor_record import NO_LEDGER, CursorRecord
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, Position
from daybook.core.topics.unnamed import SUBSCRIPTION_KEY, NamedLedgers, TopicLedger
from tests.model.sim.checkers import Checkers
from tests.model.sim.topics.cursor_oracle import CursorOracle

_NEXT: Final = "the next owner"
"""The token of an owner that takes the topic over after its last one in the run."""


@dataclass(slots=True)
class TopicOracle:
    """What is known of one topic by someone who sees everything."""

    ledger_list: LedgerList = field(default_factory=LedgerList)
    named: list[LedgerId] = field(default_factory=list)
    """Every ledger that a list named, in their order."""
    made: dict[LedgerId, str] = field(default_factory=dict)
    """Every ledger that was created for it or for one of its cursors, and by which owner."""
    owners: list[str] = field(default_factory=list)
    """Those that have written the list, in the order of their take-overs: the last one owns the topic."""
    trimmable: dict[str, Position] = field(default_factory=dict)
    """How far each owner may have trimmed, by what it had persisted when it asked for that."""
    cursors: dict[str, CursorOracle] = field(default_factory=dict)
    """By subscription."""
    published: dict[str, list[bytes]] = field(default_factory=dict)
    """By owner, in the order of the calls."""
    removed_by: dict[LedgerId, str] = field(default_factory=dict)
    """Who took a ledger out of the list."""
    acked: dict[Position, bytes] = field(default_factory=dict)
    last_ack: dict[str, Position] = field(default_factory=dict)


class TopicChecks:
    """The checks of all topics of one run."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.oracles: dict[str, TopicOracle] = {}
        self._left_behind: set[LedgerId] = set()
        """What may be left in the end: somebody died with it, or gave up, and nobody else knows of it."""
        self._given: set[LedgerId] = set()
        self._unsure: set[str] = set()
        """Those that got the error that a creation has no known outcome."""
        self._dead: set[str] = set()
        self._abandoning: set[str] = set()
        self._in_doubt: set[str] = set()

    # The list

    def created(self, topic: str) -> None:
        """A topic begins."""
        self.oracles[topic] = TopicOracle()

    def list_changed(self, topic: str, token: str, old: LedgerList, new: LedgerList) -> None:
        """The owner that has drawn `token` has replaced `old` by `new`."""
        oracle = self.oracles[topic]
        oracle.ledger_list = new
        if new.owner_token != token or token in oracle.owners[:-1]:
            self._fail("only its owner writes the list", f"{token} wrote that of {new.owner_token} (rule 38)")
        if old.owner_token != token:
            oracle.owners.append(token)
            self._taken_over(topic, token, old)
        self._check_ends(topic, new)
        named = [ledger.ledger_id for ledger in new.ledgers]
        for ledger_id in named:
            if ledger_id in oracle.named:
                continue
            if oracle.named and ledger_id < oracle.named[-1]:
                self._fail("the ids of a topic's ledgers rise", f"{ledger_id} after {oracle.named} (rule 41)")
            oracle.named.append(ledger_id)
        for ledger in old.ledgers:
            if ledger.ledger_id not in named:
                oracle.removed_by[ledger.ledger_id] = token
                self._trimmed(oracle, token, ledger.last_position)

    def _taken_over(self, topic: str, token: str, old: LedgerList) -> None:
        for ledger in old.ledgers:
            if self._checkers.oracles[ledger.ledger_id].end is None:
                what = f"{token} has {topic}, and ledger {ledger.ledger_id} is open (rule 38)"
                self._fail("a new owner recovers before it writes the list", what)

    def _check_ends(self, topic: str, new: LedgerList) -> None:
        for ledger in new.ledgers:
            found = self._checkers.oracles[ledger.ledger_id]
            if found.deleted:
                self._fail("a listed ledger exists", f"{topic} names ledger {ledger.ledger_id}")
            end = (found.metadata.last_entry + 1, found.metadata.length) if found.end is not None else None
            if not ledger.is_open and (ledger.entries, ledger.size_bytes) != end:
                what = f"ledger {ledger.ledger_id} of {topic}: {ledger.entries} entries, in truth {end}"
                self._fail("the list knows where its ledgers end", what)

    def _trimmed(self, oracle: TopicOracle, token: str, last: Position) -> None:
        mark = oracle.trimmable.get(token, NO_POSITION)
        if mark < last:
            self._fail("trimming passes no mark", f"{last} is gone, and a mark is at {mark} (rule 51)")

    def trims(self, topic: str, owner: str, marks: Mapping[str, Position]) -> None:
        """An owner asks for trimming, and relies on `marks` of all subscriptions."""
        oracle = self.oracles[topic]
        floors = {name: cursor.floor_of(owner) for name, cursor in oracle.cursors.items()}
        for name, mark in marks.items():
            floor = floors.get(name, NO_POSITION)
            if mark > floor:
                what = f"{owner} relies on {mark} of {name}, and the next owner may find {floor} (rule 40)"
                self._fail("trimming relies on what is persisted", what)
        lowest = min((floors.get(name, NO_POSITION) for name in marks), default=NO_POSITION)
        oracle.trimmable[owner] = max(oracle.trimmable.get(owner, NO_POSITION), lowest)

    def cursor_changed(self, topic: str, name: str, record: CursorRecord | None, owner: str) -> None:
        """The node of a cursor is this now; None: it is deleted."""
        oracle = self.oracles[topic]
        if owner != oracle.ledger_list.owner_token:
            what = f"{owner} wrote {name} of {topic}, which {oracle.ledger_list.owner_token} has (rule 38)"
            self._fail("only the topic's owner writes a cursor", what)
        assert record is not None, "nobody deletes a subscription"
        cursor = oracle.cursors.get(name)
        if cursor is None:
            tally = self._checkers.world.tally
            oracle.cursors[name] = cursor = CursorOracle(name, self._fail, tally, record, record)
            cursor.skipped = {position for position in oracle.acked if position <= record.mark_delete}
        replaced = cursor.node.cursor_ledger
        if replaced not in (record.cursor_ledger, NO_LEDGER):
            oracle.removed_by[replaced] = owner
            if record.cursor_ledger != NO_LEDGER:
                self._checkers.world.tally.state("cursor rolled")
        cursor.node = record

    def epoch_of(self, topic: str, owner: str) -> int:
        """How many owners the topic had before this one."""
        return self.oracles[topic].owners.index(owner)

    def has(self, topic: str, owner: str) -> bool:
        """Whether the topic still is this owner's."""
        return self.oracles[topic].ledger_list.owner_token == owner

    def deleted(self, ledger_id: LedgerId) -> None:
        """A ledger is gone."""
        for topic, oracle in self.oracles.items():
            if any(each.ledger_id == ledger_id for each in oracle.ledger_list.ledgers):
                self._fail("a listed ledger is not deleted", f"ledger {ledger_id} of {topic} (rule 38)")
            for name, cursor in oracle.cursors.items():
                if cursor.node.cursor_ledger == ledger_id:
                    what = f"ledger {ledger_id} of {name} of {topic} (rule 38)"
                    self._fail("the ledger that a cursor names is not deleted", what)

    # Messages

    def published(self, topic: str, owner: str, messages: Iterable[bytes]) -> None:
        """An owner was given these."""
        self.oracles[topic].published.setdefault(owner, []).extend(messages)

    def written(self, topic: str, ledger_id: LedgerId) -> None:
        """Something is appended to the ledger."""
        if ledger_id not in self.oracles[topic].named:
            self._fail("nothing is written to an unnamed ledger", f"ledger {ledger_id} of {topic} (rule 38)")

    def acknowledged(
        self, topic: str, owner: str, ledger_id: LedgerId, first: EntryId, messages: Sequence[bytes]
    ) -> None:
        """A publisher got receipts."""
        oracle, ledger = self.oracles[topic], self._checkers.oracles[ledger_id]
        for entry_id, message in enumerate(messages, first):
            if ledger.content.get(entry_id) != message:
                what = f"{message!r} as {ledger_id}:{entry_id}, which is {ledger.content.get(entry_id)!r}"
                self._fail("a receipt is for what was published", what)
            position = Position(ledger_id, entry_id)
            if not oracle.last_ack.get(owner, NO_POSITION) < position:
                self._fail("receipts keep the order of the messages", f"{owner}: {position} too late")
            oracle.last_ack[owner] = position
            oracle.acked[position] = message
        if why := self._why_unsafe(ledger_id, first + len(messages) - 1):
            self._fail("a receipt follows the acknowledgement", why)

    def visible(self, topic: str, last: Position) -> None:
        """Readers of the topic may see everything up to `last`, by what one owner knows."""
        if last != NO_POSITION:
            assert last.ledger_id in self.oracles[topic].named
            if why := self._why_unsafe(*last):
                self._fail("readers see nothing that may be lost", why)

    def _why_unsafe(self, ledger_id: LedgerId, entry_id: EntryId) -> str:
        """Why the entry may still be lost: its writer has not acknowledged it, and no close has it (rule 14, rule 50)."""
        ledger = self._checkers.oracles[ledger_id]
        if entry_id <= max(ledger.acked, -1 if ledger.end is None else ledger.end):
            return ""
        return f"{ledger_id}:{entry_id}, and the ledger is acknowledged up to {ledger.acked} (rule 14)"

    # What is left

    def topic_of(self, custom_metadata: Mapping[str, bytes]) -> str:
        """The topic whose messages a ledger is for; empty for one of a cursor."""
        return "" if SUBSCRIPTION_KEY in custom_metadata else custom_metadata.get(TOPIC_KEY, b"").decode()

    def unknown(self, owner: str) -> None:
        """Nobody knows whether a ledger was created, or may still be: the owner asks for another one."""
        self._unsure.add(owner)

    def made(self, topic: str, owner: str, ledger_id: LedgerId) -> None:
        """A ledger was made for the topic."""
        self.oracles[topic].made[ledger_id] = owner

    def given(self, ledger_id: LedgerId) -> None:
        """An owner has got the ledger that it asked for."""
        if ledger_id in self._given:
            self._fail("a ledger is given to one writer", f"ledger {ledger_id} to two (rule 42, rule 53)")
        self._given.add(ledger_id)

    def deleting(self, ledger_id: LedgerId) -> None:
        """An owner deletes the ledger."""
        self._left_behind.discard(ledger_id)

    def gave_up(self, ledger_id: LedgerId) -> None:
        """An owner could not delete the ledger, and may end before it tries again."""
        self._left_behind.add(ledger_id)

    def died(self, owner: str) -> None:
        """An owner died, and nobody else knows what it was about to name or to delete."""
        self._dead.add(owner)

    def abandons(self, owner: str) -> None:
        """An owner stops at once: a ledger of a cursor that it was about to name, or to delete, is left."""
        self._abandoning.add(owner)

    def in_doubt(self, owner: str) -> None:
        """An owner was not unloaded in time: it may not know whether the list names the ledger that it made last, so it may not delete it."""
        self._in_doubt.add(owner)

    def settled(self, topic: str) -> None:
        """The topic's last owner has unloaded it: what is it that it consists of?"""
        oracle, ledgers = self.oracles[topic], self._checkers.oracles
        history: dict[bytes, Position] = {}
        for ledger_id in oracle.named:
            end = ledgers[ledger_id].end
            assert end is not None
            for entry_id in range(end + 1):
                message = ledgers[ledger_id].content[entry_id]
                if message in history:
                    what = f"{message!r} is at {history[message]} and at {ledger_id}:{entry_id} (rule 50)"
                    self._fail("a message is in the topic once", what)
                history[message] = Position(ledger_id, entry_id)
        lost = {str(at): message for at, message in oracle.acked.items() if history.get(message) != at}
        if lost:
            self._fail("what was acknowledged is in the topic", f"{topic} lacks {lost}")
        for owner, messages in oracle.published.items():
            positions = [history[message] for message in messages if message in history]
            if positions != sorted(positions):
                self._fail("a topic keeps the order of each publisher", f"{owner}: {positions} (rule 50)")
        for name, cursor in oracle.cursors.items():
            missed = sorted(oracle.acked.keys() - cursor.delivered - cursor.skipped)
            if missed:
                what = f"{name} of {topic} never got {[str(position) for position in missed]} (rule 40)"
                self._fail("a subscription gets every message", what)
        self._check_leaks(topic, oracle)

    def _check_leaks(self, topic: str, oracle: TopicOracle) -> None:
        listed = {ledger.ledger_id for ledger in oracle.ledger_list.ledgers}
        listed |= {cursor.node.cursor_ledger for cursor in oracle.cursors.values()}
        ledgers = self._checkers.oracles
        left = [name for name in sorted(oracle.made.keys() - listed) if not ledgers[name].deleted]
        leaked = [
            name for name in left if name not in self._left_behind and not self._is_excused(oracle, name)
        ]
        if leaked:
            self._fail("no ledger is left behind", f"{topic} has no use for {leaked}")
        stays = [name for name in left if not self._is_collected(oracle, name)]
        if stays:
            what = f"nobody ever deletes {stays} of {topic} (rule 28)"
            self._fail("what is left behind is collected by the next owner", what)

    def _is_collected(self, oracle: TopicOracle, ledger_id: LedgerId) -> bool:
        """Whether the next owner's collection has the proof that nothing will ever name the ledger (daybook/core/topics/unnamed.py)."""
        ledger = TopicLedger.of(self._checkers.oracles[ledger_id].metadata)
        next_list = replace(oracle.ledger_list, owner_token=_NEXT)
        named = NamedLedgers(next_list, tuple(cursor.node for cursor in oracle.cursors.values()))
        return ledger is not None and named.never_names(ledger, _NEXT)

    def _is_excused(self, oracle: TopicOracle, ledger_id: LedgerId) -> bool:
        """Whether whoever should delete it is dead, or does not know of it: who took it out of a list or a node, else its creator.

        Then the next owner's collection deletes it.
        """
        creator = oracle.made[ledger_id]
        metadata = self._checkers.oracles[ledger_id].metadata
        gone = self._dead if self.topic_of(metadata.custom_metadata) else self._dead | self._abandoning
        if ledger_id in oracle.removed_by:
            return oracle.removed_by[ledger_id] in gone
        if ledger_id not in self._given and metadata.state is not LedgerState.OPEN:
            return True  # another client recovered it before its creator asked again (rule 42)
        return creator in gone | self._in_doubt or (creator in self._unsure and ledger_id not in self._given)

    def _fail(self, invariant: str, why: str) -> None:
        self._checkers.fail(invariant, why)
