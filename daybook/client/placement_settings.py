"""The placement policy of commands, brokers and recovery Jobs: DAYBOOK_PLACEMENT_* variables.

The auditor uses the policy of the cluster's operator; whoever places by another policy makes copies that the auditor
then reports as badly placed.
"""

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from daybook.core.placement.policies import PlacementSettings, PolicyName, SpreadPolicy, make_policy
from daybook.runtime.settings import Settings, load_settings


class PlacementOptions(Settings):
    """The values of a placement policy."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**Settings.model_config, "env_prefix": "DAYBOOK_PLACEMENT_"}
    )

    policy: PolicyName = Field(
        "rack", description="the largest domain that counts: random, rack, zone or region"
    )
    min_racks: int = Field(2, ge=1, description="racks per write quorum")
    min_zones: int = Field(2, ge=1, description="zones per write quorum")
    min_regions: int = Field(2, ge=1, description="regions per write quorum")
    enforce: bool = Field(default=False, description="refuse rather than place against the minima")
    weigh_by_free_space: bool = Field(default=False, description="prefer bookies with more free space")


def placement_policy() -> SpreadPolicy:
    """The policy of the environment. Raises SettingsError."""
    return make_policy(PlacementSettings(**load_settings(PlacementOptions).model_dump()))
