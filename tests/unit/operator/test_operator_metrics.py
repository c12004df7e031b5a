"""What the operator's own metrics say, and when they fall silent."""

from daybook_operator.metrics import OperatorMetrics


def test_a_cluster_that_is_gone_is_said_nothing_more_of() -> None:
    """What was said last would stand for ever, and keep its alert firing."""
    metrics = OperatorMetrics()

    def said() -> set[tuple[str, str]]:
        return {
            (sample.name.removeprefix("daybook_operator_"), sample.labels["cluster"])
            for family in metrics.registry.collect()
            for sample in family.samples
            if "cluster" in sample.labels
        }

    names = {"recovery_jobs", "under_replicated_ledgers", "unrecoverable_ledgers"}
    for cluster in ("kept", "gone"):
        metrics.repair_of(cluster, under_replicated=1, unrecoverable=1, jobs=1)
    assert said() == {(name, cluster) for name in names for cluster in ("kept", "gone")}
    metrics.keep_only(["kept", "new"])
    assert said() == {(name, "kept") for name in names}
    metrics.keep_only(["kept"])
    metrics.repair_of("gone", under_replicated=0, unrecoverable=0, jobs=0)
    assert ("recovery_jobs", "gone") in said(), "and of one that comes back"
