"""The demo's second act: what it counts as wrong, and one run of it with little input."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from daybook.cli.demo_input import messages
from daybook.cli.demo_pulsar import _Check
from daybook.cli.demo_reports import Consumed, Produced
from daybook.cli.demo_stage import Stage
from daybook.cli.demo_topics import TopicResults, run_topics, topic_summary
from tests.fixtures.brokers import BROKERS, write_settings
from tests.fixtures.cluster import make_cluster

TOTAL = 30_000


def results(**changes: int) -> TopicResults:
    """Results of a run in which one subscription received everything, but for `changes`."""
    seen = Consumed(**{"arrived": 10, "distinct": 10, **changes})
    return TopicResults(10, produced=Produced(10), consumed={"one": Consumed(10, 10), "other": seen})


def test_a_run_is_good_if_everything_with_a_receipt_arrived_unchanged_and_in_order() -> None:
    assert results(arrived=12).is_good, "a message may come twice"
    assert results(distinct=9).lost == 1
    assert not results(distinct=9).is_good
    assert not results(changed=1).is_good
    assert not results(disordered=1).is_good


def test_the_check_finds_changed_messages_repeated_ones_and_a_broken_order(tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"a\nb\nc\nd\n")
    expected = [content for _, content in messages(source, 4)]
    check = _Check(expected, ordered=True)
    assert not check.arrived("p0", expected[0])
    assert not check.arrived("p1", expected[2])
    assert not check.arrived("p0", expected[0]), "again"
    assert not check.arrived("p0", expected[3])
    assert check.arrived("p0", expected[1][:-1] + b"x"), "behind a later one of its partition, and changed"
    found = check.consumed
    assert (found.arrived, found.distinct, found.changed, found.disordered) == (5, 4, 1, 1)


@pytest.mark.integration
def test_a_killed_owner_loses_nothing_and_the_take_over_is_broken_down(tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.mkdir()
    for name in range(20):
        (source / f"file-{name}").write_bytes(b"".join(b"line %d\n" % n for n in range(TOTAL // 20)))
    cluster = make_cluster(tmp_path / "cluster", bookies=3)
    write_settings(cluster, BROKERS)
    with cluster, Progress(console=Console(quiet=True)) as progress:
        found = run_topics(cluster, source, TOTAL, Stage(progress))
    assert found.is_good, found
    assert found.killed in BROKERS
    shown = StringIO()
    Console(file=shown, width=120).print(topic_summary(found))
    assert "take-over" in shown.getvalue()
    assert "nothing lost, order kept" in shown.getvalue()
