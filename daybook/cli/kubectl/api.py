"""The API server as the plugin uses it: whole lists, single objects, a watch, a merge patch, a pod's log, and its proxy to a pod.

Answers are plain JSON, the same as `kubectl get -o json` prints, so that what is judged here can be recorded and tested
without a server. The `kubernetes` package gives the connection and every way to log in.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from daybook.core.errors import DaybookError

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object: TypeAlias = dict[str, Any]

TIMEOUT_S: Final = 30.0
WATCH_S: Final = 300
"""The server ends a watch after it, and a new one begins."""
PROXY_TIMEOUT_S: Final = 40.0
"""A broker holds a request for up to 25 s while a topic changes its owner."""
PAGE: Final = 500
JSON: Final = "application/json"

DAYBOOK: Final = "/apis/daybook.dev/v1alpha1"
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "BookiePool": (DAYBOOK, "bookiepools"),
    "Ledger": (DAYBOOK, "ledgers"),
    "Topic": (DAYBOOK, "topics"),
    "Pod": ("/api/v1", "pods"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "Event": ("/api/v1", "events"),
    "Node": ("/api/v1", "nodes"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "Job": ("/apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
}
"""Where each kind is: the root of its API, and its plural."""


class ApiError(DaybookError):
    """The API server cannot be reached, or refuses; the message says what to do. `status` 0: it did not answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        """Keep the status."""
        super().__init__(message)
        self.status = status


class Api:
    """A connection. All methods raise ApiError."""

    def __init__(self, client: "ApiClient") -> None:
        """Ask by `client`."""
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> "tuple[Api, str]":
        """By a kubeconfig, or a pod's own account; and the namespace that is meant when none is given."""
        try:
            from kubernetes import config
            from kubernetes.client import ApiClient, Configuration
        except ImportError as error:
            msg = "this command needs the kubernetes package: pip install '.[kubernetes]' in a checkout of Daybook"
            raise ApiError(msg) from error
        configuration = Configuration()
        namespace = "default"
        try:
            if kubeconfig or context:
                config.load_kube_config(kubeconfig, context=context, client_configuration=configuration)
            else:
                config.load_config(client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            msg = f"no way to reach an API server: {error}; give --kubeconfig, or set KUBECONFIG"
            raise ApiError(msg) from error
        try:
            _, active = config.list_kube_config_contexts(kubeconfig)
            chosen = active if context is None else _context(config, kubeconfig, context)
            namespace = chosen["context"].get("namespace", namespace)
        except (config.ConfigException, OSError, TypeError):
            namespace = "default"  # in a pod there are no contexts
        return cls(ApiClient(configuration)), namespace

    def listing(self, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        """All objects of a kind, in all namespaces unless one is given."""
        found: list[Object] = []
        query = {"limit": str(PAGE), "labelSelector": labels, "continue": ""}
        while True:
            page = self._json("GET", _path(kind, namespace), query)
            root = KINDS[kind][0]
            version = root.removeprefix("/apis/").removeprefix("/api/")
            found.extend({"apiVersion": version, "kind": kind, **item} for item in page["items"])
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return found

    def get(self, kind: str, namespace: str, name: str) -> Object:
        """One object."""
        return self._json("GET", _path(kind, namespace, name))

    def watch(self, kind: str, namespace: str, name: str) -> Iterator[Object]:
        """An object now and after each change, for ever: after a watch that ended or broke off comes the next one."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "timeoutSeconds": str(WATCH_S),
        }
        while True:
            now = self.get(kind, namespace, name)
            yield now
            query["resourceVersion"] = now["metadata"]["resourceVersion"]
            answer = self._send("GET", _path(kind, namespace), query, timeout_s=WATCH_S + TIMEOUT_S)
            for line in _lines(answer.response.stream()):
                event = json.loads(line)
                if event["type"] == "DELETED":
                    msg = f"{kind} {namespace}/{name} was deleted"
                    raise ApiError(msg, HTTPStatus.NOT_FOUND)
                if event["type"] in ("ADDED", "MODIFIED"):
                    yield event["object"]

    def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        """Change the number of replicas by the scale subresource, as `kubectl scale` does."""
        body = {"spec": {"replicas": replicas}}
        self._json("PATCH", f"{_path(kind, namespace, name)}/scale", body=body)

    def log(self, namespace: str, pod: str, lines: int, *, previous: bool = False) -> str:
        """The end of a pod's log; of the container before the last restart with `previous`."""
        query = {"tailLines": str(lines), "previous": "true" if previous else ""}
        answer = self._send("GET", f"{_path('Pod', namespace, pod)}/log", query)
        return _body(answer).decode(errors="replace")

    def proxy(
        self,
        method: str,
        namespace: str,
        target: str,
        path: str,
        headers: Mapping[str, str],
        body: Any = None,
    ) -> tuple[int, bytes]:
        """A request to a pod's port, through the API server; `target` is `POD:PORT`. The status and the body of whoever answers.

        That is the pod, or the API server with an object of kind Status. The API server keeps the header Authorization for itself.
        """
        headers = {"Accept": JSON, "Content-Type": JSON, **headers}
        whole = f"{_path('Pod', namespace, target)}/proxy{path}"
        answer = self._request(method, whole, body=body, headers=headers, timeout_s=PROXY_TIMEOUT_S)
        return int(answer.status), _body(answer)

    def _json(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: Any = None
    ) -> Object:
        found: Object = json.loads(_body(self._send(method, path, query, body)))
        return found

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        headers = {"Accept": "application/json, */*"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        answer = self._request(method, path, query, body, headers, timeout_s)
        status = int(answer.status)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise ApiError(_explain(status, path, _body(answer)), status)
        return answer

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:
        """The answer, whatever its status is. Its body is still to come."""
        parameters = [(name, value) for name, value in (query or {}).items() if value]
        with _answering():
            request = self._client.param_serialize(
                method,
                path,
                query_params=parameters,
                header_params=dict(headers or {}),
                body=body,
                auth_settings=["BearerToken"],
            )
            return self._client.call_api(*request, _request_timeout=timeout_s)


@contextmanager
def _answering() -> Iterator[None]:
    """Raise ApiError where the connection fails, before an answer or in the middle of its body."""
    import urllib3

    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError) as error:
        msg = f"the API server does not answer: {error}"
        raise ApiError(msg) from error


def _body(answer: Any) -> bytes:
    with _answering():
        return bytes(answer.read())


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream, until it ends or breaks off."""
    rest = b""
    with suppress(ApiError), _answering():
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def _context(config: Any, kubeconfig: str | None, name: str) -> Any:
    contexts, _ = config.list_kube_config_contexts(kubeconfig)
    return next(each for each in contexts if each["name"] == name)


def _path(kind: str, namespace: str, name: str = "") -> str:
    root, plural = KINDS[kind]
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{where}/{plural}{f'/{name}' if name else ''}"


def _explain(status: int, path: str, body: bytes) -> str:
    try:
        said = str(json.loads(body).get("message", ""))
    except (ValueError, AttributeError):
        said = ""
    if status == HTTPStatus.NOT_FOUND and path.startswith(DAYBOOK) and "could not find" in said:
        return "this cluster does not know Daybook's resources: helm install daybook charts/daybook"
    return said or f"the API server answers {status} to {path}"
