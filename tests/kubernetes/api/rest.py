"""Daybook's resources over plain HTTP, so that a test sees exactly what the API server says, refusals first of all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from tests.cluster.control_plane import ControlPlane

Object: TypeAlias = dict[str, Any]

GROUP_VERSION: Final = "daybook.dev/v1alpha1"
PLURALS: Final = {"BookiePool": "bookiepools", "Ledger": "ledgers", "Topic": "topics"}
_APPLY: Final = "application/apply-patch+yaml"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"


class RefusedError(Exception):
    """The API server refused; `code` is the HTTP status, the message is the server's."""

    def __init__(self, code: int, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Resources:
    """Daybook's resources in one namespace. Every method raises RefusedError."""

    plane: ControlPlane
    namespace: str

    def create(self, body: Object, *, dry_run: bool = False, strict: bool = False) -> Object:
        """Create; `strict` refuses unknown fields instead of dropping them, as kubectl does by default."""
        query = {"dryRun": "All"} if dry_run else {}
        if strict:
            query["fieldValidation"] = "Strict"
        return self._send("POST", self._path(body["kind"]), body, **query)

    def get(self, kind: str, name: str) -> Object:
        """Read one."""
        return self._send("GET", self._path(kind, name))

    def find(self, kind: str, name: str) -> Object:
        """Read one; {} if it is gone."""
        try:
            return self.get(kind, name)
        except RefusedError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return {}

    def replace(self, body: Object, *, part: str = "", dry_run: bool = False) -> Object:
        """Replace the object, or its `status` or `scale`."""
        query = {"dryRun": "All"} if dry_run else {}
        name = body["metadata"]["name"]
        kind = body["kind"] if body["kind"] != "Scale" else "BookiePool"
        return self._send("PUT", self._path(kind, name, part), body, **query)

    def delete(self, kind: str, name: str) -> None:
        """Delete one."""
        self._send("DELETE", self._path(kind, name))

    def apply(self, body: Object, *, manager: str, part: str = "", force: bool = False) -> Object:
        """Apply server-side."""
        path = self._path(body["kind"], body["metadata"]["name"], part)
        query = {"fieldManager": manager, "force": str(force).lower()}
        return self._send("PATCH", path, body, content_type=_APPLY, **query)

    def scale(self, name: str) -> Object:
        """The scale subresource of a pool."""
        return self._send("GET", self._path("BookiePool", name, "scale"))

    def table(self, kind: str, name: str) -> dict[str, Any]:
        """The cells that kubectl prints of one object, by column."""
        table = self._send("GET", self._path(kind, name), accept=_TABLE)
        names = [column["name"] for column in table["columnDefinitions"]]
        return dict(zip(names, table["rows"][0]["cells"], strict=True))

    def _path(self, kind: str, name: str = "", part: str = "") -> str:
        path = f"/apis/{GROUP_VERSION}/namespaces/{self.namespace}/{PLURALS[kind]}"
        return "/".join([path, *filter(None, (name, part))])

    def _send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Object:
        target = f"{path}?{urlencode(query)}" if query else path
        status, text = self.plane.request(method, target, body, content_type=content_type, accept=accept)
        answer: Object = json.loads(text)
        if status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(status, str(answer["message"]))
        return answer


def pool(**spec: Any) -> Object:
    """A BookiePool with little more than it must have."""
    return _resource("BookiePool", "bk", {"storage": {"store": {"size": "10Gi"}}} | spec)


def ledger(**spec: Any) -> Object:
    """A Ledger with little more than it must have."""
    return _resource("Ledger", "orders", {"poolRef": {"name": "bk"}} | spec)


def topic(**spec: Any) -> Object:
    """A Topic with little more than it must have."""
    return _resource("Topic", "events", {"poolRef": {"name": "bk"}} | spec)


def _resource(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def role(prefix: str, user: str, rule: Mapping[str, Any], namespace: str = "") -> list[Mapping[str, Any]]:
    """A Role or ClusterRole with one rule, and its binding to a user of the same name."""
    meta = {"name": user, **({"namespace": namespace} if namespace else {})}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": f"{prefix}Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{prefix}RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": f"{prefix}Role", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    ]
