"""Commands and recovery Jobs place copies by the policy in the environment."""

import pytest

from daybook.client.placement_settings import placement_policy
from daybook.core.placement.policy import BookieInfo
from daybook.core.quorum import Quorum
from daybook.runtime.settings import SettingsError

TWO = Quorum(2, 2, 2)
BOOKIES = {
    name: BookieInfo(name, zone=zone, rack=rack)
    for name, zone, rack in (("a", "z1", "r1"), ("b", "z1", "r2"), ("c", "z2", "r3"))
}


@pytest.mark.parametrize(("policy", "is_fine"), [("rack", True), ("zone", False), ("random", True)])
def test_the_environment_sets_the_policy(policy: str, is_fine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_PLACEMENT_POLICY", policy)
    assert (placement_policy().problems(TWO, ("a", "b"), BOOKIES) == []) is is_fine


def test_the_error_about_an_unknown_policy_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYBOOK_PLACEMENT_POLICY", "shelf")
    with pytest.raises(
        SettingsError, match=r"DAYBOOK_PLACEMENT_POLICY.*'random', 'rack', 'zone' or 'region'"
    ):
        placement_policy()
