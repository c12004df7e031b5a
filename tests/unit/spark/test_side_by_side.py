"""Topics of a run are at work at the same time, and what fails for one of them holds up no other: compaction, offload and restore.

A topic that is deleted while it is compacted is no failure, however its tasks end.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Barrier
from types import SimpleNamespace
from typing import Any, Final

import pytest
from daybook_spark.compact.job import Compacted, CompactionSettings
from daybook_spark.jobs import compaction, offload, restore
from daybook_spark.jobs.offload_topic import OffloadSettings
from daybook_spark.jobs.restore_topic import RestoreSettings
from daybook_spark.jobs.result import Done, JobSummary
from daybook_spark.options import Where

from daybook.core.errors import DaybookError, MetadataUnavailableError, NoSuchTopicError
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.metadata.topics import TopicManager

NAMES: Final = tuple(TopicName("public", "default", f"orders-partition-{number}") for number in range(4))
BAD: Final = NAMES[1]
LIMIT_S: Final = 30.0
"""After it a topic that waits for the others fails: they are not at work."""
WHERE: Final = Where("nobody:2181")
ALL: Final = Selection(namespaces=(("public", "default"),))
IDLE: Any = SimpleNamespace(
    sparkContext=SimpleNamespace(statusTracker=lambda: SimpleNamespace(getActiveStageIds=list))
)
"""A Spark that runs nothing."""

Run = Callable[[], JobSummary]


class Together:
    """One topic's part of any job, which goes on once all topics have come to it; one of them fails then."""

    def __init__(self) -> None:
        self._barrier = Barrier(len(NAMES))

    def meet(self, name: TopicName) -> None:
        self._barrier.wait(LIMIT_S)
        if name == BAD:
            msg = "no bookie has entry 2: bring one back"
            raise DaybookError(msg)


@pytest.fixture(params=["compaction", "offload", "restore"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A dry run of a job over four topics, without a cluster."""
    together = Together()

    async def begin(*_: object, **__: object) -> tuple[tuple[TopicName, ...], None]:
        return NAMES, None

    @asynccontextmanager
    async def client(_where: Where) -> AsyncIterator[None]:
        yield None

    async def is_there(*_: object) -> bool:
        return False

    def compact_part(
        _spark: object, _where: object, _admin: object, name: TopicName, *_: object
    ) -> Compacted:
        together.meet(name)
        return Compacted()

    async def part(_client: object, _admin: object, name: TopicName, *_: object) -> Done:
        together.meet(name)
        return Done("done")

    monkeypatch.setattr(compaction, "_begin", begin)
    monkeypatch.setattr(compaction, "_is_gone", is_there)
    monkeypatch.setattr(compaction, "compact_topic", compact_part)
    for job, name in ((offload, "offload_topic"), (restore, "restore_topic")):
        monkeypatch.setattr(job, "begin_job", begin)
        monkeypatch.setattr(job, "open_client", client)
        monkeypatch.setattr(job, name, part)
    runs: dict[str, Run] = {
        "compaction": lambda: compaction.run_compaction(IDLE, WHERE, ALL, CompactionSettings(dry_run=True)),
        "offload": lambda: offload.run_offload(IDLE, WHERE, ALL, OffloadSettings("1" * 32, is_dry_run=True)),
        "restore": lambda: restore.run_restore(IDLE, WHERE, ALL, RestoreSettings(is_dry_run=True)),
    }
    return runs[request.param]


def test_topics_share_the_tasks_of_a_run_and_one_that_fails_holds_up_no_other(run: Run) -> None:
    found = {each.topic: each for each in run().results}
    assert found.keys() == {str(name) for name in NAMES}
    (failed,) = [each for each in found.values() if not each.succeeded]
    assert (failed.topic, failed.message) == (str(BAD), "no bookie has entry 2: bring one back")


def test_a_topic_that_is_deleted_while_it_is_compacted_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks miss its ledgers, whatever they say of that; the same of a topic that is still there is a failure."""
    here, gone, unsure = NAMES[:3]

    async def begin(*_: object) -> tuple[tuple[TopicName, ...], None]:
        return (here, gone, unsure), None

    @asynccontextmanager
    async def client(_where: Where) -> AsyncIterator[Any]:
        yield SimpleNamespace(store=None, layout=None)

    async def read(_topics: object, name: TopicName, *, sync: bool = False) -> None:
        assert sync, "a list that was read before the deletion proves nothing"
        if name == gone:
            raise NoSuchTopicError("the topic was deleted")
        if name == unsure:
            raise MetadataUnavailableError("no ZooKeeper answers")

    def lost(*_: object) -> Compacted:
        raise RuntimeError("Job aborted due to stage failure: ledger 7 does not exist")

    monkeypatch.setattr(compaction, "_begin", begin)
    monkeypatch.setattr(compaction, "open_client", client)
    monkeypatch.setattr(TopicManager, "read", read)
    monkeypatch.setattr(compaction, "compact_topic", lost)
    summary = compaction.run_compaction(IDLE, WHERE, ALL, CompactionSettings(dry_run=True))
    found = {each.topic: each for each in summary.results}
    assert found[str(gone)].succeeded
    assert found[str(gone)].message == "the topic was deleted meanwhile"
    for name in (here, unsure):
        assert not found[str(name)].succeeded
        assert "ledger 7 does not exist" in found[str(name)].message
