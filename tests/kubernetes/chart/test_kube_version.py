"""The chart claims the Kubernetes that it needs, by the features that its objects use, and no older one."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.cluster.binaries import KUBERNETES
from tests.kubernetes.chart.conftest import CHART, HelmError, Render
from tests.paths import ROOT

SINCE: Final = {
    "selectableFields": 31,  # of a CRD's version; on by default
    "isQuantity": 29,  # in the rules of a CRD
    "nodeTaintsPolicy": 26,  # of a spread constraint; on by default
    "persistentVolumeClaimRetentionPolicy": 27,  # of a StatefulSet; on by default
    "batch.kubernetes.io/job-name": 27,  # on pods of Jobs
    "grpc": 27,  # probes
}
"""The first minor version of Kubernetes 1 that has it."""


def floor() -> int:
    """The minor version that the chart asks for at least."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    found = re.fullmatch(r">=1\.(\d+)\.0-0", chart["kubeVersion"])
    assert found is not None
    return int(found[1])


def used() -> dict[str, int]:
    """The features that the CRDs and the operator use."""
    files = [*(ROOT / "crds").glob("*.yaml"), *(ROOT / "operator").rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return {feature: since for feature, since in SINCE.items() if feature in text}


def test_the_chart_asks_for_what_it_needs_and_no_more() -> None:
    assert used() == SINCE, "what is used no longer needs no version"
    assert floor() == max(used().values())
    assert int(KUBERNETES.split(".")[1]) >= floor(), "the tests run on one that the chart takes"
    assert f"Kubernetes 1.{floor()} or newer" in (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def test_an_older_kubernetes_is_refused_by_helm(helm: Callable[..., str], render: Render) -> None:
    assert render()
    with pytest.raises(HelmError, match="kubeVersion"):
        helm("template", "daybook", CHART, "--kube-version", f"1.{floor() - 1}.9")


def test_the_crds_say_nothing_that_the_api_server_does_not_keep(control_plane: Any) -> None:
    """A field that an API server does not know is dropped without a word."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
        live = yaml.safe_load(control_plane.kubectl("get", "crd", wanted["metadata"]["name"], "-o", "yaml"))
        for mine, theirs in zip(wanted["spec"]["versions"], live["spec"]["versions"], strict=True):
            assert mine.get("selectableFields") == theirs.get("selectableFields")
