"""The access rights of the nodes that a process creates in ZooKeeper.

With a user, of the digest scheme or SASL, nodes belong to that user, which all processes of a cluster share (scheme
`auth`). A client certificate is an identity for ZooKeeper too (scheme `x509`: the certificate's subject in the form of
RFC 2253). But bookies, operator and people usually have different certificates, and if a node belonged to its creator's
subject alone, no other process could change it. So the settings list the subjects of all certificates, equally in all
processes. Without a list every client that ZooKeeper admits may change the nodes, and the process logs a warning.
"""

from collections.abc import Sequence

from kazoo.security import ACL, CREATOR_ALL_ACL, make_acl

from daybook.runtime.logs import get_logger

_LOG = get_logger(__name__)


def acl_of_nodes(
    *, has_user: bool, shows_certificate: bool, x509_owners: Sequence[str]
) -> tuple[ACL, ...] | None:
    """The access rights of new nodes; None: open to all. `x509_owners` need not contain the process's own subject."""
    if has_user or x509_owners:
        return (*CREATOR_ALL_ACL, *(make_acl("x509", owner, all=True) for owner in x509_owners))
    if shows_certificate:
        _LOG.warning(
            "every client that ZooKeeper admits may change the nodes of this cluster: set a digest, or x509_owners to "
            "the subjects of all certificates of clients, bookies and operators"
        )
    return None
