"""A real Kubernetes cluster of several nodes on one Linux machine, for `make e2e`: pods really run here, and nodes really die.

Each node is a network namespace with a containerd, kubelet and kube-proxy of its own, in a zone and a rack; a node, or
its network, can be taken away and given back. It needs root, cgroup v1 and Debian's container tools, and says what is
missing. Everything is in one sandbox (`tests.cluster.sandbox`), which is killed as a whole. `python -m tests.cluster`
is its command line.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Final

from tests.cluster import cgroups, dns
from tests.cluster.binaries import CONTROL_PLANE, NODES, binaries
from tests.cluster.control_plane import ControlPlane, KubectlError, Place
from tests.cluster.node_files import (
    CNI_PLUGINS,
    GATEWAY,
    OUTSIDE,
    OUTSIDE_ADDRESS,
    PAUSE_IMAGE,
    SERVICE_RANGE,
    Node,
    storage_class,
    volume,
    write_files,
)
from tests.cluster.sandbox import NETNS, Sandbox, SandboxError, kill
from tests.cluster.static_image import write_image
from tests.fixtures.package_index import Say

RACK_KEY: Final = "topology.daybook.dev/rack"
ZONE_KEY: Final = "topology.kubernetes.io/zone"
API_PORT: Final = 6443
CLUSTER_VARIABLE: Final = "DAYBOOK_NODES_DIR"
_READY_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.25
_FIRST_NUMBER: Final = 2  # the bridge itself is number 1
_TOOLS: Final = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "iptables-save": "iptables",
    "conntrack": "conntrack",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "sysctl": "procps",
    "mount": "mount",
}
"""What must be on the PATH, with Debian's package that has it."""
_CNI: Final = ("bridge", "host-local", "loopback", "portmap")


class NodesError(Exception):
    """The cluster cannot be had here, or did not come up; the message says why and what to do."""


def default_directory() -> Path:
    """Where a cluster lives unless another place is given."""
    return Path(os.environ.get(CLUSTER_VARIABLE) or Path(tempfile.gettempdir()) / "daybook-nodes")


