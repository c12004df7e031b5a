"""What lets bookies and recovery Jobs into a ZooKeeper that asks for TLS or a user: files and variables from Secrets.

Bookies and commands have the same settings under two prefixes. The operator never reads these Secrets: kubelets do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MOUNT: Final = "/etc/daybook/zookeeper-tls"
VOLUME: Final = "zookeeper-tls"
OF_BOOKIES: Final = "DAYBOOK_BOOKIE_ZOOKEEPER_"
OF_COMMANDS: Final = "DAYBOOK_ZOOKEEPER_"


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """`spec.zookeeperAccess`. Empty names: no TLS, no user."""

    tls_secret: str = ""
    shows_certificate: bool = False
    digest_secret: str = ""
    digest_key: str = "digest"
    x509_owners: tuple[str, ...] = ()

    def variables(self, prefix: str) -> list[dict[str, Any]]:
        """As a container's `env` has them; the digest is never in the manifest itself."""
        found: list[dict[str, Any]] = []
        if self.tls_secret:
            values = {"TLS": "true", "TLS_CA": f"{MOUNT}/ca.crt"}
            if self.shows_certificate:
                values |= {"TLS_CERTIFICATE": f"{MOUNT}/tls.crt", "TLS_KEY": f"{MOUNT}/tls.key"}
            if self.x509_owners:
                values["X509_OWNERS"] = json.dumps(self.x509_owners)
            found += [{"name": f"{prefix}{name}", "value": value} for name, value in values.items()]
        if self.digest_secret:
            key = {"name": self.digest_secret, "key": self.digest_key}
            found.append({"name": f"{prefix}DIGEST", "valueFrom": {"secretKeyRef": key}})
        return found

    def mounts(self) -> list[dict[str, Any]]:
        """As a container's `volumeMounts` has them."""
        return [{"name": VOLUME, "mountPath": MOUNT, "readOnly": True}] if self.tls_secret else []

    def volumes(self) -> list[dict[str, Any]]:
        """As a pod's `volumes` has them."""
        if not self.tls_secret:
            return []
        return [{"name": VOLUME, "secret": {"secretName": self.tls_secret, "defaultMode": 0o440}}]


def are_among(pool: str, own: str) -> bool:
    """Whether a pool's connect string names servers of the operator's own alone, in whatever order and under whatever path.

    Fewer are enough: an ensemble that grew has servers that its pools need not name.
    """
    named = _servers(pool)
    return bool(named) and named <= _servers(own)


def _servers(connect_string: str) -> frozenset[str]:
    return frozenset(filter(None, connect_string.partition("/")[0].split(",")))


def zookeeper_access_of(access: Mapping[str, Any]) -> ZooKeeperAccess:
    """`spec.zookeeperAccess` as the API server has it."""
    tls, digest = access.get("tls") or {}, access.get("digestSecretRef") or {}
    return ZooKeeperAccess(
        tls.get("secretName", ""),
        tls.get("clientAuth", "None") == "Required",
        digest.get("name", ""),
        digest.get("key", "digest"),
        tuple(tls.get("x509Owners") or ()),
    )
