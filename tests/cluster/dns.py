"""The cluster's DNS: CoreDNS in pods on two nodes, behind the Service kube-dns, as clusters have it.

So a node that dies or is cut off takes a DNS server with it, and whoever asks that one waits, as elsewhere. What runs
beside the cluster (`make e2e`'s writer) asks a CoreDNS of its own on the gateway, which no harm reaches.
"""

from pathlib import Path
from typing import Any, Final

from tests.cluster.node_files import DNS_ADDRESS, DOMAIN, GATEWAY

IMAGE: Final = "docker.io/daybook/coredns:1"
SELECTOR: Final = {"k8s-app": "kube-dns"}
_NAMED: Final = {"name": "coredns", "namespace": "kube-system"}
_TTL_S: Final = 5
"""As CoreDNS has it where nothing is said."""


def corefile(*, bind: str = "", kubeconfig: Path | None = None) -> str:
    """CoreDNS's configuration: in a pod nothing more than the domain, elsewhere where to listen and whom to ask."""
    listen = f"  bind {bind}\n" if bind else ""
    ask = f"    kubeconfig {kubeconfig} test\n" if kubeconfig else ""
    return f"{DOMAIN}:53 {{\n{listen}  errors\n  kubernetes {DOMAIN} {{\n{ask}    ttl {_TTL_S}\n  }}\n}}\n"


def outside_corefile(kubeconfig: Path) -> str:
    """For the one that answers what runs beside the cluster."""
    return corefile(bind=GATEWAY, kubeconfig=kubeconfig)


def manifests() -> list[dict[str, Any]]:
    """CoreDNS with what it may read, and the Service by which pods find it."""
    reads = [
        {"apiGroups": [""], "resources": _core_resources(), "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    who = [{"kind": "ServiceAccount", **_NAMED}]
    rbac = "rbac.authorization.k8s.io/v1"
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53},
    ]
    named = {"name": "kube-dns", "namespace": "kube-system", "labels": SELECTOR}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _NAMED},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role["name"]}, "rules": reads},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role["name"]},
            "roleRef": role,
            "subjects": who,
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _NAMED, "data": {"Corefile": corefile()}},
        _deployment(),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": named,
            "spec": {"clusterIP": DNS_ADDRESS, "selector": SELECTOR, "ports": ports},
        },
    ]


def _core_resources() -> list[str]:
    return ["endpoints", "services", "pods", "namespaces"]


def _deployment() -> dict[str, Any]:
    elsewhere = {"labelSelector": {"matchLabels": SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    container = {
        "name": "coredns",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [{"containerPort": 53, "protocol": protocol} for protocol in ("UDP", "TCP")],
        "readinessProbe": {"tcpSocket": {"port": 53}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "170Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "coredns",
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [elsewhere]}},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**_NAMED, "labels": SELECTOR},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": SELECTOR},
            "template": {"metadata": {"labels": SELECTOR}, "spec": pod},
        },
    }
