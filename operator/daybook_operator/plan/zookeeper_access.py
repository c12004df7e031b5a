"""What lets bookies and recovery Jobs into a ZooKeeper that asks for TLS or a user: files and variables from Secrets.

Bookies and commands have the same settings under two prefixes. The operator never reads these Secrets: kubelets do.
"""

import json
from typing import Any, Final, Literal

from daybook_operator.plan.spec_part import SpecPart

MOUNT: Final = "/etc/daybook/zookeeper-tls"
VOLUME: Final = "zookeeper-tls"
OF_BOOKIES: Final = "DAYBOOK_BOOKIE_ZOOKEEPER_"
OF_COMMANDS: Final = "DAYBOOK_ZOOKEEPER_"


class ZooKeeperTls(SpecPart):
    """`zookeeperAccess.tls`: the Secret, and whether its certificate is shown to the servers."""

    secret_name: str
    client_auth: Literal["None", "Required"] = "None"
    x509_owners: tuple[str, ...] = ()


class DigestSecretRef(SpecPart):
    """`zookeeperAccess.digestSecretRef`: where `user:password` is."""

    name: str
    key: str = "digest"


class ZooKeeperAccess(SpecPart):
    """`spec.zookeeperAccess`; None: no TLS, no user."""

    tls: ZooKeeperTls | None = None
    digest_secret_ref: DigestSecretRef | None = None

    def variables(self, prefix: str) -> list[dict[str, Any]]:
        """As a container's `env` has them; the digest is never in the manifest itself."""
        found: list[dict[str, Any]] = []
        if self.tls is not None:
            values = {"TLS": "true", "TLS_CA": f"{MOUNT}/ca.crt"}
            if self.tls.client_auth == "Required":
                values |= {"TLS_CERTIFICATE": f"{MOUNT}/tls.crt", "TLS_KEY": f"{MOUNT}/tls.key"}
            if self.tls.x509_owners:
                values["X509_OWNERS"] = json.dumps(self.tls.x509_owners)
            found += [{"name": f"{prefix}{name}", "value": value} for name, value in values.items()]
        if self.digest_secret_ref is not None:
            key = self.digest_secret_ref.model_dump()
            found.append({"name": f"{prefix}DIGEST", "valueFrom": {"secretKeyRef": key}})
        return found

    def mounts(self) -> list[dict[str, Any]]:
        """As a container's `volumeMounts` has them."""
        return [] if self.tls is None else [{"name": VOLUME, "mountPath": MOUNT, "readOnly": True}]

    def volumes(self) -> list[dict[str, Any]]:
        """As a pod's `volumes` has them."""
        if self.tls is None:
            return []
        return [{"name": VOLUME, "secret": {"secretName": self.tls.secret_name, "defaultMode": 0o440}}]


def are_among(pool: str, own: str) -> bool:
    """Whether a pool's connect string names only servers of the operator's own, in any order and under any path.

    Fewer are enough: an ensemble that grew has servers that its pools need not name.
    """
    named = _servers(pool)
    return bool(named) and named <= _servers(own)


def _servers(connect_string: str) -> frozenset[str]:
    return frozenset(filter(None, connect_string.partition("/")[0].split(",")))
