"""What all tests of the client share."""

import pytest

from tests.unit.client.scripted_bookie import ScriptedBookie


@pytest.fixture(autouse=True)
def over(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What links to scripted bookies use: gRPC, or what OVER_BOTH (scripted_bookie) asks for."""
    monkeypatch.setattr(ScriptedBookie, "over", getattr(request, "param", "grpc"))
