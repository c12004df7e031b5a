"""A handful of power cuts of all bookies at once; `make power-cuts` makes hundreds of them."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.process.chaos.powercut.campaign import Campaign
from tests.process.chaos.powercut.shim import NoCompilerError, build

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


CUTS_MAX = 8
"""What a cut takes away depends on its moment: two are enough, nearly always."""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    try:
        library = build()
    except NoCompilerError as error:
        pytest.skip(str(error))
    made = Campaign(tmp_path_factory.mktemp("power-cuts"), library, seed=2)
    with made.bookies.running():
        yield made


def test_rule_23_what_was_acknowledged_survives_power_cuts_of_all_bookies(campaign: Campaign) -> None:
    for cuts in range(2, CUTS_MAX):
        asyncio.run(campaign.run(cuts))
        assert campaign.violations == []
        if campaign.counts["lost sectors"]:
            return
    raise AssertionError(f"cuts that take nothing away: {campaign.counts}")


def test_disks_that_only_say_that_they_synced_are_found_out(campaign: Campaign) -> None:
    """The last one: what it leaves cannot be repaired."""
    campaign.disks_lie = True
    asyncio.run(campaign.run(campaign.counts["cuts"] + 3))
    assert campaign.violations
