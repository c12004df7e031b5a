"""A Kubernetes cluster without nodes: etcd, kube-apiserver and kube-controller-manager, up in seconds.

It is enough for everything that is decided by the API server and the controllers: validation, defaults, server-side
apply, watches, RBAC, pod security, garbage collection, StatefulSets and Jobs that create pods. Nobody runs the pods;
`tests.cluster.pretend_nodes` does by hand what kubelets and the scheduler would.
"""

import json
import ssl
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from kubernetes import client, config

from daybook.runtime.ports import HeldPort
from tests.cluster.pki import Authority, Pair, TokenKey
from tests.cluster.process import Process
from tests.fixtures.bound import bound_to_us

START_TIMEOUT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 5.0
_SERVICE_RANGE: Final = "10.96.0.0/16"
_API_SERVICE: Final = "10.96.0.1"
_TOKEN_SECONDS: Final = 24 * 3600
_NODELESS: Final = "*,-node-lifecycle-controller,-taint-eviction-controller"
"""The controllers less those that would take nodes for dead because no kubelet renews their leases."""


class KubectlError(Exception):
    """kubectl failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a control plane runs: on loopback, unless `tests.cluster.nodes` gives it a network and nodes of its own.

    `enter` is put before each command; with `port` 0 free ports are chosen. One on loopback ends with its test process.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    port: int = 0
    api_server_flags: tuple[str, ...] = (
        "--endpoint-reconciler-type=none",  # no Endpoints may name a loopback address
    )
    controller_flags: tuple[str, ...] = (f"--controllers={_NODELESS}",)


LOOPBACK: Final = Place()


class ControlPlane:
    """One control plane in `directory`. All methods block."""

    def __init__(self, directory: Path, programs: Mapping[str, Path], place: Place = LOOPBACK) -> None:
        """Prepare; `programs` are those of `tests.cluster.binaries`."""
        self.directory = directory
        self.port = place.port
        self._place = place
        self._programs = programs
        self._authority = Authority(directory / "pki")
        self._tokens = TokenKey.make(directory / "pki")
        self._admin = self._authority.client("admin", ["system:masters"])
        hosts = (place.address, "localhost", _API_SERVICE, "kubernetes.default.svc")
        self._serving = self._authority.server("kube-apiserver", hosts)
        self._etcd: Process | None = None
        self._api_server: Process | None = None
        self._controllers: Process | None = None
        self._held: list[HeldPort] = []

    # ------------------------------------------------------------------------------------------------ its life

    def start(self) -> Self:
        """Start everything; return once the API server answers and the controllers work."""
        self._held = [HeldPort() for _ in range(3)]
        etcd_port, peer_port, free_port = (held.port for held in self._held)
        self.port = self._place.port or free_port
        self._prepare(etcd_port, peer_port)
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End everything, by process id."""
        for process in (self._controllers, self._api_server, self._etcd):
            if process is not None:
                process.kill()  # nothing here is to be kept
        while self._held:
            self._held.pop().close()

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def stop_api_server(self) -> None:
        """Take the API server away, as a crash would; etcd keeps everything."""
        assert self._api_server is not None
        self._api_server.kill()

    def start_api_server(self) -> None:
        """Start it again, on the same port; return once it answers."""
        assert self._api_server is not None
        self._api_server.start()
        self._api_server.wait_until(self._answers, START_TIMEOUT_S)
        assert self._controllers is not None
        if self._controllers.pid is None:
            self._controllers.start()  # they may give up while it is away

    def restart_api_server(self) -> None:
        """Break every connection and watch, and come back."""
        self.stop_api_server()
        self.start_api_server()

    # --------------------------------------------------------------------------------------------- how to reach it

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return f"https://{self._place.address}:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator who may do everything."""
        return self.directory / "admin.kubeconfig"

    def kubeconfig_of_user(
        self, user: str, groups: Iterable[str] = (), *, namespace: str = "default"
    ) -> Path:
        """The kubeconfig of a user with a certificate of their own."""
        pair = self._authority.client(user, tuple(groups))
        return self._write_kubeconfig(user, _credentials(pair), namespace)

    def kubeconfig_of_service_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of a ServiceAccount that exists, by a token of its own: it may do what its roles allow."""
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=_TOKEN_SECONDS)
        )
        with self.api() as api:
            answer = client.CoreV1Api(api).create_namespaced_service_account_token(name, namespace, request)
        return self._write_kubeconfig(f"{namespace}.{name}", {"token": answer.status.token}, namespace)

    def api(self, kubeconfig: Path | None = None) -> client.ApiClient:
        """A client of the API server, the administrator's unless another kubeconfig is given."""
        return config.new_client_from_config(str(kubeconfig or self.kubeconfig))

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints. Raises KubectlError."""
        command = [*self._command("kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def request(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        """One plain HTTP request as the administrator: the status and the body. `accept=…` sends that header.

        For what the package `kubernetes` cannot send or hides. Raises OSError or HTTPException if nobody
        answers.
        """
        context = ssl.create_default_context(cafile=self._authority.certificate)
        context.load_cert_chain(self._admin.certificate, self._admin.key)
        connection = HTTPSConnection(self._place.address, self.port, timeout=_ASK_TIMEOUT_S, context=context)
        named = {"content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        try:
            connection.request(method, path, None if body is None else json.dumps(body), named)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def apply(self, manifests: str | Path | Iterable[Mapping[str, Any]]) -> None:
        """Apply YAML (a text, a file) or objects, server-side, as the field manager `test`."""
        if isinstance(manifests, Path):
            text = manifests.read_text(encoding="utf-8")
        elif isinstance(manifests, str):
            text = manifests
        else:
            text = "\n---\n".join(yaml.safe_dump(dict(manifest)) for manifest in manifests)
        self.kubectl(
            "apply", "--server-side", "--force-conflicts", "--field-manager=test", "-f", "-", stdin=text
        )

    # --------------------------------------------------------------------------------------------------- the parts

    def _command(self, program: str) -> list[str]:
        bound = () if self._place.enter else bound_to_us()
        return [*bound, *self._place.enter, str(self._programs[program])]

    def _prepare(self, etcd_port: int, peer_port: int) -> None:
        logs = self.directory / "log"
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._write_kubeconfig("admin", _credentials(self._admin), "default")
        controllers = self.kubeconfig_of_user("system:kube-controller-manager")
        self._etcd = Process(
            "etcd",
            [
                *self._command("etcd"),
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            logs / "etcd.log",
        )
        self._api_server = Process(
            "kube-apiserver", self._api_server_command(etcd_url), logs / "kube-apiserver.log"
        )
        self._controllers = Process(
            "kube-controller-manager",
            [
                *self._command("kube-controller-manager"),
                *self._place.controller_flags,
                f"--kubeconfig={controllers}",
                f"--service-account-private-key-file={self._tokens.private}",
                f"--root-ca-file={self._authority.certificate}",
                "--use-service-account-credentials",
                f"--flex-volume-plugin-dir={self.directory / 'volume-plugins'}",  # made at once, on the machine otherwise
                "--leader-elect=false",
                "--secure-port=0",
            ],
            logs / "kube-controller-manager.log",
        )

    def _api_server_command(self, etcd_url: str) -> list[str]:
        return [
            *self._command("kube-apiserver"),
            *self._place.api_server_flags,
            f"--etcd-servers={etcd_url}",
            f"--bind-address={self._place.address}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.directory / 'pki'}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self._authority.certificate}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._tokens.public}",
            f"--service-account-signing-key-file={self._tokens.private}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            f"--service-cluster-ip-range={_SERVICE_RANGE}",
        ]

    def _start_all(self) -> None:
        assert self._etcd is not None
        assert self._api_server is not None
        assert self._controllers is not None
        self._etcd.start()
        self._api_server.start()
        self._api_server.wait_until(self._answers, START_TIMEOUT_S)
        self._controllers.start()
        self._controllers.wait_until(self._controllers_work, START_TIMEOUT_S)

    def _answers(self) -> bool:
        return self._can_get("/readyz")

    def _controllers_work(self) -> bool:
        """The namespace `default` has its ServiceAccount, without which no pod can be created there."""
        return self._can_get("/api/v1/namespaces/default/serviceaccounts/default")

    def _can_get(self, path: str) -> bool:
        try:
            self.kubectl("get", "--raw", path, f"--request-timeout={_ASK_TIMEOUT_S:.0f}s")
        except KubectlError:
            return False
        return True

    def _write_kubeconfig(self, name: str, credentials: Mapping[str, str], namespace: str) -> Path:
        path = self.directory / f"{name.replace(':', '.')}.kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": self.url,
                        "certificate-authority": str(self._authority.certificate),
                    },
                }
            ],
            "users": [{"name": name, "user": dict(credentials)}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": name, "namespace": namespace}}
            ],
            "current-context": "test",
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


def _credentials(pair: Pair) -> dict[str, str]:
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
