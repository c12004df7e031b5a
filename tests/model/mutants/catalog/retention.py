"""Mutants of the retention job: it believes what it cannot know, and deletes what is not its own to judge."""

from functools import partial
from typing import Any

from daybook_spark.jobs import retain

from daybook.client import left_behind
from daybook.client.client import Client
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import TOPIC_KEY, LedgerMetadata
from daybook.core.topics import retention_plan
from daybook.core.topics.name import TopicName
from daybook.core.topics.unnamed import NamedLedgers, TopicLedger
from daybook.metadata.topics import TopicManager
from daybook.metadata.tree import IncompleteListingError
from tests.model.mutants.registry import around, instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no jobs")

RETAIN = "tests/unit/spark/test_retain.py"
PLAN = "tests/unit/core/topics/test_retention_plan.py"


@by_test(71, f"{RETAIN}::test_rule_71_a_listing_that_is_not_whole_deletes_nothing")
@instead_of(retain, "named_by")
async def retention_takes_a_partial_listing(topics: TopicManager, name: TopicName) -> NamedLedgers:
    """Cursors that cannot be listed name nothing."""
    try:
        return await left_behind.named_by(topics, name)
    except IncompleteListingError:
        return NamedLedgers((await topics.read(name)).value)


@by_test(71, f"{PLAN}::test_rule_71_a_ledger_without_the_mark_of_a_topic_is_not_judged")
@around(TopicLedger, "of")
def a_ledger_without_a_mark_is_judged(of: Any, metadata: LedgerMetadata) -> TopicLedger | None:
    """Whatever is in the custom metadata, or is not, a ledger belongs to some topic."""
    found: TopicLedger | None = of(metadata)
    if found is not None:
        return found
    custom = metadata.custom_metadata
    topic = custom.get(TOPIC_KEY, b"").decode(errors="replace")
    name = TopicName.parse(topic) if topic.startswith("persistent://") else TopicName("no", "such", "topic")
    return TopicLedger(metadata.ledger_id, name, "", holds_messages=True, created_at_ms=0)


@by_test(71, f"{RETAIN}::test_rule_71_a_ledger_that_changes_before_its_deletion_stays")
@instead_of(retain, "delete_unnamed")
async def retention_deletes_without_reading_again(client: Client, ledger_id: LedgerId) -> bool:
    """A deletion is meant for whatever the ledger has become since it was listed."""
    await client.delete_ledger(ledger_id)
    return True


@by_test(
    71, f"{PLAN}::test_rule_71_a_ledger_is_judged_once_it_is_old_and_a_jobs_never_before_no_owner_names_it"
)
@instead_of(retention_plan.MarkedLedger, "is_old")
def a_jobs_ledger_goes_while_an_owner_may_name_it(
    self: retention_plan.MarkedLedger, grace_ms: int, unix_ms: int
) -> bool:
    """A grace that a person chose holds for the ledgers of jobs, too."""
    return self.ledger.is_older(grace_ms, unix_ms)


@by_test(71, f"{PLAN}::test_rule_71_a_ledger_goes_only_if_nothing_names_it_and_nothing_ever_will")
@instead_of(retention_plan.MarkedLedger, "never_named")
def what_is_not_named_now_never_will_be(self: retention_plan.MarkedLedger, names: NamedLedgers) -> bool:
    """A ledger that its maker is about to name goes."""
    return not names.names(self.ledger.ledger_id)