def check_machine() -> None:
    """Raise NodesError that names everything that this machine lacks."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root: namespaces, mounts and cgroups are made")
    if not cgroups.are_version_1():
        lacks.append(
            "cgroup v1: boot with systemd.unified_cgroup_hierarchy=0, or use a machine or container that has it"
        )
    packages = sorted({package for tool, package in _TOOLS.items() if shutil.which(tool) is None})
    if any(not (CNI_PLUGINS / plugin).exists() for plugin in _CNI):
        packages.append("containernetworking-plugins")
    if packages:
        lacks.append(f"packages: apt-get install {' '.join(packages)}")
    if lacks:
        raise NodesError(
            "A cluster of nodes needs what is missing here:\n" + "\n".join(f"- {it}" for it in lacks)
        )


class NodeCluster:
    """The cluster in `directory`; another process that names the same directory works on the same cluster."""

    def __init__(self, directory: Path | None = None, *, say: Say = print) -> None:
        """Use the cluster of `directory`, which may not be up yet."""
        self.directory = (directory or default_directory()).absolute()
        self.sandbox = Sandbox(self.directory)
        self._say = say

    @cached_property
    def _programs(self) -> dict[str, Path]:
        return binaries((*CONTROL_PLANE, *NODES), say=self._say)

    # ------------------------------------------------------------------------------------------------- the whole

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name. Raises NodesError if no cluster runs."""
        self._pid()
        return self._known_nodes()

    def _known_nodes(self) -> dict[str, Node]:
        try:
            known = json.loads((self.directory / "nodes.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {each["name"]: Node(**{**each, "folder": Path(each["folder"])}) for each in known}

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its address is one of the cluster's own network."""
        return self.directory / "admin.kubeconfig"

    def up(self, wanted: Sequence[str], *, images: Iterable[Path] = ()) -> None:
        """Start a cluster of nodes like `node-a:zone-1` or `node-a:zone-1/rack-7`; return once all are ready.

        Raises NodesError, and BinariesMissingError.
        """
        check_machine()
        if self.sandbox.pid is not None:
            raise NodesError(f"a cluster runs already in {self.directory}: take it down first")
        shutil.rmtree(self.directory, ignore_errors=True)
        nodes = [self._parse(text, number) for number, text in enumerate(wanted, _FIRST_NUMBER)]
        if taken := [node.name for node in nodes if cgroups.processes(node.cgroup)]:
            raise NodesError(f"another cluster runs {', '.join(taken)}: take it down, or choose other names")
        began = time.monotonic()
        self.sandbox.create()
        known = [{**asdict(node), "folder": str(node.folder)} for node in nodes]
        (self.directory / "nodes.json").write_text(json.dumps(known), encoding="utf-8")
        try:
            self._start_network()
            plane = self._start_control_plane()
            self._start_dns(plane)
            archives = self._own_images()
            proxy = plane.kubeconfig_of_user("system:kube-proxy")
            for node in nodes:
                plane.kubeconfig_of_user(f"system:node:{node.name}", ["system:nodes"])
                write_files(node, proxy)
                self._plug_in(node)
                cgroups.create(node.cgroup)
            for node in nodes:
                self._start_containerd(node)
            self.import_images([*archives, *images])
            for (
                node
            ) in nodes:  # one by one: each takes the same socket for device plugins from the one before
                self._start_kubelet(node)
                self._wait_for(node)
            self._start_proxy("beside", nodes[0])
            self.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
        except BaseException:
            self.down(keep_logs=True)
            raise
        self._say(f"{len(nodes)} nodes are ready after {time.monotonic() - began:.0f} s.")

    def down(self, *, keep_logs: bool = False) -> None:
        """End everything and leave no trace, but the logs if they are to be looked at."""
        nodes = list(self._known_nodes().values())
        self.sandbox.destroy()
        for node in nodes:
            cgroups.remove(node.cgroup)
        if keep_logs:
            for node in nodes:
                shutil.rmtree(node.storage, ignore_errors=True)
            self._say(f"The logs are in {self.directory / 'log'}.")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """What a command needs to find the cluster: KUBECONFIG, and the programs on the PATH."""
        self._pid()
        programs = self._programs["kubectl"].parent
        return {
            "KUBECONFIG": str(self.kubeconfig),
            CLUSTER_VARIABLE: str(self.directory),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }

    def command(self, *command: str) -> list[str]:
        """The command as it runs in the cluster's network, from where API server, pods and nodes are reached.

        It sees this machine's processes and files: only the network is the cluster's.
        """
        return ["nsenter", f"--target={self._pid()}", "--net", *command]

    def command_outside(self, *command: str) -> list[str]:
        """The command as it runs on a machine beside the nodes: it reaches their addresses, and neither pods nor Services."""
        return ["nsenter", f"--net=/proc/{self._pid()}/root{NETNS}/{OUTSIDE}", *command]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return what it prints. Raises KubectlError."""
        command = self.command(str(self._programs["kubectl"]), *arguments)
        environment = {**os.environ, **self.environment()}
        done = subprocess.run(
            command, input=stdin, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    # -------------------------------------------------------------------------------------------------- the nodes

    def stop(self, name: str) -> None:
        """Power a node off: its daemons and every container are killed at once."""
        node = self._node(name)
        for daemon in ("kubelet", "kube-proxy", "containerd"):
            self.sandbox.kill(f"{daemon}-{name}")
        for pid in cgroups.shims(
            str(node.socket)
        ):  # first, or they would report and bury what is killed next
            kill(pid)
        while pids := cgroups.processes(node.cgroup):
            for pid in pids:
                kill(pid)

    def start(self, name: str) -> None:
        """Power a node on again."""
        node = self._node(name)
        self._start_containerd(node)
        self._start_kubelet(node)

    def cut(self, name: str) -> None:
        """Cut a node's network: its processes continue, and nobody reaches them."""
        node = self._node(name)
        self.sandbox.run("ip", "link", "set", node.link, "down", node=name)

    def join(self, name: str) -> None:
        """Give a node its network back."""
        node = self._node(name)
        self.sandbox.run("ip", "link", "set", node.link, "up", node=name)
        self.sandbox.run("ip", "route", "replace", "default", "via", GATEWAY, node=name)

    def import_images(self, archives: Iterable[Path]) -> None:
        """Import image archives (OCI or Docker) into every node. Pods use them with imagePullPolicy IfNotPresent."""
        paths = [str(archive.absolute()) for archive in archives]

        def import_into(node: Node) -> None:
            for path in paths:
                self.sandbox.run("ctr", "-a", str(node.socket), "-n", "k8s.io", "images", "import", path)

        nodes = list(self.nodes.values())
        with ThreadPoolExecutor(len(nodes)) as pool:  # each has its own containerd, and unpacks with one core
            for _ in pool.map(import_into, nodes):
                continue

    def create_volumes(self, count: int, *, size: str = "10Gi") -> None:
        """Local volumes on every node, of the class `local`; each is a directory, see `volume_folder`."""
        manifests = [storage_class()]
        for node in self.nodes.values():
            for number in range(count):
                name = f"{node.name}-{number}"
                folder = self.volume_folder(name)
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o777)
                manifests.append(volume(name, node, folder, size))
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.kubectl("apply", "--server-side", "-f", "-", stdin=body)

    def volume_folder(self, name: str) -> Path:
        """The directory of the local volume <node>-<number>. Emptying it is the loss of a disk."""
        node = self._node(name.rpartition("-")[0])
        return node.folder / "volumes" / name

    # --------------------------------------------------------------------------------------------------- the parts

    def _parse(self, text: str, number: int) -> Node:
        name, colon, place = text.partition(":")
        zone, _, rack = place.partition("/")
        if not (name and colon and zone):
            raise NodesError(f"{text!r} names no node: write NODE:ZONE or NODE:ZONE/RACK, like node-a:zone-1")
        return Node(name, zone, rack, number, self.directory / name)

    def _node(self, name: str) -> Node:
        nodes = self.nodes
        if name not in nodes:
            raise NodesError(f"there is no node {name!r}: choose one of {', '.join(nodes)}")
        return nodes[name]

    def _pid(self) -> int:
        pid = self.sandbox.pid
        if pid is None:
            raise NodesError(f"no cluster runs in {self.directory}: bring it up first")
        return pid

    def _start_network(self) -> None:
        run = self.sandbox.run
        run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "addr", "add", f"{GATEWAY}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        # kube-proxy changes where packets go, but only of those that have a way
        run("ip", "route", "add", SERVICE_RANGE, "dev", "br0")
        run("ip", "netns", "add", OUTSIDE)
        run("ip", "link", "add", "v0", "netns", OUTSIDE, "type", "veth", "peer", "name", "p0")
        run("ip", "link", "set", "p0", "master", "br0", "up")
        run("ip", "addr", "add", f"{OUTSIDE_ADDRESS}/24", "dev", "v0", node=OUTSIDE)
        run("ip", "link", "set", "v0", "up", node=OUTSIDE)

    def _start_control_plane(self) -> ControlPlane:
        place = Place(
            address=GATEWAY,
            port=API_PORT,
            enter=self.sandbox.enter(),
            api_server_flags=("--kubelet-preferred-address-types=InternalIP",),
            controller_flags=(
                "--node-monitor-period=1s",
                "--node-monitor-grace-period=12s",
            ),
        )
        return ControlPlane(self.directory, self._programs, place).start()

    def _start_dns(self, plane: ControlPlane) -> None:
        scheduler = plane.kubeconfig_of_user("system:kube-scheduler")
        self.sandbox.start(
            "kube-scheduler",
            [
                str(self._programs["kube-scheduler"]),
                f"--kubeconfig={scheduler}",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
            ],
        )
        plane.apply(dns.manifests())
        path = self.directory / "Corefile"
        path.write_text(dns.outside_corefile(self.kubeconfig), encoding="utf-8")
        self.sandbox.start("coredns", [str(self._programs["coredns"]), "-conf", str(path)])

    def _own_images(self) -> list[Path]:
        """Those of the cluster's own pods."""
        names = {"pause": PAUSE_IMAGE, "coredns": dns.IMAGE}
        for program, name in names.items():
            archive = self.directory / f"{program}.tar"
            write_image(self._programs[program], platform.machine(), archive, name)
        return [self.directory / f"{program}.tar" for program in names]

    def _plug_in(self, node: Node) -> None:
        """A network namespace, and a cable from it to the bridge."""
        run, name = self.sandbox.run, node.name
        run("ip", "netns", "add", name)
        run("ip", "link", "add", node.link, "netns", name, "type", "veth", "peer", "name", node.port)
        run("ip", "link", "set", node.port, "master", "br0", "up")
        run("ip", "link", "set", "lo", "up", node=name)
        run("ip", "addr", "add", f"{node.address}/24", "dev", node.link, node=name)
        run("ip", "link", "set", node.link, "up", node=name)
        run("ip", "route", "add", "default", "via", GATEWAY, node=name)
        run("sysctl", "-qw", "net.ipv4.ip_forward=1", node=name)
        run("ip", "route", "add", node.pod_range, "via", node.address)

    def _start_containerd(self, node: Node) -> None:
        self.sandbox.start(
            f"containerd-{node.name}",
            ["containerd", "-c", str(node.folder / "containerd.toml")],
            node=node.name,
        )
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            try:
                self.sandbox.run("ctr", "-a", str(node.socket), "version")
            except SandboxError as error:
                if time.monotonic() > deadline:
                    raise NodesError(f"containerd of {node.name} does not answer: {error}") from error
                time.sleep(_POLL_S)
            else:
                return

    def _start_kubelet(self, node: Node) -> None:
        labels = f"{ZONE_KEY}={node.zone}" + (f",{RACK_KEY}={node.rack}" if node.rack else "")
        kubeconfig = self.directory / f"system.node.{node.name}.kubeconfig"
        self.sandbox.start(
            f"kubelet-{node.name}",
            [
                str(self._programs["kubelet"]),
                f"--config={node.folder / 'kubelet.yaml'}",
                f"--kubeconfig={kubeconfig}",
                f"--root-dir={node.folder / 'kubelet'}",
                f"--cert-dir={node.folder / 'pki'}",
                f"--hostname-override={node.name}",
                f"--node-ip={node.address}",
                f"--node-labels={labels}",
            ],
            node=node.name,
        )
        self._start_proxy(node.name, node, inside=node.name)

    def _start_proxy(self, name: str, node: Node, *, inside: str | None = None) -> None:
        """Let Services be reached from a node; or from what runs beside the cluster, as if it ran on one."""
        words = [str(self._programs["kube-proxy"]), f"--config={node.folder / 'proxy.yaml'}"]
        self.sandbox.start(f"kube-proxy-{name}", words, node=inside)

    def _wait_for(self, node: Node) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            try:
                self.kubectl("wait", "--for=condition=Ready", "--timeout=5s", f"node/{node.name}")
            except KubectlError as error:
                if time.monotonic() > deadline:
                    raise NodesError(f"{node.name} is not ready: {error}") from error
                time.sleep(_POLL_S)
            else:
                return
