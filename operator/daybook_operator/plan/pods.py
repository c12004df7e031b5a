"""What the pods of bookies, of recovery Jobs and of Spark share: labels, owner, account, the restricted security profile, TLS.

Bookies and recovery Jobs run the bookie image under an account that has no right to the API server.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from daybook_operator.plan.effects import Manifest
from daybook_operator.plan.names import API_VERSION, MANAGED_BY, POOL_LABEL

Component = Literal["bookie", "recovery", "spark"]
"""What a pod of a pool is, by its label; of bookies and of recovery Jobs the container's name, too."""
BOOKIE: Final[Component] = "bookie"
RECOVERY: Final[Component] = "recovery"
SPARK: Final[Component] = "spark"
USER_ID: Final = 65532
TLS_MOUNT: Final = "/etc/daybook/tls"
_TLS_VOLUME: Final = "tls"


def labels_of(pool: Manifest, component: Component) -> dict[str, str]:
    """The labels of what belongs to the pool."""
    name = pool["metadata"]["name"]
    return {
        "app.kubernetes.io/name": "daybook",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        POOL_LABEL: name,
    }


def metadata_of(pool: Manifest, component: Component, name: str, extra: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of an object that the API server deletes with its pool; `extra` are more labels."""
    meta = pool["metadata"]
    owner = {
        "apiVersion": API_VERSION,
        "kind": "BookiePool",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {**labels_of(pool, component), **extra},
        "ownerReferences": [owner],
    }


def account_name(pool: Manifest, component: Component) -> str:
    """The ServiceAccount that the pods run as."""
    return f"{pool['metadata']['name']}-{component}"


def service_account(pool: Manifest, component: Component) -> dict[str, Any]:
    """The pods' identity. It has no rights, and its token is not mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata_of(pool, component, account_name(pool, component), {}),
        "automountServiceAccountToken": False,
    }


def pod_identity(pool: Manifest, component: Component) -> dict[str, Any]:
    """The fields of a pod's spec that give it its account and nothing of the API server."""
    return {
        "serviceAccountName": account_name(pool, component),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


def of_the_pod(name: str, path: str) -> dict[str, Any]:
    """A variable that has a field of the container's own pod, by the downward API."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def pod_dns() -> dict[str, Any]:
    """The field of a pod's spec that has it give a DNS server up after two seconds, not ten, and ask again: the chart has it as well.

    A query and its retries go to one server. If its node has died, and Kubernetes does not know it yet, only another query may meet another.
    """
    options = {"timeout": "1", "attempts": "2"}
    return {"dnsConfig": {"options": [{"name": name, "value": value} for name, value in options.items()]}}


def pod_security() -> dict[str, Any]:
    """A pod's securityContext, as the restricted profile asks."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> dict[str, Any]:
    """A container's securityContext, as the restricted profile asks."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def tls_files(*, with_certificate: bool, with_ca: bool) -> dict[str, str]:
    """The settings that name files of the TLS Secret, without their prefix."""
    files = {"TLS_CERTIFICATE": "tls.crt", "TLS_KEY": "tls.key"} if with_certificate else {}
    if with_ca:
        files["TLS_CA"] = "ca.crt"
    return {name: f"{TLS_MOUNT}/{file}" for name, file in files.items()}


def tls_mount() -> dict[str, Any]:
    """As a container's `volumeMounts` has it."""
    return {"name": _TLS_VOLUME, "mountPath": TLS_MOUNT, "readOnly": True}


def tls_volume(secret_name: str, **mode: int) -> dict[str, Any]:
    """As a pod's `volumes` has it; `defaultMode` where the files are to have another."""
    return {"name": _TLS_VOLUME, "secret": {"secretName": secret_name, **mode}}


def with_set(pod: Mapping[str, Any], optional: Mapping[str, Any]) -> dict[str, Any]:
    """`pod` with those optional fields that say something."""
    return {**pod, **{name: value for name, value in optional.items() if value}}
