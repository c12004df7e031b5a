"""Mutants of the append stream's bookkeeping."""

import pytest

from daybook.core.errors import Code
from daybook.core.stream import FrameFailure, StreamAnswer, StreamAnswers, StreamWindow
from tests.model.mutants.catalog.swarms import MIXED_ANSWERS
from tests.model.mutants.registry import instead_of, mutant


@mutant(
    49,
    "tests/unit/core/bookie/test_stream.py::test_rule_49_a_message_is_covered_only_when_each_of_its_frames_is_decided",
    swarm=MIXED_ANSWERS,
)
@instead_of(StreamAnswers, "_advance")
def cumulative_number_passes_undecided_messages(self: StreamAnswers) -> None:
    """The newest decided message is acknowledged as if all before it were."""
    self._through = max(number for number, left in self._undecided.items() if not left)


@mutant(
    49,
    "tests/unit/core/bookie/test_stream.py::test_rule_49_an_error_is_never_behind_the_number_that_covers_its_message",
)
def errors_travel_after_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are told with the next answer instead of this one."""
    take_answer = StreamAnswers.take_answer
    late: dict[int, tuple[FrameFailure, ...]] = {}

    def one_answer_late(self: StreamAnswers) -> StreamAnswer | None:
        answer = take_answer(self)
        if answer is None:
            return None
        before, late[id(self)] = late.get(id(self), ()), answer.failures
        return answer._replace(failures=before)

    monkeypatch.setattr(StreamAnswers, "take_answer", one_answer_late)


@mutant(
    49,
    "tests/unit/core/bookie/test_stream.py::test_rule_49_answers_of_a_closed_stream_are_dropped",
    swarm=MIXED_ANSWERS,
)
def closed_stream_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that comes after the end of the stream turns an unknown outcome into a success."""
    closed: dict[int, list[tuple[object, Code]]] = {}
    close, settle = StreamWindow.close, StreamWindow.settle

    def remember(self: StreamWindow[object]) -> list[object]:
        unknown = close(self)
        closed[id(self)] = [(token, Code.OK) for token in unknown]
        return unknown

    def answer_anyway(self: StreamWindow[object], answer: StreamAnswer) -> list[tuple[object, Code]]:
        return closed.pop(id(self), None) or settle(self, answer)

    monkeypatch.setattr(StreamWindow, "close", remember)
    monkeypatch.setattr(StreamWindow, "settle", answer_anyway)
