"""Histories of a topic that are known to be bad, one for each check that no mutant's known seed fails by; see test_checkers.py.

Each begins with a ledger 0 of three entries "x", durable, on which nothing is acknowledged and which is open.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.topics.ledger_list import NO_POSITION, LedgerList, ListedLedger, ListState, Position
from tests.model.sim.checkers import Checkers
from tests.model.sim.topics.checks import TopicChecks
from tests.model.sim.topics.owner import TopicOwner

_NONE: Final = LedgerList()
_MINE: Final = replace(_NONE, owner_token="one")
_OPEN: Final = LedgerList(ListState.OPEN, (ListedLedger(0, 0),), owner_token="one")


class _Topic(TopicChecks):
    """A topic that "one" owns, with ledger 0."""

    def __init__(self, checkers: Checkers, *, is_named: bool = True) -> None:
        super().__init__(checkers)
        self.ledgers = checkers.oracles
        self.created("t")
        self.list_changed("t", "one", _NONE, _MINE)
        self.made("t", ("one", 1), 0)
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


def _passes_a_mark(checkers: Checkers) -> None:
    topic = _Topic(checkers).close()
    topic.oracles["t"].marks.append(NO_POSITION)
    topic.trim()


def _acknowledges_backwards(checkers: Checkers) -> None:
    topic = _Topic(checkers)
    for entry_id in (1, 0):
        checkers.oracles[0].acked = 2
        topic.acknowledged("t", "one", 0, entry_id, [b"x"])


def _loses(checkers: Checkers) -> None:
    topic = _Topic(checkers).says("a", "b", "c").close()
    topic.oracles["t"].acked[Position(0, 3)] = b"d"
    topic.settled("t")


def _ends_without_an_answer(checkers: Checkers) -> None:
    owner: Any = SimpleNamespace(
        name="one",
        note=lambda _: None,
        unanswered=[b"a"],
        cluster=SimpleNamespace(checkers=checkers),
    )
    TopicOwner.finish(owner)


TOPIC_CASES: Final[list[tuple[str, Callable[[Checkers], object]]]] = [
    ("only its owner writes the list", _by_another),
    ("the ids of a topic's ledgers rise", _falls),
    ("a listed ledger exists", _names_what_is_gone),
    ("the list knows where its ledgers end", lambda checkers: _Topic(checkers).close(2)),
    ("trimming passes no mark", _passes_a_mark),
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
        lambda checkers: _Topic(checkers).says("a", "b", "c").close().trim().settled("t"),
    ),
    ("every message is answered", _ends_without_an_answer),
]
