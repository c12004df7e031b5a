"""The append stream's bookkeeping: cumulative numbers cover only what succeeded, and late answers change nothing."""

import random

import pytest

from daybook.core.errors import Code
from daybook.core.stream import (
    FrameFailure,
    StreamAnswer,
    StreamAnswers,
    StreamError,
    StreamWindow,
    WindowLimits,
)


def test_messages_are_numbered_from_one_in_order() -> None:
    answers = StreamAnswers()
    assert [answers.receive(1), answers.receive(3), answers.receive(1)] == [1, 2, 3]


def test_nothing_new_is_no_answer() -> None:
    answers = StreamAnswers()
    answers.receive(2)
    assert answers.take_answer() is None
    answers.succeed(1, 2)
    assert answers.take_answer() == StreamAnswer(1)
    assert answers.take_answer() is None


def test_a_message_without_frames_is_decided_by_arriving() -> None:
    answers = StreamAnswers()
    answers.receive(0)
    assert answers.take_answer() == StreamAnswer(1)


def test_frames_of_a_message_are_decided_together_and_refused_one_by_one() -> None:
    answers = StreamAnswers()
    answers.receive(5)
    answers.decide(1, [], Code.OK)
    answers.decide(1, [0, 3], Code.OK)
    answers.decide(1, [1, 4], Code.FENCED)
    answers.decide(1, [2], Code.OK)
    failures = (FrameFailure(1, 1, Code.FENCED), FrameFailure(1, 4, Code.FENCED))
    assert answers.take_answer() == StreamAnswer(1, failures)


def test_rule_49_a_message_is_covered_only_when_each_of_its_frames_is_decided() -> None:
    answers = StreamAnswers()
    answers.receive(2)
    answers.receive(1)
    answers.succeed(2)
    answers.succeed(1)
    assert answers.take_answer() is None, "a frame of message 1 is undecided, so nothing is covered yet"
    answers.succeed(1)
    assert answers.take_answer() == StreamAnswer(2)


def test_rule_49_an_error_is_never_behind_the_number_that_covers_its_message() -> None:
    answers = StreamAnswers()
    for _ in range(3):
        answers.receive(2)
    answers.succeed(1, 2)
    answers.fail(2, 1, Code.FENCED)
    answers.succeed(3, 2)
    first = answers.take_answer()
    assert first == StreamAnswer(1, (FrameFailure(2, 1, Code.FENCED),))
    answers.succeed(2)
    assert answers.take_answer() == StreamAnswer(3)


def test_rule_49_mixed_success_and_error_in_one_group_reach_the_right_frames() -> None:
    answers, window = StreamAnswers(), StreamWindow[str]()
    window.send(["a0", "a1"], 10)
    window.send(["b0", "b1", "b2"], 10)
    answers.receive(2)
    answers.receive(3)
    answers.succeed(1, 2)
    answers.fail(2, 1, Code.LIMBO)
    answers.succeed(2, 2)
    answer = answers.take_answer()
    assert answer is not None
    assert window.settle(answer) == [
        ("b1", Code.LIMBO),
        ("a0", Code.OK),
        ("a1", Code.OK),
        ("b0", Code.OK),
        ("b2", Code.OK),
    ]
    assert window.messages_in_flight == 0
    assert window.bytes_in_flight == 0


@pytest.mark.parametrize("seed", range(20))
def test_rule_49_any_order_of_decisions_gives_each_frame_its_own_answer(seed: int) -> None:
    rng = random.Random(seed)
    answers, window = StreamAnswers(), StreamWindow[tuple[int, int]]()
    wanted: dict[tuple[int, int], Code] = {}
    undecided: list[tuple[int, int]] = []
    told: dict[tuple[int, int], Code] = {}
    for number in range(1, 30):
        frames = rng.randrange(1, 5)
        window.send([(number, frame) for frame in range(frames)], frames)
        assert answers.receive(frames) == number
        undecided += [(number, frame) for frame in range(frames)]
    decided: set[tuple[int, int]] = set()
    while undecided:
        message, frame = undecided.pop(rng.randrange(len(undecided)))
        code = rng.choice([Code.OK, Code.OK, Code.FENCED, Code.IO_ERROR])
        wanted[message, frame] = code
        decided.add((message, frame))
        if code is Code.OK:
            answers.succeed(message)
        else:
            answers.fail(message, frame, code)
        if rng.random() < 0.3 and (answer := answers.take_answer()) is not None:
            news = dict(window.settle(answer))
            assert news.keys() <= decided, "no frame is answered before it is decided"
            assert not news.keys() & told.keys(), "none twice"
            told |= news
    answer = answers.take_answer()
    if answer is not None:
        told |= dict(window.settle(answer))
    assert told == wanted


