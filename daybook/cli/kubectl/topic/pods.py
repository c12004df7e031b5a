"""The brokers' pods, and their admin HTTP behind the API server's pod proxy.

The plugin opens no connection but that to the API server. A person needs the right to the subresource `pods/proxy`, with the verb of the
request's method. The API server strips the header Authorization, so the broker's token goes in a header of its own. A proxy cannot
follow a redirect to another broker's address: brokers are asked to name the other broker instead, and its pod is asked then.
"""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from daybook.cli.kubectl.api import Api, Object
from daybook.cli.kubectl.world import COMPONENT, OURS, condition, is_ready, place
from daybook.client.broker_admin import CHECK_FIRST, REDIRECTS_MAX, TOKEN_HEADER, AdminError, BrokerAdmin

BROKERS: Final = f"{OURS},{COMPONENT}=broker"
ADMIN_PORT: Final = "admin"
"""The name of the port in the pod; the chart serves the admin HTTP without TLS."""
_ADMIN_PORT: Final = 8080
_VERBS: Final = {"GET": "get", "PUT": "update", "POST": "create", "DELETE": "delete"}
_STATUS: Final = "Status"
_NOT_CONNECTED: Final = "dial "
"""In what the API server says of a pod that it could not connect to."""


def broker_pods(api: Api, namespace: str) -> list[Object]:
    """The pods of brokers, of all namespaces if it is empty; those that are ready come first. Raises ApiError, AdminError if there are none."""
    found = api.listing("Pod", namespace, BROKERS)
    if not found:
        where = f"namespace {namespace}" if namespace else "this cluster"
        msg = f"there is no pod of a broker in {where}: give the release's namespace with -n NAMESPACE, or set broker.enabled in its chart"
        raise AdminError(msg)
    return sorted(found, key=lambda pod: (not is_ready(pod), place(pod)))


def broker_of(pod: Object) -> str:
    """The id that the chart gives a pod's broker."""
    return ".".join(place(pod))


def broker_named(pods: Sequence[Object], name: str) -> str:
    """The id of the broker in the pod `name`; the id itself is a name, too. Raises AdminError if there is none."""
    for pod in pods:
        if name in (place(pod)[1], broker_of(pod)):
            return broker_of(pod)
    known = ", ".join(place(pod)[1] for pod in pods)
    msg = f"there is no broker's pod {name!r} here: use one of {known}"
    raise AdminError(msg)


def broker_problem(pod: Object) -> str:
    """Why a broker does not serve, as its readiness says it; empty: it serves."""
    if is_ready(pod):
        return ""
    ready = condition(pod, "Ready")
    said = ready.get("message") or ready.get("reason") or "nothing is known of it"
    return f"its pod is not ready: {said}"


class PodAdmin(BrokerAdmin):
    """The admin HTTP of brokers, by their pods. `urls` are `NAMESPACE.POD`."""

    def __init__(self, api: Api, pods: Sequence[Object], token: str = "") -> None:
        """`token` shows brokers who asks; empty: nothing does."""
        super().__init__([broker_of(pod) for pod in pods])
        self._api = api
        self._pods: Mapping[str, Object] = {broker_of(pod): pod for pod in pods}
        self._headers = {TOKEN_HEADER: token} if token else {}

    def ask_broker(self, method: str, url: str, path: str, body: object = None) -> Any:
        """The answer of a broker, or of the one that it names. Raises AdminError, ApiError if the API server does not answer."""
        pod, authoritative = self._pods[url], ""
        for _ in range(REDIRECTS_MAX):
            whole = path + ("&" if "?" in path else "?") + "redirect=false" + authoritative
            status, text = self._api.proxy(
                method, place(pod)[0], f"{place(pod)[1]}:{_port_of(pod)}", whole, self._headers, body
            )
            answer = _decoded(text)
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return answer
            said = answer if isinstance(answer, dict) else {}
            if "adminUrl" not in said:
                raise _refused(method, pod, status, said, text)
            pod = self._pod_of(str(said.get("broker")), str(said["adminUrl"]))
            authoritative = f"&authoritative={'true' if said.get('authoritative') else 'false'}"
        msg = f"the topic moved from broker to broker {REDIRECTS_MAX} times: try again"
        raise AdminError(msg)

    def _pod_of(self, broker: str, admin_url: str) -> Object:
        """The pod of the broker that another one names, by its id or else by its address."""
        if broker in self._pods:
            return self._pods[broker]
        host = urlsplit(admin_url).hostname or ""
        for pod in self._pods.values():
            if host == (pod.get("status") or {}).get("podIP") or host.partition(".")[0] == place(pod)[1]:
                return pod
        known = ", ".join(sorted(self._pods))
        msg = f"broker {broker} at {admin_url} is to answer this, and none of the pods here is that broker's: {known}"
        raise AdminError(msg)


def _port_of(pod: Object) -> int:
    for container in (pod.get("spec") or {}).get("containers", ()):
        for port in container.get("ports") or ():
            if port.get("name") == ADMIN_PORT:
                return int(port["containerPort"])
    return _ADMIN_PORT


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")


def _refused(method: str, pod: Object, status: int, said: Mapping[str, Any], text: bytes) -> AdminError:
    """Why there is no answer. What the API server says of a pod that it does not reach has status 0: another broker may answer.

    Once it was connected to the pod, a change may have been carried out.
    """
    namespace, name = place(pod)
    if said.get("kind") == _STATUS:
        message = said.get("message", "")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            msg = (
                f"{message}: brokers are asked by their pods' proxy, so you need the right to {_VERBS[method]} pods/proxy in "
                f"namespace {namespace}; the chart's role …-edit has it"
            )
            return AdminError(msg, status)
        msg = f"the API server does not reach pod {namespace}/{name}: {message}"
        if method == "GET" or status < HTTPStatus.INTERNAL_SERVER_ERROR or _NOT_CONNECTED in message:
            return AdminError(msg)
        return AdminError(f"{msg}; {CHECK_FIRST}", is_outcome_unknown=True)
    reason = str(said.get("reason") or text[:500].decode(errors="replace") or status)
    if status == HTTPStatus.UNAUTHORIZED:
        reason += "; give the file with the broker's token: --token-file FILE"
    return AdminError(reason, status)
