"""`kubectl daybook topic` with the rights of the chart's role …-edit and no other, by the pod proxy of a real API server.

The broker is a recording behind the address of this machine that is not loopback, to which API servers proxy nothing.
"""

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from kubernetes import client
from typer.testing import CliRunner, Result

from daybook.cli.kubectl import app
from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.chart.conftest import Render, of_kind
from tests.unit.cli.topic.snapshots import broker, report

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STRANGE = "a b%2F?c&d#é"
BROKER = "daybook-broker-0"


class Recording:
    """A broker with one topic of a strange name; `asked` has the requests as they arrived, `headers` those of the last one."""

    def __init__(self, address: str) -> None:
        """Serve at a free port of `address`."""
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.server = ThreadingHTTPServer((address, 0), self._handler())
        self._thread = Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recording = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                path = urlsplit(self.path).path
                recording.asked.append(f"{self.command} {unquote(path)}")
                recording.headers = {name.lower(): value for name, value in self.headers.items()}
                body = b"" if self.command == "PUT" else json.dumps(recording.answer(path)).encode()
                self.send_response(200 if body else 204)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = _answer  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler

    def answer(self, path: str) -> Any:
        """What a broker knows of the topic."""
        if path.endswith("/partitions"):
            return {"partitions": 0}
        topics = [report(topic=f"persistent://public/default/{STRANGE}")]
        page = {"broker": broker(), "topics": topics[0]}
        records = {name: value.model_dump(mode="json", by_alias=True) for name, value in page.items()}
        return {**records, "topics": [records["topics"]]}


def own_address() -> str:
    """The address of this machine that others would see. Nothing is sent: the system only chooses it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))
        except OSError as error:
            pytest.skip(f"this machine has loopback alone, to which no API server proxies: {error}")
        address: str = asking.getsockname()[0]
        return address


@pytest.fixture
def recording(control_plane: ControlPlane, namespace: str) -> Iterator[Recording]:
    """A broker, and its pod as the chart and a kubelet make it."""
    found = Recording(own_address())
    labels = {"app.kubernetes.io/name": "daybook", "app.kubernetes.io/component": "broker"}
    spec = {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "broker",
                "image": "broker",
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "ports": [{"name": "admin", "containerPort": found.server.server_port}],
            }
        ],
    }
    with control_plane.api() as api:
        core = client.CoreV1Api(api)
        core.create_namespaced_pod(namespace, {"metadata": {"name": BROKER, "labels": labels}, "spec": spec})
        ready = {"type": "Ready", "status": "True"}
        address = str(found.server.server_address[0])
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
        core.patch_namespaced_pod_status(BROKER, namespace, {"status": status})
        core.create_namespaced_service_account(namespace, {"metadata": {"name": "person"}})
    yield found
    found.stop()


def test_the_role_is_enough_and_without_it_the_error_names_the_right(
    control_plane: ControlPlane, render: Render, namespace: str, recording: Recording, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig_of_service_account(namespace, "person")
    token = tmp_path / "token"
    token.write_text("the.broker's.token\n")

    def run(*words: str) -> Result:
        flags = ("-n", namespace, "--kubeconfig", str(kubeconfig), "--token-file", str(token))
        env = {"COLUMNS": "250", "TERM": "dumb", "NO_COLOR": "1"}
        return CliRunner().invoke(app, ["topic", *words, *flags], env=env)

    (role,) = [
        each for each in of_kind(render(), "ClusterRole") if each["metadata"]["name"].endswith("-edit")
    ]
    subject = {"kind": "ServiceAccount", "name": "person", "namespace": namespace}
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "person", "namespace": namespace},
        "subjects": [subject],
        "roleRef": {"kind": "Role", "name": "person", "apiGroup": "rbac.authorization.k8s.io"},
    }
    mine = {**bound, "kind": "Role", "metadata": bound["metadata"]}
    del mine["subjects"], mine["roleRef"]
    seeing = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    control_plane.apply([bound, {**mine, "rules": seeing}])
    refused = run("stats", STRANGE)
    assert refused.exit_code == 1
    assert (
        f"the right to get pods/proxy in namespace {namespace}; the chart's role …-edit has it"
        in refused.stderr
    )
    assert recording.asked == []

    control_plane.apply([{**mine, "rules": role["rules"]}])
    done = run("stats", STRANGE)
    assert done.exit_code == 0, done.output
    assert f"persistent://public/default/{STRANGE}" in done.stdout
    path = f"/admin/v2/persistent/public/default/{STRANGE}"
    assert recording.asked == [f"GET {path}/partitions", f"GET /daybook/v1/topics/public/default/{STRANGE}"]
    assert recording.headers["x-daybook-token"] == "the.broker's.token"
    assert "authorization" not in recording.headers, "the person's own token stays with the API server"
    assert run("unload", STRANGE).exit_code == 0
    assert recording.asked[-1] == f"PUT {path}/unload"

    recording.stop()
    gone = run("stats", STRANGE)
    assert gone.exit_code == 1
    assert f"the API server does not reach pod {namespace}/{BROKER}" in gone.stderr
