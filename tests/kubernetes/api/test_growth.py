"""The part of `make growth` that needs an API server, with sizes that prove nothing: it measures, and leaves nothing running."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tools.growth import topic_resources
from tools.growth.page import UNITS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_topic_resources(
    bare_control_plane: ControlPlane,  # so that the programs are there
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_resources, "REST_S", 0.5)
    noted: dict[str, dict[str, Any]] = {}
    topic_resources.measure_topic_resources(
        [3], tmp_path, lambda what, _size, **figures: noted.update({what: figures})
    )
    assert noted.keys() == {"create", "rest"}
    assert all(figures.keys() <= UNITS.keys() for figures in noted.values())
    assert noted["create"]["api_writes"] >= 6, "each Topic is created, and its status is written"
    assert noted["create"]["operator_cpu_s"] > 0