def test_rule_49_answers_of_a_closed_stream_are_dropped() -> None:
    window = StreamWindow[int]()
    window.send([1, 2], 10)
    window.settle(StreamAnswer(0, (FrameFailure(1, 0, Code.FENCED),)))
    assert window.close() == [2], "only what is undecided is unknown"
    assert window.settle(StreamAnswer(1)) == []
    assert not window.may_send(1)


@pytest.mark.parametrize(
    "answer",
    [
        StreamAnswer(2),
        StreamAnswer(0, (FrameFailure(2, 0, Code.FENCED),)),
        StreamAnswer(0, (FrameFailure(1, 1, Code.FENCED),)),
        StreamAnswer(0, (FrameFailure(1, 0, Code.FENCED), FrameFailure(1, 0, Code.FENCED))),
    ],
)
def test_an_answer_about_what_is_not_under_way_breaks_the_stream(answer: StreamAnswer) -> None:
    window = StreamWindow[int]()
    window.send([1], 10)
    with pytest.raises(StreamError):
        window.settle(answer)


def test_an_answer_about_a_message_that_was_settled_breaks_the_stream() -> None:
    window = StreamWindow[int]()
    window.send([1], 10)
    assert window.settle(StreamAnswer(1)) == [(1, Code.OK)]
    with pytest.raises(StreamError, match="not under way"):
        window.settle(StreamAnswer(1, (FrameFailure(1, 0, Code.FENCED),)))


def test_who_sends_beside_the_messages_knows_between_which_of_them() -> None:
    window = StreamWindow[int]()
    assert (window.oldest_message, window.next_message) == (1, 1)
    window.send([1], 10)
    window.send([2], 10)
    assert (window.oldest_message, window.next_message) == (1, 3)
    window.settle(StreamAnswer(1))
    assert (window.oldest_message, window.next_message) == (2, 3)


def test_small_messages_go_one_at_a_time() -> None:
    window = StreamWindow[int](WindowLimits(bytes_max=100, messages_max=3, full_bytes=40))
    assert not window.may_send(0), "nothing to send"
    assert window.may_send(1)
    window.send([1], 1)
    assert not window.may_send(39), "small: wait for the answer and gather"
    assert window.may_send(40), "full: overlap"


def test_full_messages_are_limited_in_bytes_and_number() -> None:
    limits = WindowLimits(bytes_max=100, messages_max=3, full_bytes=40)
    by_bytes = StreamWindow[int](limits)
    by_bytes.send([1], 61)
    assert not by_bytes.may_send(40)
    by_number = StreamWindow[int](limits)
    for token in range(3):
        by_number.send([token], 1)
    assert not by_number.may_send(40)
    by_number.settle(StreamAnswer(1))
    assert by_number.may_send(40)


def test_a_message_that_cannot_be_split_fails_as_a_whole() -> None:
    answers, window = StreamAnswers(), StreamWindow[str]()
    window.send(["a"], 1)
    window.send(["b0", "b1"], 1)
    assert answers.receive(1) == 1
    assert answers.refuse(Code.BAD_FRAME) == 2
    answers.succeed(1)
    answer = answers.take_answer()
    assert answer is not None
    assert window.settle(answer) == [("b0", Code.BAD_FRAME), ("b1", Code.BAD_FRAME), ("a", Code.OK)]
    assert window.messages_in_flight == 0
