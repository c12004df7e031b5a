"""What kubelets, the scheduler and a volume provisioner would do, by hand: a control plane alone has none of them.

Each method of `PretendNodes` is one act of theirs and returns once the API server has it. `PretendKubelets` does the
usual ones by itself, from a watch, for tests that are not about them.
"""

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import urllib3
from kubernetes import client, watch

Pod: TypeAlias = Any
"""A V1Pod: the package `kubernetes` has no types."""

ZONE_KEY: Final = "topology.kubernetes.io/zone"
RACK_KEY: Final = "topology.daybook.dev/rack"
_WATCH_SECONDS: Final = 2
_RETRY_S: Final = 0.2
_GONE: Final = 404
_CONFLICT: Final = 409
_TRY_AGAIN: Final = {410, 429, 500, 503}
"""What a watch ends with that is too old, and what an API server says that starts or is busy."""


class PretendNodes:
    """Nodes that are only objects, and acts upon pods and claims."""

    def __init__(self, api: client.ApiClient) -> None:
        """Act through `api`, which must be an administrator's."""
        self.core = client.CoreV1Api(api)
        self.storage = client.StorageV1Api(api)
        self._created: list[str] = []
        self._volumes: list[str] = []
        self._classes: list[str] = []
        self._addresses = count(1)

    # ---------------------------------------------------------------------------------------------------- nodes

    def create_node(
        self,
        name: str,
        *,
        zone: str | None = None,
        rack: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """A node that is ready, with the labels of a zone and a rack if they are given."""
        known = {ZONE_KEY: zone, RACK_KEY: rack, "kubernetes.io/hostname": name}
        wanted = {key: value for key, value in known.items() if value is not None} | dict(labels or {})
        self.core.create_node({"metadata": {"name": name, "labels": wanted}})
        self._created.append(name)
        self.set_node_ready(name, ready=True)
        self.core.patch_node(name, {"spec": {"taints": None}})  # it is created with one for "not ready"

    def set_node_ready(self, name: str, *, ready: bool) -> None:
        """What a kubelet reports, or the node controller once it no longer does."""
        size = {"cpu": "8", "memory": "32Gi", "pods": "100"}
        condition = {
            "type": "Ready",
            "status": "True" if ready else "Unknown",
            "reason": "KubeletReady" if ready else "NodeStatusUnknown",
            "message": "",
            "lastTransitionTime": _now(),
            "lastHeartbeatTime": _now(),
        }
        status = {"conditions": [condition], "capacity": size, "allocatable": size}
        self.core.patch_node_status(name, {"status": status})

    def label_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Change labels; None takes one away."""
        self.core.patch_node(name, {"metadata": {"labels": dict(labels)}})

    def delete_node(self, name: str) -> None:
        """The machine is gone for good."""
        self.core.delete_node(name)
        self._created.remove(name)

    def clean_up(self) -> None:
        """Delete what is left and is the cluster's, not a namespace's: nodes, volumes, storage classes."""
        for name in list(self._created):
            self.delete_node(name)
        for name in self._volumes:
            self.core.delete_persistent_volume(name)
        for name in self._classes:
            self.storage.delete_storage_class(name)

    # ----------------------------------------------------------------------------------------------------- pods

    def bind(self, namespace: str, pod: str, node: str) -> None:
        """The scheduler gives a pod to a node."""
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        # the client reads the answer, a Status, as a Binding, which it is not
        self.core.create_namespaced_pod_binding(pod, namespace, body, _preload_content=False)

    def run(self, namespace: str, pod: str, *, ready: bool = True) -> None:
        """The kubelet has started the pod's containers, and their probes succeed or do not yet."""
        read = self.core.read_namespaced_pod(pod, namespace)
        statuses = [
            _container(each.name, each.image, ready=ready, state={"running": {"startedAt": _now()}})
            for each in read.spec.containers
        ]
        number = next(self._addresses)
        address = read.status.pod_ip or f"10.244.{number // 250}.{number % 250 + 1}"
        self._set_status(
            namespace,
            pod,
            "Running",
            statuses,
            ready=ready,
            podIP=address,
            podIPs=[{"ip": address}],
            startTime=_now(),
        )

    def crash(
        self, namespace: str, pod: str, *, exit_code: int, message: str = "", restarts: int = 1
    ) -> None:
        """The pod's containers ended and wait to be started again."""
        self._end(namespace, pod, "Running", exit_code, message, restarts=restarts, waits=True)

    def finish(self, namespace: str, pod: str, *, exit_code: int = 0, message: str = "") -> None:
        """The pod's containers ended for good, as those of a Job do."""
        phase = "Failed" if exit_code else "Succeeded"
        self._end(namespace, pod, phase, exit_code, message, restarts=0, waits=False)

    def bury(self, namespace: str, pod: str) -> None:
        """The kubelet has stopped a pod that was deleted, and lets the API server forget it."""
        try:
            self.core.delete_namespaced_pod(pod, namespace, grace_period_seconds=0)
        except client.ApiException as error:
            if error.status != _GONE:
                raise

    # --------------------------------------------------------------------------------------------------- volumes

    def create_storage_class(self, name: str, *, can_grow: bool = True) -> None:
        """A class whose volumes nobody provisions but `bind_claim`."""
        body = {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": can_grow,
        }
        self.storage.create_storage_class(body)
        self._classes.append(name)

    def bind_claim(self, namespace: str, claim: str) -> None:
        """A provisioner makes a volume for a claim; the controllers bind them."""
        read = self.core.read_namespaced_persistent_volume_claim(claim, namespace)
        volume = {
            "metadata": {"name": f"{namespace}-{claim}"},
            "spec": {
                "capacity": {"storage": read.spec.resources.requests["storage"]},
                "accessModes": read.spec.access_modes,
                "storageClassName": read.spec.storage_class_name or "",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": claim, "uid": read.metadata.uid},
                "hostPath": {"path": "/nowhere"},
            },
        }
        self.core.create_persistent_volume(volume)
        self._volumes.append(f"{namespace}-{claim}")

    def grow_volume(self, namespace: str, claim: str) -> None:
        """A volume has grown to what its claim asks for, file system and all."""
        read = self.core.read_namespaced_persistent_volume_claim(claim, namespace)
        size = {"storage": read.spec.resources.requests["storage"]}
        self.core.patch_persistent_volume(read.spec.volume_name, {"spec": {"capacity": size}})
        status = {"capacity": size, "conditions": []}
        self.core.patch_namespaced_persistent_volume_claim_status(claim, namespace, {"status": status})

    # --------------------------------------------------------------------------------------------------- helpers

    def _end(
        self,
        namespace: str,
        pod: str,
        phase: str,
        exit_code: int,
        message: str,
        *,
        restarts: int,
        waits: bool,
    ) -> None:
        containers = self.core.read_namespaced_pod(pod, namespace).spec.containers
        terminated = {
            "exitCode": exit_code,
            "message": message,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": _now(),
            "finishedAt": _now(),
        }
        state = (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": terminated}}
            if waits
            else {"state": {"terminated": terminated}}
        )
        statuses = [
            {**_container(each.name, each.image, ready=False, state={}), "restartCount": restarts, **state}
            for each in containers
        ]
        self._set_status(namespace, pod, phase, statuses, ready=False)

    def _set_status(
        self, namespace: str, pod: str, phase: str, statuses: list[Any], *, ready: bool, **more: Any
    ) -> None:
        conditions = [
            {"type": kind, "status": "True" if is_true else "False", "lastTransitionTime": _now()}
            for kind, is_true in (
                ("PodScheduled", True),
                ("Initialized", True),
                ("ContainersReady", ready),
                ("Ready", ready),
            )
        ]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses, **more}
        self.core.patch_namespaced_pod_status(pod, namespace, {"status": status})


