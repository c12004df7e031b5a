"""Helm, and what the chart renders."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pytest
import yaml

from tests.cluster.binaries import KUBERNETES
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.conftest import programs
from tests.paths import ROOT

CHART: Final = ROOT / "charts" / "daybook"
RELEASE: Final = "daybook"

Object: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[..., list[Object]]


class HelmError(Exception):
    """Helm refused; the message is what it said."""


@pytest.fixture(scope="session")
def helm() -> Callable[..., str]:
    """Runs Helm; its standard output. Raises HelmError."""
    program = programs("helm")["helm"]

    def run(*words: object) -> str:
        done = subprocess.run(
            [str(program), *(str(word) for word in words)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Render:
    """The chart's objects with these values, as `helm install` in namespace `data` would create them."""
    folder = tmp_path_factory.mktemp("values")

    def run(values: Mapping[str, Any] | None = None, *flags: str) -> list[Object]:
        file = folder / f"{len(list(folder.iterdir()))}.yaml"
        file.write_text(yaml.safe_dump(dict(values or {})))
        text = helm(
            "template", RELEASE, CHART, "-n", "data", "-f", file, "--kube-version", KUBERNETES, *flags
        )
        return [each for each in yaml.safe_load_all(text) if each]

    return run


@pytest.fixture(scope="session")
def data(control_plane: ControlPlane) -> str:
    """The namespace that the chart is rendered for; it enforces restricted pod security.

    It stays as long as the control plane: a worker may come back to this module, and a name that terminates is taken.
    """
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "data", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    control_plane.apply([manifest])
    return "data"


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """The objects of these kinds."""
    return [each for each in objects if each["kind"] in kinds]
