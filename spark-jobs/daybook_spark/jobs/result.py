"""What a job did for each topic, and the summary of all: for a person, for a program, and for the last words of a container.

A topic whose part fails is a result like any other, so that it holds up no other topic. Kubernetes keeps 4,096 bytes of a container's
termination message: the summary names as many failures as fit, and counts the rest.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from daybook.core.errors import DaybookError, NoSuchTopicError, TopicNameError
from daybook.core.topics.job_result import JobResult
from daybook.core.topics.name import TopicName
from daybook.metadata.job_results import JobResults
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_spark.access import open_client
from daybook_spark.jobs.spark_errors import spark_words
from daybook_spark.options import Where

DELETED_MEANWHILE: Final = "the topic was deleted meanwhile"
"""What became of a topic that a job took: no failure, since nothing of it is left to do."""
TERMINATION_BYTES_MAX: Final = 4096
MESSAGE_CHARACTERS_MAX: Final = 1000
"""Of a result; a longer text is cut."""
_FAILURE_CHARACTERS_MAX: Final = 300
"""Of a topic's name and of its message in a termination message."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What work for one topic returns: what it did, in words and in figures, such as `{"ledgersTrimmed": 3}`."""

    message: str
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What a job did for one topic. Times are ms since 1970; `message` says what was done, or what went wrong and what to do."""

    topic: str
    job: str
    started_ms: int
    ended_ms: int
    succeeded: bool
    message: str
    figures: Mapping[str, int] = field(default_factory=dict)

    def job_result(self) -> JobResult:
        """The record that is left beside the topic's policy."""
        error, message = ("", self.message) if self.succeeded else (self.message or "it failed", "")
        return JobResult.of(
            self.job, self.started_ms, self.ended_ms, error=error, message=message, figures=self.figures
        )

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.topic,
            "job": self.job,
            "startedMs": self.started_ms,
            "endedMs": self.ended_ms,
            "succeeded": self.succeeded,
            "message": self.message,
            "figures": dict(self.figures),
        }


def attempt(topic: str, job: str, work: Callable[[], Done]) -> TopicResult:
    """The result of `work` for a topic. What it raises is the result, so that the next topic has its turn."""
    started_ms = unix_ms()
    figures: Mapping[str, int] = {}
    succeeded = False
    try:
        done = work()
        succeeded, message, figures = True, done.message, done.figures
    except DaybookError as error:
        message = str(error)
    except Exception as error:
        log.error("a job failed for a topic after an error of its own", topic=topic, job=job, exc_info=error)
        said = spark_words(error)
        message = f"{said}; the job's log has more" if said else _unexpected(error)
    return TopicResult(
        topic,
        job,
        started_ms,
        max(started_ms, unix_ms()),
        succeeded,
        _cut(message, MESSAGE_CHARACTERS_MAX),
        figures,
    )


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {error}; the job's log has more: please report it"


@dataclass(frozen=True, slots=True)
class JobSummary:
    """What became of all topics of a job."""

    job: str
    results: tuple[TopicResult, ...]

    @property
    def failures(self) -> tuple[TopicResult, ...]:
        """The results of topics whose part failed."""
        return tuple(result for result in self.results if not result.succeeded)

    @property
    def figures(self) -> dict[str, int]:
        """The sums of all figures, by name."""
        sums: Counter[str] = Counter()
        for result in self.results:
            sums.update(result.figures)
        return dict(sorted(sums.items()))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._head(), "results": [result.record() for result in self.results]}

    def termination_message(self) -> str:
        """JSON of at most TERMINATION_BYTES_MAX bytes, with the first failures. Figures are few."""
        failures = [
            {
                "topic": _cut(each.topic, _FAILURE_CHARACTERS_MAX),
                "message": _cut(each.message, _FAILURE_CHARACTERS_MAX),
            }
            for each in self.failures
        ]
        text = _json({**self._head(), "failures": failures})
        shown = min(len(failures), TERMINATION_BYTES_MAX)
        while len(text) > TERMINATION_BYTES_MAX and shown:
            shown -= 1 + shown // 8
            text = _json({**self._head(), "failures": failures[:shown], "notShown": len(failures) - shown})
        return text

    def _head(self) -> dict[str, Any]:
        failed = len(self.failures)
        return {
            "job": self.job,
            "topics": len(self.results),
            "succeeded": len(self.results) - failed,
            "failed": failed,
            "figures": self.figures,
        }


def summary_of(job: str, results: Iterable[TopicResult]) -> JobSummary:
    """The summary of a job, in the order of the topics' names."""
    return JobSummary(job, tuple(sorted(results, key=lambda result: result.topic)))


async def leave_results(where: Where, summary: JobSummary) -> None:
    """Leave each result beside its topic's policy; of a topic that is gone nobody asks for it. Raises MetadataUnavailableError."""
    async with open_client(where) as client:
        stored = JobResults(client.store, client.layout)
        for each in summary.results:
            with suppress(NoSuchTopicError, TopicNameError):
                await stored.write(TopicName.parse(each.topic), each.job_result())


def last_message(job: str, error: str = "", figures: Mapping[str, Any] | None = None) -> str:
    """The termination message of a job that has no results of topics: it is about none, or ended before they had their turn."""
    head = {"job": job, **(figures or {})}
    texts = (_cut(error, most) for most in (MESSAGE_CHARACTERS_MAX, _FAILURE_CHARACTERS_MAX))
    messages = [_json({**head, "error": text} if text else head) for text in texts]
    return next((each for each in messages if len(each) <= TERMINATION_BYTES_MAX), messages[-1])


def write_termination_log(path: Path, message: str) -> None:
    """Leave the message where the kubelet reads it. Raises OSError."""
    assert len(message) <= TERMINATION_BYTES_MAX, "the kubelet would cut it"
    path.write_text(message, encoding="ascii")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _json(record: Mapping[str, Any]) -> str:
    """In ASCII, so that a byte is a character."""
    return json.dumps(record, separators=(",", ":"))
