"""Mutants of the retention of files: what they delete is still somebody's, or may be."""

import re
from collections.abc import Collection
from functools import partial
from typing import Any

import pytest
from daybook_spark.jobs import gone_files
from daybook_spark.jobs.topics import topics_of

from daybook.client.client import Client
from daybook.core.topics.job_selection import Selection
from daybook.core.topics.name import TopicName
from daybook.core.topics.offload import gone, plan
from daybook.metadata.tree import IncompleteListingError
from tests.model.mutants.registry import around, instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no object store")

CORE = "tests/unit/core/topics/offload/test_gone.py"
PLAN = "tests/unit/core/topics/offload/test_plan.py"
JOB = "tests/unit/offload/test_gone_topics.py"


@by_test(73, f"{CORE}::test_rule_73_files_of_a_deleted_topic_go_once_the_grace_since_the_note_is_over")
@around(gone, "judge_files")
def files_go_without_a_grace(judge: Any, found: gone.FoundFiles, named: Collection[str], **terms: Any) -> Any:
    """A run deletes the files of a topic that was deleted a moment ago, and that queries read."""
    return judge(found, named, **{**terms, "grace_ms": 0})


@by_test(73, f"{CORE}::test_rule_73_a_topic_of_the_same_name_keeps_its_files_and_ends_the_grace")
@around(gone, "judge_files")
def a_topic_of_the_same_name_is_not_seen(
    judge: Any, found: gone.FoundFiles, named: Collection[str], **terms: Any
) -> Any:
    """Once a topic was gone, its folder is nobody's for ever."""
    return judge(found, named, **{**terms, "exists": False})


@by_test(73, f"{CORE}::test_rule_73_what_a_list_names_stays_with_its_rows")
@around(gone, "judge_files")
def only_the_topic_itself_names_files(
    judge: Any, found: gone.FoundFiles, _named: Collection[str], **terms: Any
) -> Any:
    """What the lists of other topics name goes."""
    return judge(found, (), **terms)


@by_test(73, f"{CORE}::test_rule_73_a_file_that_no_offload_has_written_stays")
def any_file_is_one_of_an_offload(patch: pytest.MonkeyPatch) -> None:
    """What people have put into the folder goes with the rest."""
    patch.setattr(gone, "OF_A_JOB", re.compile(".*"))


@by_test(73, f"{PLAN}::test_rule_73_files_of_a_topic_that_was_deleted_are_left_to_a_retention")
@around(plan, "unnamed_files")
def an_offload_deletes_the_files_of_a_deleted_topic(
    unnamed: Any, ledgers: Any, job: str, found: Collection[str], unix_ms: int
) -> Any:
    """A topic that is deleted while an offload copies loses its files at the end of the run."""
    return sorted(found) if ledgers is None else unnamed(ledgers, job, found, unix_ms)


@by_test(73, f"{JOB}::test_rule_73_a_topic_is_read_again_before_a_file_goes", slow=True)
@around(gone_files._Part, "_exists")
async def a_topic_is_read_once(exists: Any, part: Any, topic: TopicName) -> bool:
    """A topic that is created again while its files go, or that a restore brings back, loses the rest."""
    return await exists(part, topic) if not part.due else False


@by_test(73, f"{JOB}::test_rule_73_a_listing_that_is_not_whole_deletes_nothing", slow=True)
@instead_of(gone_files, "topics_of")
async def files_go_by_a_partial_listing(
    client: Client, selection: Selection, job: str
) -> tuple[TopicName, ...]:
    """Topics that cannot be listed name nothing."""
    try:
        return await topics_of(client, selection, job)
    except IncompleteListingError:
        return ()
