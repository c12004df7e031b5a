"""Histories of a topic that are known to be bad, one for each check that no mutant's known seed fails by; see test_checkers.py.

Each begins with a ledger 0 of three entries "x", durable, on which nothing is acknowledged and which is open.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from daybook.core.errors import MetadataError
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.cursor_record import AckedRange, CursorRecord
from daybook.core.topics.events import TopicEnded
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import LedgerList, ListedLedger, ListState, Position
from tests.model.sim.checkers import Checkers
from tests.model.sim.topics.checks import TopicChecks
from tests.model.sim.topics.life import TopicLife
from tests.model.sim.topics.owner import TopicOwner

_NONE: Final = LedgerList()
_MINE: Final = replace(_NONE, owner_token="one")
_NOTHING: Final = CursorRecord(Position(0, -1))
_OPEN: Final = LedgerList(ListState.OPEN, (ListedLedger(0, 0),), owner_token="one")


class _Topic(TopicChecks):
    """A topic that "one" owns, with ledger 0."""

    def __init__(self, checkers: Checkers, *, is_named: bool = True) -> None:
        super().__init__(checkers)
        self.ledgers = checkers.oracles
        self.created("t")
        self.list_changed("t", "one", _NONE, _MINE)
        self.made("t", "one", 0)
        if is_named:
            self.list_changed("t", "one", _MINE, _OPEN)

    def close(self, entries: int = 3) -> "_Topic":
        """Ledger 0 is closed with its three entries, and the list is to say so."""
        metadata: LedgerMetadata = self.ledgers[0].metadata.in_recovery().closed(2, 3)
        self.ledgers[0].metadata = metadata
        ended = replace(_OPEN.ledgers[0], entries=entries, size_bytes=entries, closed_at_ms=1)
        self.closed = LedgerList(ListState.CLOSED, (ended,), Position(0, entries - 1), owner_token="one")
        self.list_changed("t", "one", _OPEN, self.closed)
        return self

    def may_trim(self) -> "_Topic":
        """Every subscription is at the end."""
        self.oracles["t"].trimmable["one"] = Position(0, 2)
        return self

    def trim(self) -> "_Topic":
        """And now it goes."""
        self.list_changed("t", "one", self.closed, replace(self.closed, ledgers=()))
        return self

    def says(self, *messages: str) -> "_Topic":
        """Ledger 0 has these instead, published by one owner in the order of the alphabet."""
        self.ledgers[0].content.update({entry: text.encode() for entry, text in enumerate(messages)})
        self.published("t", "one", [text.encode() for text in sorted(messages)])
        return self


def _by_another(checkers: Checkers) -> None:
    topic = _Topic(checkers).close()
    topic.list_changed("t", "two", topic.closed, replace(topic.closed, owner_token="two"))
    topic.list_changed("t", "one", replace(topic.closed, owner_token="two"), topic.closed)


def _falls(checkers: Checkers) -> None:
    topic = _Topic(checkers).close()
    topic.oracles["t"].named = [1]
    topic.list_changed("t", "one", topic.closed, topic.closed)


def _names_what_is_gone(checkers: Checkers) -> None:
    topic = _Topic(checkers, is_named=False)
    checkers.oracles[0].deleted = True
    topic.list_changed("t", "one", _MINE, _OPEN)


class _Subscribed(_Topic):
    """A topic whose ledger 0 is closed, with the subscription "s" that "one" has opened and that has acknowledged 0:0 to `acked`."""

    def __init__(self, checkers: Checkers, acked: int = 1) -> None:
        super().__init__(checkers)
        self.close()
        self.cursor_changed("t", "s", _NOTHING, "one")
        self.s = self.oracles["t"].cursors["s"]
        self.extent = TopicExtent(self.closed)
        self.opens("one", _NOTHING)
        for entry_id in range(acked + 1):
            self.s.changed("one", entry_id + 1, CursorRecord(Position(0, entry_id)), is_reset=False)

    def opens(self, owner: str, found: CursorRecord) -> None:
        """The owner, of which it is the turn, finds this."""
        epoch = {"one": 0, "two": 1}[owner]
        self.s.opened(owner, epoch, found, self.extent, is_owner=True, is_lost=False)


def _relies_on_memory(checkers: Checkers) -> None:
    topic = _Subscribed(checkers)
    topic.s.persisted("one", 1)
    topic.trims("t", "one", {"s": Position(0, 1)})


def _relies_on_what_is_sent(checkers: Checkers) -> None:
    topic = _Subscribed(checkers, 2)
    topic.s.persisted("one", 3)
    topic.s.changed("one", 4, _NOTHING, is_reset=True)
    topic.s.sent("one", _NOTHING)
    topic.trims("t", "one", {"s": Position(0, 2)})


def _another_writes_a_cursor(checkers: Checkers) -> None:
    _Subscribed(checkers).cursor_changed("t", "s", _NOTHING, "two")


def _deletes_what_a_cursor_names(checkers: Checkers) -> None:
    topic = _Subscribed(checkers)
    topic.cursor_changed("t", "s", CursorRecord(cursor_ledger=7), "one")
    topic.deleted(7)


def _finds_no_record(checkers: Checkers) -> None:
    _Subscribed(checkers).s.record_lost("one", 7, MetadataError("it has no entries"))


def _finds_less(checkers: Checkers) -> None:
    topic = _Subscribed(checkers)
    topic.s.persisted("one", 1)
    topic.opens("two", _NOTHING)


def _finds_more(checkers: Checkers) -> None:
    topic = _Subscribed(checkers)
    topic.opens("two", CursorRecord(Position(0, -1), (AckedRange(0, 2, 2),)))


def _learns_late_what_is_not_found(checkers: Checkers) -> None:
    topic = _Subscribed(checkers)
    topic.opens("two", _NOTHING)
    topic.s.persisted("one", 1)


def _never_delivers(checkers: Checkers) -> None:
    topic = _Subscribed(checkers).says("a", "b", "c")
    topic.oracles["t"].acked[Position(0, 1)] = b"b"
    topic.settled("t")


def _gives_twice(checkers: Checkers) -> None:
    topic = _Topic(checkers)
    topic.given(0)
    topic.given(0)


def _acknowledges_backwards(checkers: Checkers) -> None:
    topic = _Topic(checkers)
    for entry_id in (1, 0):
        checkers.oracles[0].acked = 2
        topic.acknowledged("t", "one", 0, entry_id, [b"x"])


def _loses(checkers: Checkers) -> None:
    topic = _Topic(checkers).says("a", "b", "c").close()
    topic.oracles["t"].acked[Position(0, 3)] = b"d"
    topic.settled("t")


def _leaves_what_nobody_knows(checkers: Checkers) -> None:
    """Its owner died, and the ledger does not say whose it is."""
    topic = _Topic(checkers).says("a", "b", "c").close().may_trim().trim()
    topic.died("one")
    topic.settled("t")


def _ends_without_an_answer(checkers: Checkers) -> None:
    owner: Any = SimpleNamespace(name="one", unanswered=[b"a"], cluster=SimpleNamespace(checkers=checkers))
    TopicOwner._take(owner, TopicEnded(None))


def _is_served_by_nobody(checkers: Checkers) -> None:
    life: Any = SimpleNamespace(topic="t", cluster=SimpleNamespace(checkers=checkers))
    TopicLife._not_served(life, "the last owner takes it over")


TOPIC_CASES: Final[list[tuple[str, Callable[[Checkers], object]]]] = [
    ("only its owner writes the list", _by_another),
    ("the ids of a topic's ledgers rise", _falls),
    ("a listed ledger exists", _names_what_is_gone),
    ("the list knows where its ledgers end", lambda checkers: _Topic(checkers).close(2)),
    ("trimming passes no mark", lambda checkers: _Topic(checkers).close().trim()),
    ("trimming relies on what is persisted", _relies_on_memory),
    ("trimming relies on what is persisted", _relies_on_what_is_sent),
    ("only the topic's owner writes a cursor", _another_writes_a_cursor),
    ("the ledger that a cursor names is not deleted", _deletes_what_a_cursor_names),
    ("the ledger that a cursor names has its record", _finds_no_record),
    ("the next owner finds what was acknowledged and persisted", _finds_less),
    ("the next owner finds what was acknowledged and persisted", _finds_more),
    ("what is persisted is found", _learns_late_what_is_not_found),
    ("a subscription gets every message", _never_delivers),
    ("a ledger is given to one writer", _gives_twice),
    ("nothing is written to an unnamed ledger", lambda checkers: _Topic(checkers).written("t", 5)),
    ("receipts keep the order of the messages", _acknowledges_backwards),
    ("readers see nothing that may be lost", lambda checkers: _Topic(checkers).visible("t", Position(0, 0))),
    ("what was acknowledged is in the topic", _loses),
    (
        "a topic keeps the order of each publisher",
        lambda checkers: _Topic(checkers).says("c", "b", "a").close().settled("t"),
    ),
    (
        "no ledger is left behind",
        lambda checkers: _Topic(checkers).says("a", "b", "c").close().may_trim().trim().settled("t"),
    ),
    ("what is left behind is collected by the next owner", _leaves_what_nobody_knows),
    ("every message is answered", _ends_without_an_answer),
    ("a topic is served once the faults have stopped", _is_served_by_nobody),
]
