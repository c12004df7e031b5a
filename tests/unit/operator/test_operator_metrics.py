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


def test_the_conditions_of_a_pool_are_said_while_they_are_known() -> None:
    """An alert watches them: one that stood still would fire, or be silent, for ever."""
    metrics = OperatorMetrics()

    def said() -> dict[tuple[str, str], float]:
        return {
            (sample.labels["pool"], sample.labels["condition"]): sample.value
            for sample in next(iter(metrics.pool_condition.collect())).samples
        }

    def have(pool: str, **words: str) -> None:
        metrics.conditions_of(pool, [{"type": type_, "status": word} for type_, word in words.items()])

    have("data/other", RetentionHealthy="True")
    have("data/bk", RetentionHealthy="False", AuditHealthy="True", Ready="Unknown")
    other = {("data/other", "RetentionHealthy"): 1}
    assert said() == other | {("data/bk", "RetentionHealthy"): 0, ("data/bk", "AuditHealthy"): 1}
    have("data/bk", RetentionHealthy="True", AuditHealthy="Unknown", Ready="True")
    assert said() == other | {("data/bk", "RetentionHealthy"): 1, ("data/bk", "Ready"): 1}
    have("data/bk")
    assert said() == other, "and of a pool that is gone nothing more"


def test_topics_are_counted_by_their_conditions_and_none_has_a_series_of_its_own() -> None:
    """There may be thousands; one that is gone, or in another pool now, would keep an alert firing."""
    metrics = OperatorMetrics()

    def said() -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels[name] for name in ("pool", "condition", "status")): sample.value
            for sample in next(iter(metrics.topic_conditions.collect())).samples
        }

    def have(topic: str, pool: str, **words: str) -> None:
        found = [{"type": type_, "status": word} for type_, word in words.items()]
        metrics.topic_conditions_of(topic, pool, found)

    for number in range(3):
        have(f"data/{number}", "data/bk", JobsHealthy="False", Ready="True")
    have("data/0", "data/bk", JobsHealthy="False", Ready="True")
    failing, ready = ("data/bk", "JobsHealthy", "False"), ("data/bk", "Ready", "True")
    assert said() == {failing: 3, ready: 3}
    have("data/0", "data/bk", JobsHealthy="True", Ready="True")
    have("data/1", "data/other", JobsHealthy="False", Ready="Unknown")
    good = ("data/bk", "JobsHealthy", "True")
    elsewhere = {("data/other", "JobsHealthy", "False"): 1, ("data/other", "Ready", "Unknown"): 1}
    assert said() == elsewhere | {failing: 1, good: 1, ready: 2}
    for number in range(3):
        have(f"data/{number}", "")
    assert said() == {}
