"""The plugin reads, watches and scales by a real API server, as whom it is told to be."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from typer.testing import CliRunner, Result

from daybook.cli.kubectl import app
from daybook.cli.kubectl.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.unit.cli.kubectl.objects import bookie, condition, pool


@pytest.fixture
def run(control_plane: ControlPlane, namespace: str) -> Callable[..., Result]:
    """Runs the plugin in the test's namespace, as the administrator."""

    def go(*words: object) -> Result:
        flags = ("-n", namespace, "--kubeconfig", str(control_plane.kubeconfig))
        env = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
        return CliRunner().invoke(app, [*map(str, words), *flags], env=env)

    return go


def make_pool(control_plane: ControlPlane, namespace: str, **status: Any) -> None:
    """A pool `bk` of three with this status, as the operator would write it."""
    spec = {"replicas": 3, "storage": {"store": {"size": "1Gi"}}}
    meta = {"name": "bk", "namespace": namespace}
    head = {"apiVersion": "daybook.dev/v1alpha1", "kind": "BookiePool", "metadata": meta}
    control_plane.apply([{**head, "spec": spec}])
    set_status(control_plane, namespace, **status)


def set_status(control_plane: ControlPlane, namespace: str, **status: Any) -> None:
    seen = int(
        control_plane.kubectl(
            "get", "bookiepool", "bk", "-n", namespace, "-o", "jsonpath={.metadata.generation}"
        )
    )
    members = [bookie(n, id=f"{namespace}.bk-{n}") for n in range(3)]
    whole = pool(*members, **{"observedGeneration": seen, **status})["status"]
    control_plane.kubectl(
        "patch", "bookiepool", "bk", "-n", namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps({"status": whole}),
    )  # fmt: skip


def test_a_pool_at_a_glance_and_why(
    control_plane: ControlPlane, namespace: str, run: Callable[..., Result]
) -> None:
    make_pool(control_plane, namespace)
    done = run("bookies")
    assert f"{namespace}.bk-2" in done.output, done.output
    set_status(
        control_plane, namespace, conditions=[condition("Ready", "False", "BookiesMissing", "bk-1 is gone")]
    )
    done = run("explain", "bk", "--json")
    (found,) = json.loads(done.stdout)
    assert found["subject"] == f"BookiePool {namespace}/bk"
    assert any("do not exist" in cause["what"] for cause in found["causes"]) or found["evidence"] == [
        "bk-1 is gone"
    ]
    assert done.exit_code == 1


def test_a_drain_scales_and_is_followed_by_a_watch(
    control_plane: ControlPlane, namespace: str, run: Callable[..., Result]
) -> None:
    make_pool(control_plane, namespace)
    outcome: list[Result] = []
    draining = threading.Thread(target=lambda: outcome.append(run("drain", "bk", "--yes")))
    api, _ = Api.connect(str(control_plane.kubeconfig))
    changes = api.watch("BookiePool", namespace, "bk")
    draining.start()
    lowered = next(each for each in changes if each["spec"]["replicas"] == 2)
    assert lowered["status"]["replicas"] == 3
    step = {"bookie": f"{namespace}.bk-2", "ordinal": 2, "stage": "Replicating", "ledgersRemaining": 4}
    set_status(control_plane, namespace, drain=step)
    next(each for each in changes if (each.get("status") or {}).get("drain"))
    set_status(control_plane, namespace, drain=None, replicas=2)
    draining.join(60)
    assert not draining.is_alive()
    assert outcome[0].exit_code == 0, outcome[0].output
    lines = outcome[0].output.splitlines()
    assert lines[-1] == "2 bookies, all that are wanted"


def test_a_report_of_a_real_namespace(
    control_plane: ControlPlane, namespace: str, run: Callable[..., Result], tmp_path: Path
) -> None:
    make_pool(control_plane, namespace)
    done = run("report", "--to", tmp_path / "r.tar.gz")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.tar.gz").stat().st_size > 500


def test_someone_with_the_right_to_read_one_namespace_sees_it(
    control_plane: ControlPlane, namespace: str, api: client.ApiClient
) -> None:
    """The rights of the chart's role for viewers, in one namespace: nodes and other namespaces stay unread."""
    make_pool(control_plane, namespace)
    rules = [
        {
            "apiGroups": ["daybook.dev"],
            "resources": ["bookiepools", "ledgers"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "view", "namespace": namespace},
    }
    subject = {"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        **role,
        "kind": "RoleBinding",
        "subjects": [subject],
        "roleRef": {"kind": "Role", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
    }
    control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([{**role, "rules": rules}, binding]))
    config = control_plane.kubeconfig_of_user("reader")
    done = CliRunner().invoke(
        app, ["status", "-n", namespace, "--kubeconfig", str(config)], env={"COLUMNS": "200"}
    )
    assert "bk" in done.stdout
    assert "without Nodes" in done.stderr
    refused = CliRunner().invoke(app, ["status", "-n", "kube-system", "--kubeconfig", str(config)])
    assert refused.exit_code == 1
    assert "forbidden" in refused.stderr


def test_what_is_not_there_is_said_in_words(control_plane: ControlPlane, namespace: str) -> None:
    api, default = Api.connect(str(control_plane.kubeconfig))
    assert default == "default"
    with pytest.raises(ApiError, match=r'bookiepools\.daybook\.dev "none" not found'):
        api.get("BookiePool", namespace, "none")
    with pytest.raises(ApiError, match="no way to reach an API server"):
        Api.connect("nowhere.yaml")
