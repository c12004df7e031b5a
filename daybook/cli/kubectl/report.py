"""A bundle for an issue: resources, events, the ends of logs, and the explanation, without what is private.

Redacted are values that look like secrets, users' own metadata and annotations, IP addresses, and names of nodes; the
same name gets the same stand-in everywhere, so that the story can still be read. Secrets are never asked for.
"""

import io
import ipaddress
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

from daybook.cli.kubectl.api import Object
from daybook.cli.kubectl.explain import Finding
from daybook.cli.kubectl.world import World, labels_of, place

HIDDEN: Final = "<redacted>"
OUR_KEYS: Final = ("daybook.dev/", "app.kubernetes.io/", "topology.", "kubernetes.io/", "helm.sh/")
DROPPED: Final = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
LOG_LINES: Final = 500

_SECRET_NAME: Final = re.compile(
    r"pass(word)?|secret|token|digest|credential|api[-_]?key|private[-_]?key", re.IGNORECASE
)
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)")
_IPV6: Final = re.compile(
    r"(?:(?<!\w)|(?<=%5B))(?:[0-9a-f]{0,4}:){2,8}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]{0,4})(?!\w)",
    re.IGNORECASE,
)
"""What may be an address, and is one if it can be parsed: times have colons, too. gRPC writes `%5B` for a bracket."""
_PRIVATE: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_IN_TEXT: Final = re.compile(
    r"""((?:pass(?:word)?|secret|token|digest|authorization|api[-_]?key)["']?\s*[:=]\s*["']?)((?:Bearer\s+)?[^\s"',}]+)""",
    re.IGNORECASE,
)
_KEPT_ADDRESSES: Final = frozenset(
    map(ipaddress.ip_address, ("127.0.0.1", "0.0.0.0", "::1", "::"))  # noqa: S104 - read, not bound
)


class Redactor:
    """Takes out what an issue must not show; the same name becomes the same stand-in."""

    def __init__(self, nodes: Iterable[str]) -> None:
        """`nodes` are the names of machines."""
        self._nodes = {name: f"node-{number}" for number, name in enumerate(sorted(nodes), 1)}
        self._addresses: dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str] = {}
        names = sorted(map(re.escape, self._nodes), key=len, reverse=True)
        self._node_name = re.compile(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])") if names else None

    def text(self, text: str) -> str:
        """Free text: a log, a message."""
        text = _PRIVATE.sub(HIDDEN, text)
        text = _IN_TEXT.sub(rf"\1{HIDDEN}", text)
        if self._node_name is not None:
            text = self._node_name.sub(lambda found: self._nodes[found[0]], text)
        text = _IPV6.sub(lambda found: self._groups(found[0]), text)
        return _IPV4.sub(lambda found: self._address(found[0]) or found[0], text)

    def thing(self, thing: Any, name: str = "") -> Any:
        """An object, or a part of one that has this name."""
        if isinstance(thing, Mapping):
            return self._mapping(thing, name)
        if isinstance(thing, list):
            return [self.thing(each, name) for each in thing]
        return self.text(thing) if isinstance(thing, str) else thing

    def _mapping(self, thing: Mapping[str, Any], name: str) -> dict[str, Any]:
        if name == "customMetadata":
            return dict.fromkeys(thing, HIDDEN)
        if name in ("annotations", "labels"):
            return {
                key: self.thing(value) if key.startswith(OUR_KEYS) else HIDDEN
                for key, value in thing.items()
                if key not in DROPPED
            }
        if {"name", "value"} <= thing.keys() and _SECRET_NAME.search(str(thing["name"])):
            return {**thing, "value": HIDDEN}
        return {
            key: HIDDEN if isinstance(value, str) and _SECRET_NAME.fullmatch(key) else self.thing(value, key)
            for key, value in thing.items()
            if key not in DROPPED
        }

    def _groups(self, text: str) -> str:
        """Groups with colons between them: what is behind an address of IPv6 may be a port, or the sentence."""
        head = text
        while head.count(":") > 1:
            if (address := self._address(head)) is not None:
                return address + text[len(head) :]
            head = head.rpartition(":")[0]
        return text

    def _address(self, text: str) -> str | None:
        """What stands for an address, however it is written; None: it is none."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        if address in _KEPT_ADDRESSES:
            return text
        return self._addresses.setdefault(address, f"ip-{len(self._addresses) + 1}")


def node_names(world: World) -> set[str]:
    """All names of machines that any object contains."""
    named = {place(node)[1] for node in world.nodes}
    hosts = {labels_of(node).get("kubernetes.io/hostname", "") for node in world.nodes}
    bound = {pod["spec"].get("nodeName", "") for pod in world.pods}
    return {name for name in named | hosts | bound if name}


def bundle(
    world: World, findings: Iterable[Finding], logs: Mapping[str, str], about: Mapping[str, str]
) -> dict[str, str]:
    """The files of the report, by name."""
    redactor = Redactor(node_names(world))
    kinds: Mapping[str, Iterable[Object]] = {
        "bookiepools": world.pools,
        "ledgers": world.ledgers,
        "pods": world.pods,
        "persistentvolumeclaims": world.claims,
        "nodes": [_node(node) for node in world.nodes],
        "jobs": world.jobs,
        "events": world.events,
    }
    files = {f"{kind}.json": _json(redactor.thing(list(things))) for kind, things in kinds.items()}
    files["explain.json"] = _json([redactor.thing(finding.record()) for finding in findings])
    files["about.json"] = _json({**about, "unread": redactor.thing(dict(world.unread))})
    for name, text in logs.items():
        files[f"logs/{name}.log"] = redactor.text(text)
    return files


def _node(node: Object) -> Object:
    """What of a node is about Daybook: its labels, taints and conditions; not its images, nor who made it."""
    status = node.get("status") or {}
    return {
        "kind": "Node",
        "metadata": {"name": place(node)[1], "labels": labels_of(node)},
        "spec": {
            key: node.get("spec", {})[key]
            for key in ("taints", "unschedulable")
            if key in node.get("spec", {})
        },
        "status": {key: status[key] for key in ("conditions", "allocatable") if key in status},
    }


def pack(files: Mapping[str, str], folder: str, now_s: int) -> bytes:
    """A .tar.gz of the files in one folder."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in sorted(files):
            data = files[name].encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), now_s, 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _json(thing: Any) -> str:
    return json.dumps(thing, indent=2, sort_keys=True) + "\n"
