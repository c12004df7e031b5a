"""Mutants of manifests: a job names what is not closed, and a slow one names what is deleted."""

from functools import partial
from typing import Any

from daybook_spark.write import job

from daybook.metadata import manifests
from tests.model.mutants.registry import instead_of, mutant

by_test = partial(mutant, not_simulated="the simulator has no jobs")

COMMIT = "tests/unit/spark/test_manifest_commit.py"


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
