"""`make sim` as its user meets it: a range, one seed, a trace, a failure that says how to replay it."""

import pytest
from typer.testing import CliRunner

from tests.model.sim.__main__ import app

RUN = CliRunner()


def test_a_range_of_seeds_ends_with_a_table() -> None:
    result = RUN.invoke(app, ["--seeds", "0..3", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "simulated hours" in result.output
    assert "fence race" in result.output


def test_one_seed_is_replayed_as_a_trace() -> None:
    result = RUN.invoke(app, ["--seed", "3", "--trace"])
    assert result.exit_code == 0, result.output
    assert "SendFrame #1 to" in result.output
    assert "the promise held" in result.output


def test_a_range_that_is_none_is_refused_with_an_example() -> None:
    result = RUN.invoke(app, ["--seeds", "9..1"])
    assert result.exit_code == 2
    assert "0..9999" in result.output


def test_a_failure_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daybook.core.writer.writer.is_ack_quorum", lambda *_: True)
    result = RUN.invoke(app, ["--seed", "0"])
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "make sim SEED=0 TRACE=1" in result.output
