"""Fixtures of the operator's tests: a control plane for the session, and a namespace for each test.

The programs are built before the first test begins, because that takes minutes, and a test is given two.
"""

import os
import sys
from collections.abc import Iterator
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from kubernetes import client

from tests.cluster.binaries import CONTROL_PLANE, WITHOUT, BinariesMissingError, binaries, left_out
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pretend_nodes import PretendNodes
from tests.paths import ROOT

CRDS: Final = ROOT / "crds"
RESTRICTED: Final = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/enforce-version": "latest",
}
"""The labels of a namespace whose pods must comply with restricted pod security."""

PROGRAMS: Final = {"bare_control_plane": CONTROL_PLANE, "helm": ("helm",)}
"""What has to be built for the tests that use a fixture."""
_NUMBERS = count(1)
_MISSING: list[BinariesMissingError] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the tests need, and say how far that is."""
    fixtures = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    wanted = [name for fixture, names in PROGRAMS.items() if fixture in fixtures for name in names]
    if not wanted or left_out() or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(text, file=sys.__stderr__, flush=True)

    try:
        binaries(wanted, say=say)
    except BinariesMissingError as error:
        _MISSING.append(error)


def programs(fixture: str) -> dict[str, Path]:
    """The programs of a fixture; its tests are skipped where they are left out, and fail where they cannot be had."""
    if left_out():
        pytest.skip(f"{WITHOUT} is set")
    if _MISSING:
        pytest.fail(str(_MISSING[0]), pytrace=False)
    return binaries(PROGRAMS[fixture])


@pytest.fixture(scope="session")
def bare_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows nothing of Daybook yet."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), programs("bare_control_plane")) as plane:
        yield plane


@pytest.fixture(scope="session")
def control_plane(bare_control_plane: ControlPlane) -> ControlPlane:
    """The control plane that tests share, with Daybook's resources. A test may restart its API server."""
    install_crds(bare_control_plane)
    return bare_control_plane


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[client.ApiClient]:
    """An administrator's client of the API server."""
    with control_plane.api() as opened:
        yield opened


@pytest.fixture
def namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace of the test's own, which enforces restricted pod security; it is deleted afterwards."""
    core = client.CoreV1Api(api)
    name = f"test-{os.getpid()}-{next(_NUMBERS)}"
    core.create_namespace({"metadata": {"name": name, "labels": RESTRICTED}})
    yield name
    try:
        core.delete_namespace(name)
    except client.ApiException as error:
        if error.status != HTTPStatus.NOT_FOUND:  # a test may be about its end
            raise


@pytest.fixture
def nodes(api: client.ApiClient) -> Iterator[PretendNodes]:
    """Acts of kubelets and the scheduler; the nodes that are created are deleted afterwards."""
    pretended = PretendNodes(api)
    yield pretended
    pretended.clean_up()


def install_crds(plane: ControlPlane, *, timeout_s: float = 30.0) -> None:
    """Install crds/ and return once the API server serves them."""
    for path in sorted(CRDS.glob("*.yaml")):
        plane.apply(path)
    plane.kubectl("wait", "--for=condition=Established", f"--timeout={timeout_s:.0f}s", "-f", str(CRDS))
