"""The judge of topics notices what it is there for."""

from collections import Counter

import pytest

from tests.process.chaos.topics.judge import Message, Place, Received, TopicHistory

ORDER = [0, 1, 2, 3]


def place(number: int) -> Place:
    """The place of an entry."""
    return (7, number, -1)


def history(
    stored: list[int], receipts: dict[int, int], received: list[int], *, is_ordered: bool = True
) -> TopicHistory:
    """Four messages of one producer, stored in this order; receipts are places by number."""
    return TopicHistory(
        "t",
        Counter({"p": 4}),
        {Message("p", number): place(at) for number, at in receipts.items()},
        {place(at): Message("p", number) for at, number in enumerate(stored)},
        [Received("s", is_ordered, [Message("p", number) for number in received])],
    )


@pytest.mark.parametrize(
    ("stored", "receipts", "received", "words"),
    [
        (ORDER, {0: 0, 3: 3}, ORDER, ""),
        ([0, 1, 0, 1, 2, 3], {0: 2, 3: 5}, ORDER, ""),
        ([0, 1, 2], {3: 3}, ORDER, "p#3 was acknowledged and is lost"),
        ([0, 2, 1, 3], {}, ORDER, "p#1 is stored for the first time behind p#2"),
        ([0, 1, 2, 3, 4], {}, ORDER, "p#4 is stored, and was never sent"),
        (ORDER, {1: 2}, ORDER, "where p#2 is"),
        ([0, 1, 2, 3, 1], {1: 1}, ORDER, "stored again as (7, 4, -1)"),
        (ORDER, {3: 3}, [0, 1, 2], "s never received p#3"),
        ([0, 1, 2], {}, ORDER, "s received p#3, which is not stored"),
        (ORDER, {}, [0, 2, 1, 3], "p#1 is received by s for the first time behind p#2"),
        (ORDER, {}, [0, 1, 0, 1, 2, 3], ""),
    ],
)
def test_each_kind_of_violation_is_found(
    stored: list[int], receipts: dict[int, int], received: list[int], words: str
) -> None:
    found = history(stored, receipts, received).judge()
    if words:
        assert any(words in violation for violation in found), found
    else:
        assert found == []


def test_a_shared_subscription_has_no_order() -> None:
    assert history(ORDER, {3: 3}, [3, 1, 0, 2], is_ordered=False).judge() == []


def test_what_was_acknowledged_for_good_is_not_received_again() -> None:
    found = history(ORDER, {3: 3}, [0, 1, 0, 1, 2, 3])
    (received,) = found.received
    assert (found.judge(), received.repeated) == ([], 2)
    received.again.append(Message("p", 1))
    assert found.judge() == ["t: s received p#1 again, which it had acknowledged for good"]


def test_duplicates_are_counted() -> None:
    assert history([0, 1, 0, 1, 2], {}, [0, 1, 2]).duplicates == 2
