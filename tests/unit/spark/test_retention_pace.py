"""How many topics a second the tasks of a retention take up, on a clock that stands still: no test waits."""

from types import SimpleNamespace
from typing import Any, Final

import pytest
from daybook_spark.audit.pace import Pace
from daybook_spark.jobs import retention
from daybook_spark.jobs.result import Done
from daybook_spark.jobs.retain import RetentionTerms, TopicWork
from daybook_spark.options import Where

from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName

WHERE: Final = Where("nobody:2181")
NAMES: Final = tuple(TopicName("public", "default", f"t{number}") for number in range(8))
WORKS: Final = [TopicWork(name, is_taken=True) for name in NAMES]


def test_a_task_waits_after_each_topic_as_long_as_its_share_says(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []

    class Told(Pace):
        """Says for how long it would wait."""

        async def read(self, bookie: str, size_bytes: int) -> None:
            steps.append(self.pause_s(bookie, size_bytes))

    async def opened(_where: Where) -> Any:
        return SimpleNamespace(close=closed)

    async def closed() -> None:
        steps.append("closed")

    def part(_loop: object, _client: object, _where: Where, work: TopicWork, _terms: object) -> Done:
        steps.append(work.name.local)
        return Done("nothing to do")

    monkeypatch.setattr(retention, "Pace", Told)
    monkeypatch.setattr(retention, "monotonic_s", lambda: 7.0)
    monkeypatch.setattr(retention, "_opened", opened)
    monkeypatch.setattr(retention, "_part", part)
    done = retention.do_works(iter(WORKS[:3]), where=WHERE, terms=RetentionTerms(), topics_per_second=4.0)
    assert [result.succeeded for result in done] == [True] * 3
    assert steps == ["t0", 0.25, "t1", 0.5, "t2", 0.75, "closed"]


class FakeContext:
    """Four slots of Spark, which run nothing: what the tasks would do is recorded."""

    defaultParallelism = 4  # noqa: N815 - a name of Spark's

    def __init__(self) -> None:
        self.tasks = 0
        self.do: Any = None

    def statusTracker(self) -> Any:  # noqa: N802 - a name of Spark's
        return SimpleNamespace(getActiveStageIds=list)

    def parallelize(self, _works: object, tasks: int) -> Any:
        self.tasks = tasks
        return self

    def mapPartitions(self, do: Any) -> Any:  # noqa: N802 - a name of Spark's
        self.do = do
        return self

    def collect(self) -> list[Any]:
        return []


@pytest.mark.parametrize(("works", "tasks", "share"), [(8, 8, 5.0), (2, 2, 10.0)])
def test_the_tasks_that_run_at_a_time_share_the_limit(
    monkeypatch: pytest.MonkeyPatch, works: int, tasks: int, share: float
) -> None:
    async def planned(*_: object) -> list[TopicWork]:
        return WORKS[:works]

    monkeypatch.setattr(retention, "_planned", planned)
    context = FakeContext()
    spark: Any = SimpleNamespace(sparkContext=context)
    terms = RetentionTerms(topics_per_second=20.0, is_dry_run=True)
    retention.run_retention(spark, WHERE, Selection(topics=NAMES), terms)
    assert (context.tasks, context.do.keywords["topics_per_second"]) == (tasks, share)
