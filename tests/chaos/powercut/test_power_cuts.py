"""A handful of power cuts of all bookies at once; `make power-cuts` makes hundreds of them."""

import asyncio
from pathlib import Path

import pytest

from tests.chaos.powercut.campaign import Campaign
from tests.chaos.powercut.shim import NoCompilerError, build

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return build()
    except NoCompilerError as error:
        pytest.skip(str(error))


def test_rule_23_what_was_acknowledged_survives_power_cuts_of_all_bookies(
    library: Path, tmp_path: Path
) -> None:
    campaign = Campaign(tmp_path, library, seed=2)
    with campaign.bookies.running():
        asyncio.run(campaign.run(cuts=3))
    assert campaign.violations == []
    assert campaign.counts["acknowledged entries"] > 0
    assert campaign.counts["lost sectors"] > 0, "these cuts took nothing away: draw another seed"


def test_disks_that_only_say_that_they_synced_are_found_out(library: Path, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, library, seed=2, sync_lies=True)
    with campaign.bookies.running():
        asyncio.run(campaign.run(cuts=3))
    assert campaign.violations
