"""The API server as the operator uses it: read, server-side apply, delete, patch metadata, create events.

One small client over the `kubernetes` package's connections and login, because the generated methods know nothing of
server-side apply and have no types. Requests block, so they run in a bounded pool of threads. Every failure is a typed
error with the server's own words: what to do about it depends on which it is.
"""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration

from daybook.core.errors import DaybookError
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.effects import Manifest, PatchMeta, Propagation, Ref
from daybook_operator.plan.names import API_VERSION, FIELD_MANAGER

PAGE: Final = 500
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"
_WEBHOOK: Final = "failed calling webhook"
Object: TypeAlias = dict[str, Any]


class KubeError(DaybookError):
    """The API server refused a request, or did not answer: then `status`, of HTTP, is 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        """`message` says what was asked for, and the server's own words."""
        super().__init__(message)
        self.status = status


class NotFoundError(KubeError):
    """The object, or its kind, is not there."""


class ConflictError(KubeError):
    """The object changed since it was read, has another UID, or exists already."""


class ForbiddenError(KubeError):
    """The operator's role, a quota or a terminating namespace does not allow it."""


class InvalidError(KubeError):
    """The server understood the object and refuses it, as schemas and their rules do."""


class WebhookError(KubeError):
    """An admission webhook that the server must ask about the object does not answer."""


class NotNowError(KubeError):
    """A pod must not be evicted now: a disruption budget forbids it, or the cluster changed since that was decided."""


class UnavailableError(KubeError):
    """No answer, or one that says "later"."""


REFUSALS: Final = (ConflictError, ForbiddenError, InvalidError, WebhookError)
"""They concern one object or one change: others may be accepted."""

