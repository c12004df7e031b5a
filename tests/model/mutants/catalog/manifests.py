"""Mutants of manifests: a job names what is not closed, a slow one names what is deleted, one names its ledgers twice, and an abort deletes what is named."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from daybook_spark.write import job

from daybook.core.ids import LedgerId
from daybook.metadata import manifests
from tests.model.mutants.registry import instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no jobs")

COMMIT = "tests/unit/spark/test_manifest_commit.py"
MANIFEST = "tests/unit/metadata/test_manifests.py"


@by_test(66, f"{COMMIT}::test_rule_66_a_commit_names_no_ledger_that_is_open")
@instead_of(job, "check_closed")
async def a_manifest_is_written_before_its_ledgers_are_closed(_client: Any, _written: Any) -> None:
    """A commit believes what the tasks report."""


@by_test(66, f"{COMMIT}::test_rule_66_a_job_whose_ledgers_were_swept_commits_no_more")
@instead_of(manifests.ManifestManager, "abandon")
async def a_sweep_lets_slow_jobs_commit(self: Any, name: str, _job: str) -> manifests.Manifest:
    """A sweep deletes ledgers that no manifest names yet, and does not forbid to name them."""
    found = await self.read(name)
    return manifests.Manifest() if found is None else found.value


@by_test(66, f"{MANIFEST}::test_rule_66_a_job_whose_answer_was_lost_is_named_once")
@instead_of(manifests.Manifest, "has_job")
def a_job_is_named_as_often_as_it_asks(_self: manifests.Manifest, _job: str) -> bool:
    """A manifest does not remember whose ledgers it has."""
    return False


@by_test(
    66,
    f"{COMMIT}::test_rule_66_an_abort_after_a_commit_of_which_the_answer_was_lost_deletes_nothing_that_is_named",
)
@instead_of(job, "unnamed_in")
def an_abort_deletes_what_is_named(
    _manifest: manifests.Manifest, ledger_ids: Iterable[LedgerId]
) -> list[LedgerId]:
    """An abort takes a commit that failed for one that named nothing."""
    return list(ledger_ids)
