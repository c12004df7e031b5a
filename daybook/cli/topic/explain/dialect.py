"""The commands that `explain` names as the next ones: those of a shell that reaches ZooKeeper, or those of kubectl.

A Dialect is a table of templates, so that the judgement is the same for both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Final

from daybook.core.topics.ownership.load import BrokerId

_POLICY: Final = "daybook topic policy {topic}"
_RESOURCE: Final = "kubectl describe topic -n {namespace} {name}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Templates by the name of what a person wants to do next."""

    templates: Mapping[str, str]

    def command(self, what: str, **values: object) -> str:
        """A command line; `values` are quoted for a shell."""
        return self.templates[what].format(
            **{name: quote(str(value)) for name, value in values.items()}, **_pod_of(values.get("broker"))
        )


def _pod_of(broker: object) -> dict[str, str]:
    """The chart names a broker after its pod: `NAMESPACE.POD`."""
    namespace, _, pod = BrokerId(broker or "").partition(".")
    return {"broker_namespace": quote(namespace), "pod": quote(pod or namespace)}


SHELL: Final = Dialect(
    {
        "stats": "daybook topic stats {topic}",
        "unload": "daybook topic unload {topic}",
        "peek": "daybook topic peek {topic} {subscription}",
        "policy": _POLICY,
        "resource": _RESOURCE,
        "resources": "kubectl get topics -A",
        "brokers": "daybook broker start --help",
        "broker": "daybook broker start {broker}",
        "bookies": "daybook bookie list",
        "ledger": "daybook ledger show {ledger}",
        "repair": "daybook audit",
    }
)


def kubectl(namespace: str) -> Dialect:
    """The commands of kubectl, which ask brokers of `namespace`; of all namespaces if it is empty."""
    where = f"-n {quote(namespace)}" if namespace else "-A"
    plugin = "kubectl daybook"
    return Dialect(
        {
            "stats": f"{plugin} topic stats {where} {{topic}}",
            "unload": f"{plugin} topic unload {where} {{topic}}",
            "peek": f"{plugin} topic backlog {where} {{topic}}",
            "policy": _POLICY,
            "resource": _RESOURCE,
            "resources": "kubectl get topics -A",
            "brokers": f"kubectl get pods {where} -l app.kubernetes.io/name=daybook,app.kubernetes.io/component=broker",
            "broker": "kubectl logs -n {broker_namespace} {pod} --tail 50",
            "bookies": f"{plugin} bookies {where}",
            "ledger": f"{plugin} explain {where}",
            "repair": f"{plugin} recover plan {where}",
        }
    )