_ERRORS: Final[Mapping[int, type[KubeError]]] = {
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.GONE: ConflictError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
    HTTPStatus.BAD_REQUEST: InvalidError,
    HTTPStatus.TOO_MANY_REQUESTS: UnavailableError,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How the API server spells a kind."""

    api_version: str
    plural: str
    namespaced: bool = True


KINDS: Final[Mapping[str, Kind]] = {
    "StatefulSet": Kind("apps/v1", "statefulsets"),
    "Job": Kind("batch/v1", "jobs"),
    "CronJob": Kind("batch/v1", "cronjobs"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "StorageClass": Kind("storage.k8s.io/v1", "storageclasses", namespaced=False),
    "Pod": Kind("v1", "pods"),
    "Service": Kind("v1", "services"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "Secret": Kind("v1", "secrets"),  # passwords of ledgers alone, by name, where the chart allows it
    "Event": Kind("v1", "events"),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "Node": Kind("v1", "nodes", namespaced=False),
    "Namespace": Kind("v1", "namespaces", namespaced=False),
}
"""Kubernetes' own kinds that the operator touches: the roles in the chart allow these and no more."""


def kind_of(name: str) -> Kind:
    """How the API server spells the kind of this name; one that Kubernetes does not have is Daybook's own."""
    return KINDS.get(name) or Kind(API_VERSION, f"{name.lower()}s")


def load_configuration(kubeconfig: Path | None) -> Configuration:
    """How to reach the API server: the pod's own account, or a kubeconfig. Raises KubeError."""
    configuration = Configuration()
    try:
        if kubeconfig is not None:
            config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        else:
            config.load_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        msg = f"no way to reach an API server: {error}; run in a pod, or give kubeconfig (KUBECONFIG)"
        raise KubeError(msg) from error
    return configuration


class Kube:
    """The API server. Made on the event loop that uses it; `close` ends its threads."""

    def __init__(
        self, configuration: Configuration, *, threads: int, timeout_s: float, metrics: OperatorMetrics
    ) -> None:
        """Nothing is sent yet."""
        configuration.connection_pool_maxsize = threads
        self._api = ApiClient(configuration)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kube")
        self._timeout_s = timeout_s
        self._metrics = metrics

    def close(self) -> None:
        """Let requests under way end, and start no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._api.close()

    # Reading.

    async def get(self, kind: str, namespace: str, name: str) -> Object:
        """The object. Raises NotFoundError, UnavailableError."""
        return await self._ask("GET", _path(kind, namespace, name))

    async def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        try:
            return await self.get(kind, namespace, name)
        except NotFoundError:
            return None

    async def listing(
        self, kind: str, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """All objects of a kind, of all namespaces unless one is given, that the selectors match; whole, or an error.

        Raises ConflictError when the listing takes longer than the server remembers.
        """
        found: list[Object] = []
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": ""}
        while True:
            page = await self._ask("GET", _path(kind, namespace), query=query)
            what = {"apiVersion": kind_of(kind).api_version, "kind": kind}  # a list's items do not say it
            found.extend({**what, **item} for item in page["items"])
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return found

    async def is_served(self, kind: str, namespace: str = "") -> bool:
        """Whether the API server knows the kind: False until its CRD is there.

        `namespace`: one whose objects may be listed; "" for who may list those of all.
        """
        try:
            await self._ask("GET", _path(kind, namespace), query={"limit": "1"})
        except NotFoundError:
            return False
        return True

    # Writing.

    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Object:
        """Server-side apply by the operator's field manager, with force: fields in `manifest` are ours from here on.

        Raises InvalidError, ForbiddenError, WebhookError, ConflictError (`metadata.resourceVersion` or `uid` given and another).
        """
        meta = manifest["metadata"]
        return await self._ask(
            "PATCH",
            _path(manifest["kind"], meta.get("namespace", ""), meta["name"], subresource),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )

    async def create(self, manifest: Manifest) -> Object:
        """Create the object. Raises ConflictError if it exists."""
        return await self._ask(
            "POST",
            _path(manifest["kind"], manifest["metadata"].get("namespace", "")),
            query={"fieldManager": FIELD_MANAGER},
            body=manifest,
        )

    async def replace(self, manifest: Manifest) -> Object:
        """Replace the object at the resourceVersion that `manifest` has. Raises ConflictError, NotFoundError."""
        meta = manifest["metadata"]
        return await self._ask(
            "PUT",
            _path(manifest["kind"], meta.get("namespace", ""), meta["name"]),
            query={"fieldManager": FIELD_MANAGER},
            body=manifest,
        )

    async def merge(self, ref: Ref, patch: Manifest, *, subresource: str = "") -> Object:
        """A JSON merge patch. Raises ConflictError if it has a resourceVersion or UID and the object another."""
        return await self._ask(
            "PATCH",
            _path(ref.kind, ref.namespace, ref.name, subresource),
            query={"fieldManager": FIELD_MANAGER},
            body=patch,
            content_type="application/merge-patch+json",
        )

    async def remove(self, ref: Ref, propagation: Propagation = Propagation.BACKGROUND) -> None:
        """Delete the object; one that is gone, or has another UID than `ref`, is done."""
        body: Object = {"propagationPolicy": propagation.value}
        if ref.uid:
            body["preconditions"] = {"uid": ref.uid}
        try:
            await self._ask("DELETE", _path(ref.kind, ref.namespace, ref.name), body=body)
        except NotFoundError:
            return
        except ConflictError:
            now = await self.find(ref.kind, ref.namespace, ref.name)
            if now is not None and now["metadata"]["uid"] == ref.uid:
                raise

    async def evict(self, ref: Ref) -> None:
        """Evict a pod, as far as PodDisruptionBudgets allow it; one that is gone, or has another UID than `ref`, is no error.

        Raises NotNowError when a budget forbids it now, and while more than one is over the pod, which evictions do not know.
        """
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "deleteOptions": {"preconditions": {"uid": ref.uid}} if ref.uid else {},
        }
        try:
            await self._ask("POST", _path("Pod", ref.namespace, ref.name, "eviction"), body=eviction)
        except NotFoundError:
            return
        except ConflictError:
            now = await self.find("Pod", ref.namespace, ref.name)
            if now is not None and now["metadata"]["uid"] == ref.uid:
                raise
        except UnavailableError as error:
            if error.status == HTTPStatus.TOO_MANY_REQUESTS or _TWO_BUDGETS in str(error):
                msg = f"the eviction of {ref} is refused: {str(error).partition(': ')[2]}"
                raise NotNowError(msg) from error
            raise

    async def patch_meta(self, patch: PatchMeta) -> None:
        """Change finalizers, labels and annotations, on the version that was read.

        Raises NotFoundError, ConflictError: observe and decide again.
        """
        ref = patch.ref
        changes: Object = {}
        if patch.labels is not None:
            changes["labels"] = dict(patch.labels)
        if patch.annotations is not None:
            changes["annotations"] = dict(patch.annotations)
        if patch.add_finalizer or patch.remove_finalizer:
            now = (await self.get(ref.kind, ref.namespace, ref.name))["metadata"]
            if ref.uid and now["uid"] != ref.uid:
                msg = f"{ref} is another object by now: it was deleted and made anew"
                raise ConflictError(msg)
            there = now.get("finalizers") or []
            kept = [each for each in there if each != patch.remove_finalizer]
            if patch.add_finalizer and patch.add_finalizer not in kept:
                kept.append(patch.add_finalizer)
            if kept != there:
                changes |= {"finalizers": kept, "resourceVersion": now["resourceVersion"]}
        if changes:
            if ref.uid:
                changes["uid"] = ref.uid
            await self.merge(ref, {"metadata": changes})

    # One request.

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Object:
        parameters = [(name, value) for name, value in (query or {}).items() if value]
        loop = asyncio.get_running_loop()
        status, text = await loop.run_in_executor(
            self._threads, self._request, method, path, parameters, body, content_type
        )
        self._metrics.api_requests.labels(method, str(status)).inc()
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            answer: Object = json.loads(text)
            return answer
        said = _server_says(text) or f"the API server answers {status}"
        msg = f"{method} {path}: {said}"
        raise _error_for(status, said)(msg, status)

    def _request(
        self,
        method: str,
        path: str,
        parameters: list[tuple[str, str]],
        body: Manifest | None,
        content_type: str,
    ) -> tuple[int, bytes]:
        """In a thread: the status and the body of the answer; status 0 never. Raises UnavailableError."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=parameters,
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = self._api.call_api(*request, _request_timeout=self._timeout_s)
            return int(answer.status), answer.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            msg = f"{method} {path}: the API server does not answer ({error}): nothing is done until it does"
            raise UnavailableError(msg) from error


def _path(kind: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """`/apis/apps/v1/namespaces/data/statefulsets/bk`."""
    known = kind_of(kind)
    parts = ["", "api" if "/" not in known.api_version else "apis", *known.api_version.split("/")]
    if known.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(known.plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def _error_for(status: int, said: str) -> type[KubeError]:
    """500 is also the answer about one object while a webhook that must admit it is away; all else may work meanwhile."""
    is_about_a_webhook = status == HTTPStatus.INTERNAL_SERVER_ERROR and _WEBHOOK in said
    return WebhookError if is_about_a_webhook else _ERRORS.get(status, UnavailableError)


def _server_says(text: bytes) -> str:
    """The message of a Status object; "" for any other answer."""
    try:
        found = json.loads(text)
    except ValueError:
        return ""
    return str(found.get("message", "")) if isinstance(found, dict) else ""