class PretendKubelets:
    """Binds, runs and buries the pods of a namespace as they come and go, while it is entered.

    `decides` may hold a pod back: it is asked again whenever the pod changes, and every two seconds. Pods of a Job are
    run, never finished: the test does that.
    """

    def __init__(
        self, nodes: PretendNodes, namespace: str, *, decides: Callable[[Pod], bool] | None = None
    ) -> None:
        """Work on `namespace` with the nodes that there are."""
        self._nodes = nodes
        self._namespace = namespace
        self._decides = decides or (lambda _pod: True)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pretend-kubelets", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and raise what went wrong meanwhile."""
        self._stopping.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                for event in watch.Watch().stream(
                    self._nodes.core.list_namespaced_pod, self._namespace, timeout_seconds=_WATCH_SECONDS
                ):
                    if event["type"] in {"ADDED", "MODIFIED"} and not self._stopping.is_set():
                        self._attend(event["object"])
            except urllib3.exceptions.HTTPError:
                self._stopping.wait(_RETRY_S)  # the API server is away: a test may restart it
            except client.ApiException as error:
                if error.status not in _TRY_AGAIN:
                    self._error = error
                    return
                self._stopping.wait(_RETRY_S)

    def _attend(self, pod: Pod) -> None:
        name = pod.metadata.name
        try:
            if pod.metadata.deletion_timestamp is not None:
                self._nodes.bury(self._namespace, name)
            elif pod.spec.node_name is None and self._decides(pod):
                self._nodes.bind(self._namespace, name, self._emptiest())
            elif pod.spec.node_name is not None and pod.status.phase == "Pending" and self._decides(pod):
                self._nodes.run(self._namespace, name)
        except client.ApiException as error:
            if error.status not in {
                _GONE,
                409,
            }:  # gone, or bound by somebody else: the watch says what is true
                raise

    def _emptiest(self) -> str:
        """The node with the fewest pods of the namespace."""
        pods = self._nodes.core.list_namespaced_pod(self._namespace).items
        names: list[str] = [node.metadata.name for node in self._nodes.core.list_node().items]
        return min(names, key=lambda name: (sum(pod.spec.node_name == name for pod in pods), name))


def _container(name: str, image: str, *, ready: bool, state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imageID": f"{image}@here",
        "ready": ready,
        "started": True,
        "restartCount": 0,
        "state": dict(state),
    }


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
