"""Who may change the nodes that a process makes in ZooKeeper.

With a user, of the digest scheme or SASL, nodes belong to that user, whom all processes of a cluster share (scheme
`auth`). A client certificate is an identity for ZooKeeper too (scheme `x509`: the certificate's subject, as RFC 2253
writes it), but bookies, operator and people usually have one each, and nodes that belonged to the subject of who made
them could be changed by nobody else. So the subjects are listed, all of them in all processes. Without a list nodes stay
open to everybody whom ZooKeeper lets in, and a warning says so.
"""

from collections.abc import Sequence

from kazoo.security import ACL, CREATOR_ALL_ACL, make_acl

from daybook.runtime.logs import get_logger

_LOG = get_logger(__name__)


def acl_of_nodes(
    *, has_user: bool, shows_certificate: bool, x509_owners: Sequence[str]
) -> tuple[ACL, ...] | None:
    """What new nodes get; None: open to all. With `x509_owners` the own subject need not be among them."""
    if has_user or x509_owners:
        return (*CREATOR_ALL_ACL, *(make_acl("x509", owner, all=True) for owner in x509_owners))
    if shows_certificate:
        _LOG.warning(
            "every client whom ZooKeeper lets in may change the nodes of this cluster: set a digest, or x509_owners to "
            "the subjects of all certificates that clients, bookies and operators show"
        )
    return None
