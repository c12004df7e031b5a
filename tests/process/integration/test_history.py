"""The judge of histories: what is right passes, and everything that can be wrong is reported by its kind."""

import pytest

from tests.process.integration.history import History, Kind

VALUES = [b"a", b"bb", b"ccc", b"dddd"]


def history(
    *,
    acknowledged: list[tuple[int, int]] | None = None,
    final: list[tuple[int, bytes]] | None = None,
    last_entry: int | None = None,
    length: int | None = None,
    reads: list[tuple[int, bytes]] | None = None,
) -> History:
    """Ledger 7: four values submitted, three acknowledged, all four there; what is given replaces that."""
    made = History()
    made.created(7)
    made.submitted(7, VALUES)
    for first, last in [(0, 0), (1, 2)] if acknowledged is None else acknowledged:
        made.acknowledged(7, first, last)
    entries = list(enumerate(VALUES)) if final is None else final
    size = sum(len(payload) for _, payload in entries)
    made.closed(
        7,
        len(entries) - 1 if last_entry is None else last_entry,
        size if length is None else length,
        entries,
    )
    for entry_id, payload in reads or []:
        made.read("tail", 7, entry_id, payload)
    return made


@pytest.mark.parametrize(
    "right",
    [
        history(),
        history(final=list(enumerate(VALUES[:3]))),
        history(acknowledged=[], final=[]),
        history(reads=[(1, b"bb"), (2, b"ccc"), (3, b"dddd")]),
    ],
    ids=[
        "whole",
        "the unacknowledged one is gone",
        "nothing acknowledged, nothing there",
        "read from within",
    ],
)
def test_what_is_right_passes(right: History) -> None:
    assert right.judge() == []


@pytest.mark.parametrize(
    ("wrong", "kinds"),
    [
        (history(final=list(enumerate(VALUES[:2]))), {(Kind.LOST, 2)}),
        (history(final=[]), {(Kind.LOST, 0), (Kind.LOST, 1), (Kind.LOST, 2)}),
        (history(final=[(0, b"a"), (2, b"ccc"), (3, b"dddd")], last_entry=3), {(Kind.LOST, 1)}),
        (history(acknowledged=[(0, 0)], final=[(0, b"a"), (2, b"ccc")], last_entry=2), {(Kind.LOST, 1)}),
        (history(final=[(0, b"a"), (1, b"ccc"), (2, b"bb")]), {(Kind.REORDERED, 1), (Kind.REORDERED, 2)}),
        (history(final=[(0, b"a"), (1, b"ccc"), (2, b"ccc")]), {(Kind.REORDERED, 1)}),
        (history(final=[(0, b"a"), (1, b"bb"), (2, b"bb")]), {(Kind.DUPLICATE, 2)}),
        (history(final=[(0, b"a"), (1, b"b!"), (2, b"ccc")]), {(Kind.CHANGED, 1)}),
        (history(final=[*enumerate(VALUES), (4, b"e")]), {(Kind.PHANTOM, 4)}),
        (history(length=9), {(Kind.CHANGED, -1)}),
        (history(acknowledged=[(1, 2), (0, 0)]), {(Kind.REORDERED, 1), (Kind.REORDERED, 0)}),
        (history(acknowledged=[(0, 0), (2, 2)]), {(Kind.REORDERED, 2)}),
        (history(acknowledged=[(0, 4)]), {(Kind.PHANTOM, 4), (Kind.LOST, 4)}),
        (history(reads=[(0, b"a"), (2, b"ccc")]), {(Kind.LOST, 1)}),
        (history(reads=[(0, b"a"), (0, b"a")]), {(Kind.DUPLICATE, 0)}),
        (history(reads=[(1, b"bb"), (0, b"a")]), {(Kind.REORDERED, 0)}),
        (history(reads=[(1, b"b?")]), {(Kind.CHANGED, 1)}),
        (history(final=list(enumerate(VALUES[:3])), reads=[(3, b"dddd")]), {(Kind.PHANTOM, 3)}),
    ],
)
def test_what_is_wrong_is_reported(wrong: History, kinds: set[tuple[Kind, int]]) -> None:
    assert {(found.kind, found.entry_id) for found in wrong.judge()} == kinds


def test_a_ledger_that_nobody_read_back_is_reported() -> None:
    made = History()
    made.created(7)
    made.submitted(7, VALUES)
    assert [found.kind for found in made.judge()] == [Kind.UNREAD]


def test_a_second_close_that_differs_is_reported() -> None:
    made = history()
    made.closed(7, 2, 6, list(enumerate(VALUES[:3])))
    assert Kind.CHANGED in {found.kind for found in made.judge()}


def test_an_entry_that_is_in_two_ledgers_is_reported() -> None:
    made = history()
    made.created(8)
    made.submitted(8, [b"a"])
    made.closed(8, 0, 1, [(0, b"a")])
    assert [(found.kind, found.ledger_id) for found in made.judge()] == [(Kind.DUPLICATE, 8)]
