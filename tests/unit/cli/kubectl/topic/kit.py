"""An API server that is a recording, with two brokers behind its pod proxy that answer as real ones do."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from daybook.cli.kubectl.api import ApiError, Object
from daybook.core.topics.policy import Policy, PolicyLayer
from tests.unit.cli.kubectl.objects import SINCE, bookie, condition, pod, pool
from tests.unit.cli.topic.snapshots import OWNER, broker, report

Answer = tuple[int, Any]


def broker_pod(name: str, *, ready: bool = True) -> Object:
    """A broker's pod, as the chart makes it."""
    found = pod(name, component="broker", ready=ready)
    found["spec"]["containers"] = [
        {
            "name": "broker",
            "ports": [{"name": "admin", "containerPort": 8080}, {"name": "pulsar", "containerPort": 6650}],
        }
    ]
    return found


def topic_resource(name: str = "orders", *conditions: dict[str, str], **spec: Any) -> Object:
    """A Topic resource that the operator has reconciled."""
    return {
        "apiVersion": "daybook.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {
            "name": name,
            "namespace": "data",
            "uid": f"{name}-uid",
            "generation": 1,
            "creationTimestamp": SINCE,
        },
        "spec": {"poolRef": {"name": "bk"}, "tenant": "public", "topicNamespace": "default", **spec},
        "status": {"observedGeneration": 1, "conditions": list(conditions) or [condition("Ready", "True")]},
    }


class ApiServer:
    """As `Api`; `answers` are those of brokers by pod, method and path, and `asked` what they were asked."""

    def __init__(self) -> None:
        """A topic `orders` that broker-1 owns."""
        self.objects: dict[str, list[Object]] = {
            "Pod": [broker_pod("broker-0"), broker_pod("broker-1")],
            "Topic": [],
            "BookiePool": [pool(bookie(0), bookie(1), bookie(2))],
        }
        self.refused: set[str] = set()
        self.is_narrow = False
        """Whether the person may read one namespace alone."""
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.answers: dict[str, Answer] = {}
        self.orders = report()
        self.owner = broker()

    def listing(self, kind: str, namespace: str = "", _labels: str = "") -> list[Object]:
        """All objects of a kind."""
        if kind in self.refused or (not namespace and self.is_narrow):
            raise ApiError(f"{kind} is forbidden", 403)
        return [each for each in self.objects[kind] if namespace in ("", each["metadata"]["namespace"])]

    def proxy(
        self,
        method: str,
        _namespace: str,
        target: str,
        path: str,
        headers: Mapping[str, str],
        _body: Any = None,
    ) -> tuple[int, bytes]:
        """What a broker answers."""
        self.headers.append(headers)
        where = urlsplit(path)
        query = dict(parse_qsl(where.query))
        assert query.pop("redirect") == "false"
        self.asked.append(f"{target} {method} {where.path}" + (f" {query}" if query else ""))
        name, _, port = target.partition(":")
        assert port == "8080"
        status, answer = self._answer(name, method, unquote(where.path))
        return status, json.dumps(answer).encode()

    def _answer(self, name: str, method: str, path: str) -> Answer:
        for key in (f"{name} {method} {path}", f"{method} {path}"):
            if key in self.answers:
                return self.answers[key]
        mine = "/admin/v2/persistent/public/default/orders"
        if path == "/daybook/v1/topics":
            found = [self.orders] if f"data.{name}" == OWNER else []
            page = {"broker": self.owner.model_copy(update={"broker": f"data.{name}"}), "topics": found}
            return 200, {key: _dumped(value) for key, value in page.items()}
        if path.startswith("/daybook/v1/topics/") or path == f"{mine}/internalStats":
            if f"data.{name}" != OWNER:
                return 409, _elsewhere()
            if path.endswith("internalStats"):
                return 200, {"ledgers": [{"ledgerId": 7, "underReplicated": False}]}
            return 200, {"broker": _dumped(self.owner), "topics": _dumped([self.orders])}
        fixed: dict[str, Answer] = {
            f"{mine}/partitions": (200, {"partitions": 0}),
            f"{mine}/policy": (200, {}),
            f"{mine}/policy/applied": (200, PolicyLayer(**_values(Policy())).to_record() | {"warning": None}),
            "/admin/v2/namespaces/public/default/owners": (200, {"0xb0000000_0xb8000000": OWNER}),
        }
        return fixed.get(path, (404, {"reason": f"topic {path} does not exist"}))


def _elsewhere() -> dict[str, Any]:
    return {
        "reason": f"broker {OWNER} owns the topic",
        "broker": OWNER,
        "adminUrl": "http://broker-1.broker-pods.data.svc:8080",
        "isOwner": True,
        "authoritative": True,
    }


def _dumped(value: Any) -> Any:
    if isinstance(value, list):
        return [_dumped(each) for each in value]
    return value.model_dump(mode="json", by_alias=True)


def _values(policy: Policy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__slots__}
