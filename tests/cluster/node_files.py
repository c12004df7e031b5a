"""The configuration files of a node, as pure functions: CNI, containerd, kubelet, kube-proxy, volumes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster import cgroups

GATEWAY: Final = "10.199.0.1"
OUTSIDE: Final = "outside"
"""The network of a machine that is no part of the cluster."""
OUTSIDE_ADDRESS: Final = "10.199.0.250"
SERVICE_RANGE: Final = "10.96.0.0/16"
POD_RANGE: Final = "10.244.0.0/16"
DNS_ADDRESS: Final = "10.96.0.10"
DOMAIN: Final = "cluster.local"
PAUSE_IMAGE: Final = "docker.io/daybook/pause:1"
CNI_PLUGINS: Final = Path("/usr/lib/cni")
PODS_MAX: Final = 60
STORAGE_CLASS: Final = "local"


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, where it stands, and its number, from which its addresses follow."""

    name: str
    zone: str
    rack: str
    number: int
    folder: Path

    @property
    def address(self) -> str:
        """Its address in the cluster's network."""
        return f"10.199.0.{self.number}"

    @property
    def pod_range(self) -> str:
        """The addresses of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def link(self) -> str:
        """Its network interface; the other end, in the bridge, is `port`."""
        return f"v{self.number}"

    @property
    def port(self) -> str:
        """The bridge's end of its cable."""
        return f"p{self.number}"

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.folder / "run" / "containerd.sock"

    @property
    def storage(self) -> Path:
        """Where its containerd keeps images and containers: gigabytes."""
        return self.folder / "containerd"

    @property
    def cgroup(self) -> str:
        """Its cgroup, of its own: kubelets that share one delete each other's pods."""
        return cgroups.name_of(self.name)


def write_files(node: Node, proxy_kubeconfig: Path) -> None:
    """Write all of a node's files into its folder."""
    for folder in ("cni", "run", "pki", "volumes"):
        (node.folder / folder).mkdir(parents=True, exist_ok=True)
    files = {
        "cni/10-bridge.conflist": json.dumps(_cni(node)),
        "containerd.toml": _containerd(node),
        "kubelet.yaml": json.dumps(_kubelet(node)),
        "proxy.yaml": json.dumps(_proxy(node, proxy_kubeconfig)),
    }
    for name, text in files.items():
        (node.folder / name).write_text(text, encoding="utf-8")


def _cni(node: Node) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(node.folder / "ipam"),
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def _containerd(node: Node) -> str:
    # restrict_oom_score_adj: without it runc fails where CAP_SYS_RESOURCE is missing
    return f"""version = 2
root = "{node.storage}"
state = "{node.folder}/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{node.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{node.folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def _kubelet(node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # the kubelets listen only inside the private namespaces
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failSwapOn": False,
        "failCgroupV1": False,
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"},
        "resolvConf": "",
        # kubelets remove the logs of pods that they do not know
        "podLogsDir": str(node.folder / "pod-logs"),
        "volumePluginDir": str(node.folder / "volume-plugins"),
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": DOMAIN,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "4s",
        "nodeLeaseDurationSeconds": 8,  # renewed every quarter; the grace of the controllers must exceed that
        "maxPods": PODS_MAX,
    }


def _proxy(node: Node, kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0, "min": 0},
        "hostnameOverride": node.name,
        "clusterCIDR": POD_RANGE,
    }


def storage_class() -> dict[str, Any]:
    """The class of local volumes: nobody provisions them, and a pod decides on which node one is used."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, node: Node, folder: Path, size: str) -> dict[str, Any]:
    """A directory of a node as a volume."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
