"""The record of a job's last run: bounds, and what comes back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import MetadataError
from daybook.core.topics.job_result import FIGURES_MAX, MESSAGE_MAX, JobResult

RECORD: dict[str, Any] = {
    "formatVersion": 1,
    "job": "compaction",
    "startedMs": 10,
    "endedMs": 20,
    "succeeded": True,
    "message": "",
    "figures": {"entriesKept": 12},
}


def test_a_record_comes_back_with_the_fields_of_a_later_release() -> None:
    found = JobResult.from_json(json.dumps(RECORD | {"later": {"a": 1}}).encode())
    assert found == JobResult(
        "compaction", 10, 20, succeeded=True, figures={"entriesKept": 12}, unknown_fields={"later": {"a": 1}}
    )
    assert json.loads(found.to_json()) == RECORD | {"later": {"a": 1}}


@given(st.text(), st.text(), st.integers(0, 2**60), st.integers(-(2**60), 2**60))
def test_whatever_a_job_says_becomes_a_record_that_is_read_again(
    error: str, message: str, started_ms: int, took_ms: int
) -> None:
    result = JobResult.of(
        "offload", started_ms, max(0, started_ms + took_ms), error=error, message=message, figures={"a": 1}
    )
    assert JobResult.from_json(result.to_json()) == result
    assert result.succeeded == (not error)
    assert result.started_ms <= result.ended_ms
    assert (error or message).startswith(result.message.removesuffix("…"))


def test_a_long_text_is_cut() -> None:
    assert JobResult.of("a", 1, 2, error="x" * MESSAGE_MAX).message == "x" * MESSAGE_MAX
    cut = JobResult.of("a", 1, 2, error="x" * (MESSAGE_MAX + 1)).message
    assert (len(cut), cut[-2:]) == (MESSAGE_MAX, "x…")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"formatVersion": 2}, "upgrade it first"),
        ({"job": "a/b"}, "no name of a job"),
        ({"startedMs": 21}, "it began at 21 and ended at 20"),
        ({"startedMs": -1}, "it began at -1"),
        ({"startedMs": "1"}, "is no whole number"),
        ({"succeeded": 1}, "neither true nor false"),
        ({"message": "x" * (MESSAGE_MAX + 1)}, "has 1025 characters"),
        ({"figures": {"a b": 1}}, "'a b' names no figure"),
        ({"figures": {f"f{index}": 1 for index in range(FIGURES_MAX + 1)}}, "33 figures"),
        ({"figures": {"a": 1.5}}, "is no whole number"),
        ({"figures": []}, "this is no result of a job"),
    ],
)
def test_what_no_result_can_be_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        JobResult.from_json(json.dumps(RECORD | change).encode())
