"""Mutants of rule 58: disks that went back in time."""

from functools import partial

import pytest
from daybook_bookie.identity import epoch

from daybook.metadata.claim import Claim
from tests.model.mutants.registry import instead_of, mutant

_DISKS = "the simulator's disks lose what was not synced, or everything; they are not set back"
by_test = partial(mutant, not_simulated=_DISKS)
_TESTS = "tests/unit/bookie/identity/test_server_epoch.py"


@by_test(58, f"{_TESTS}::test_rule_58_a_disk_that_went_back_vouches_for_nothing")
def old_disks_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bookie starts as ever on disks that are behind ZooKeeper."""
    monkeypatch.setattr(epoch.Age, "is_behind", lambda self, in_zookeeper: False)


@by_test(58, f"{_TESTS}::test_rule_58_the_epoch_rises_with_what_is_written")
@instead_of(epoch.DiskEpoch, "step")
def zookeeper_is_told_before_the_disks(self: epoch.DiskEpoch) -> int:
    """The epoch is raised in ZooKeeper before it is durable, so that disks after a crash count as old."""
    self.age = epoch.Age(self.age.store + 1, self.age.store + 1)
    return self.age.store


@by_test(
    58, f"{_TESTS}::test_rule_58_a_copy_that_was_made_while_the_bookie_ran_is_found_after_its_orderly_stop"
)
def writing_raises_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a start does."""
    monkeypatch.setattr(epoch.EpochKeeper, "poll", lambda self, at_last=False: None)


@by_test(58, f"{_TESTS}::test_rule_58_marks_and_epoch_are_of_one_claim")
@instead_of(Claim, "commit_epoch")
async def old_disks_are_marked_without_the_claim(self: Claim) -> None:
    """What was written to the process with the right disks after the list is missed."""
    await self._store.multi([self.disks.operation(self.incarnation)])
    self.disks.done()


@by_test(
    57,
    f"{_TESTS}::test_rule_57_a_process_whose_directories_were_copied_and_started_elsewhere_stops",
    slow=True,
)
def copies_of_the_directories_are_the_bookie_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that registers does not check whether another one has started on the same cookie since."""

    async def never(self: object) -> bool:
        return False

    monkeypatch.setattr("daybook.metadata.epoch_node.EpochNode.is_foreign", never)
