"""What jobs for topics leave behind: a result for each topic, a summary, and the last words of a container."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer
from daybook_spark.jobs import retention as retention_job
from daybook_spark.jobs.result import (
    MESSAGE_CHARACTERS_MAX,
    TERMINATION_BYTES_MAX,
    Done,
    JobSummary,
    TopicResult,
    attempt,
    last_message,
    summary_of,
)
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from daybook.cli.main import app
from daybook.cli.spark import retention, topic_jobs
from daybook.core.errors import MetadataError, PolicyError, TopicNameError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName

ORDERS = "persistent://public/default/orders"
OF_SPARK = "[DIVIDE_BY_ZERO] Division by zero.\n\nJVM stacktrace:\norg.apache.spark.SparkArithmeticException\n\tat a.b"


def result(topic: str = ORDERS, message: str = "", *, succeeded: bool = True, **figures: int) -> TopicResult:
    return TopicResult(topic, "sorting", 5, 7, succeeded, message, figures)


def failing(error: Exception) -> Done:
    raise error


def test_what_fails_for_a_topic_is_its_result_and_holds_up_no_other() -> None:
    work = {
        "a": lambda: failing(MetadataError("read the list again")),
        "b": lambda: failing(KeyError("b")),
        "c": lambda: Done("all done", {"things": 3}),
        "d": lambda: failing(MetadataError("x" * 5000)),
        "e": lambda: failing(PySparkException(OF_SPARK)),
    }
    found = [attempt(topic, "sorting", each) for topic, each in work.items()]
    assert [each.succeeded for each in found] == [False, False, True, False, False]
    assert found[0].message == "read the list again"
    assert found[1].message.startswith("KeyError: 'b'")
    assert (found[2].message, found[2].figures) == ("all done", {"things": 3})
    assert len(found[3].message) == MESSAGE_CHARACTERS_MAX
    assert found[4].message == "[DIVIDE_BY_ZERO] Division by zero.; the job's log has more"
    assert all(0 < each.started_ms <= each.ended_ms for each in found)


def test_a_summary_adds_the_figures_up_in_the_order_of_topics() -> None:
    summary = summary_of("sorting", [result("b", things=2), result("a", things=3, others=1)])
    assert [each.topic for each in summary.results] == ["a", "b"]
    assert summary.figures == {"others": 1, "things": 5}
    assert summary.record()["results"][0] == {
        "topic": "a",
        "job": "sorting",
        "startedMs": 5,
        "endedMs": 7,
        "succeeded": True,
        "message": "",
        "figures": {"things": 3, "others": 1},
    }


@given(
    messages=st.lists(st.text(max_size=700), max_size=60),
    names=st.text(max_size=1100),
    done=st.integers(0, 3),
)
def test_the_termination_message_fits_and_counts_what_it_leaves_out(
    messages: list[str], names: str, done: int
) -> None:
    failed = [result(f"{number}{names}", each, succeeded=False) for number, each in enumerate(messages)]
    summary = summary_of("sorting", [*failed, *(result(things=2) for _ in range(done))])
    text = summary.termination_message()
    assert len(text.encode()) <= TERMINATION_BYTES_MAX
    found = json.loads(text)
    assert (found["failed"], found["succeeded"]) == (len(messages), done)
    assert len(found["failures"]) + found.get("notShown", 0) == len(messages)
    assert found["figures"] == ({"things": 2 * done} if done else {})


def test_failures_are_shown_as_far_as_they_fit() -> None:
    summary = summary_of("sorting", [result(f"{n:03}", "why " * 50, succeeded=False) for n in range(200)])
    found = json.loads(summary.termination_message())
    assert 8 <= len(found["failures"]) < 20
    assert found["failures"][0]["topic"] == "000"


def test_the_options_name_the_topics() -> None:
    assert topic_jobs.selection_of(None, None) == Selection()
    assert topic_jobs.selection_of(["orders"], None) == Selection((TopicName.parse("orders"),))
    assert topic_jobs.selection_of(None, ["a/b"]) == Selection(namespaces=(("a", "b"),))
    assert topic_jobs.selection_of(None, None, "ns.pool", "@daily") == Selection(
        pool="ns.pool", schedule="@daily"
    )
    with pytest.raises(TopicNameError, match="tenant/namespace"):
        topic_jobs.selection_of(None, ["b"])
    with pytest.raises(PolicyError, match="not several"):
        topic_jobs.selection_of(["orders"], ["a/b"])


def test_a_retention_of_a_pool_takes_what_names_no_pool_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CronJob would reach it otherwise: each has a pool."""
    asked: list[Selection] = []

    def run(_spark: object, _where: object, selection: Selection, *_: object, **__: object) -> JobSummary:
        asked.append(selection)
        return summary_of("retention", [])

    monkeypatch.setattr(retention, "spark_session", lambda *_: nullcontext())
    monkeypatch.setattr(retention_job, "run_retention", run)
    ran = CliRunner().invoke(app, ["spark", "retention", "--zookeeper", "127.0.0.1:1", "--pool", "data.bk"])
    assert ran.exit_code == 0, ran.output
    assert asked == [Selection(pool="data.bk", with_poolless=True)]


def test_a_job_with_a_failure_ends_with_1_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "termination-log"
    topic_jobs.finish(summary_of("sorting", [result(thingsSorted=1234)]), log, as_json=False)
    shown = capsys.readouterr().out
    assert "things sorted" in shown
    assert "1 done, 0 failed; things sorted 1,234" in shown
    assert json.loads(log.read_text())["figures"] == {"thingsSorted": 1234}
    failed = summary_of("sorting", [result(message="[do] this", succeeded=False)])
    with pytest.raises(typer.Exit) as ended:
        topic_jobs.finish(failed, log, as_json=False)
    assert ended.value.exit_code == 1
    assert "[do] this" in capsys.readouterr().out
    assert json.loads(log.read_text())["failures"] == [{"topic": ORDERS, "message": "[do] this"}]
    with pytest.raises(typer.Exit):
        topic_jobs.finish(failed, None, as_json=True)
    assert json.loads(capsys.readouterr().out) == failed.record()


def test_an_error_that_ends_the_whole_job_is_its_last_word(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    for where in (log, None):
        with pytest.raises(MetadataError), topic_jobs.last_words("sorting", where):
            raise MetadataError("start a broker")
    assert json.loads(log.read_text()) == {"job": "sorting", "error": "start a broker"}


def test_an_error_of_spark_that_ends_the_whole_job_leaves_the_line_that_says_most(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    with pytest.raises(PySparkException), topic_jobs.last_words("audit", log):
        raise PySparkException(OF_SPARK)
    assert json.loads(log.read_text()) == {"job": "audit", "error": "[DIVIDE_BY_ZERO] Division by zero."}
    log.unlink()
    with pytest.raises(KeyError), topic_jobs.last_words("audit", log):
        raise KeyError("a mistake of the job itself, of which the log's end says more")
    assert not log.exists()


@pytest.mark.parametrize("error", ["", "é" * 5000, "\U0001f4d6" * 5000, "a" * 5000])
def test_last_words_fit_whatever_they_are_written_in(error: str) -> None:
    text = last_message("audit", error, {"ledgers": 3})
    assert len(text.encode()) <= TERMINATION_BYTES_MAX
    found = json.loads(text)
    assert found["ledgers"] == 3
    assert error.startswith(found.pop("error", "").rstrip("…"))
    assert bool(error) is ("error" in json.loads(text))
