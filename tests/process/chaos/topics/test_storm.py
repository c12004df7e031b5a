"""Some seconds of chaos on topics on every run of the tests; `make chaos-topics` makes minutes of it, with many seeds."""

from pathlib import Path

import pytest

from tests.process.chaos.topics.storm import TopicStorm

SEED = 5
MINUTES = 0.1


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_some_seconds_of_chaos_on_topics_break_no_promise(tmp_path: Path) -> None:
    storm = TopicStorm(tmp_path, SEED)
    storm.run(MINUTES)
    assert storm.violations == []
    assert storm.counts["acknowledged messages"] > 0
    assert storm.counts["received"] > 0
    assert any(name.startswith("fault: ") for name in storm.counts)
