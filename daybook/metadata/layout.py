"""The paths of all nodes, in one place, so that no two parts of Daybook write a path differently.

The digits of a ledger's id spread ledgers and their tasks over directories of at most 10,000 children (as BookKeeper's
LongHierarchicalLedgerManager does), so that every listing is far smaller than a server's largest answer.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from daybook.core.ids import BookieId, LedgerId, check_ledger_id
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BrokerId, check_broker_id

ID_DIGITS: Final = 19
"""The number of digits of the largest signed 64-bit integer."""
ID_LEVELS: Final = (3, 4, 4, 4, 4)
"""The number of digits per level of directories; the last level is the node's own name."""

_RELATIVE: Final = (".", "..")
"""Names that mean something else in a path."""

_CLUSTER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def split_id(ledger_id: LedgerId) -> str:
    """`000/0000/0000/0000/0007` for ledger 7."""
    digits = f"{check_ledger_id(ledger_id):0{ID_DIGITS}d}"
    parts = []
    for length in ID_LEVELS:
        parts.append(digits[:length])
        digits = digits[length:]
    return "/".join(parts)


def join_id(path: str) -> LedgerId:
    """The inverse of `split_id`. Raises ValueError for any other path."""
    parts = path.split("/")
    if tuple(map(len, parts)) != ID_LEVELS or not all(part.isdecimal() for part in parts):
        msg = f"{path!r} is not the path of a ledger"
        raise ValueError(msg)
    return check_ledger_id(int("".join(parts)))


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster, under `/daybook/<cluster>`. Raises ValueError for a name that no node can have."""

    cluster: str

    def __post_init__(self) -> None:
        """Check the name."""
        if not _CLUSTER.fullmatch(self.cluster):
            msg = (
                f"{self.cluster!r} is not a valid cluster name: use up to 63 letters, digits, '.', '_' or '-', "
                "with a letter or digit first and last"
            )
            raise ValueError(msg)

    @property
    def root(self) -> str:
        """The cluster's own node."""
        return f"/daybook/{self.cluster}"

    @property
    def instance(self) -> str:
        """The cluster's identity."""
        return f"{self.root}/instance"

    @property
    def idgen(self) -> str:
        """The counter of ledger ids."""
        return f"{self.root}/idgen"

    @property
    def ledgers(self) -> str:
        """The directory of ledger metadata."""
        return f"{self.root}/ledgers"

    def ledger(self, ledger_id: LedgerId) -> str:
        """The metadata of one ledger."""
        return f"{self.ledgers}/{split_id(ledger_id)}"

    @property
    def requests(self) -> str:
        """The directory of ledger creations that Kubernetes objects requested."""
        return f"{self.root}/requests"

    def request(self, uid: str) -> str:
        """The node with the ledger of the Kubernetes object `uid`."""
        return f"{self.requests}/{_name(uid)}"

    @property
    def available(self) -> str:
        """The directory of writable bookies."""
        return f"{self.root}/bookies/available"

    @property
    def read_only(self) -> str:
        """The directory of read-only bookies, which serve reads and recovery."""
        return f"{self.root}/bookies/readonly"

    def registration(self, bookie: BookieId, *, writable: bool) -> str:
        """The ephemeral node of a bookie."""
        return f"{self.available if writable else self.read_only}/{bookie}"

    @property
    def cookies(self) -> str:
        """The directory of cookies."""
        return f"{self.root}/bookies/cookies"

    def cookie(self, bookie: BookieId) -> str:
        """The cookie of a bookie, which must match its directories."""
        return f"{self.cookies}/{bookie}"

    @property
    def replacements(self) -> str:
        """The directory of authorised replacements."""
        return f"{self.root}/bookies/replace"

    def replacement(self, bookie: BookieId) -> str:
        """The authorisation to start `bookie` on empty directories (rule 29)."""
        return f"{self.replacements}/{bookie}"

    @property
    def epochs(self) -> str:
        """The directory of the epochs of bookies (rule 58)."""
        return f"{self.root}/bookies/epochs"

    def epoch(self, bookie: BookieId) -> str:
        """The epoch that the disks of `bookie` had reached."""
        return f"{self.epochs}/{bookie}"

    @property
    def claims(self) -> str:
        """The directory of claims."""
        return f"{self.root}/bookies/claims"

    def claim(self, bookie: BookieId) -> str:
        """The ephemeral node of the process that is `bookie` (rule 57)."""
        return f"{self.claims}/{bookie}"

    @property
    def topology(self) -> str:
        """Region, zone, rack and node of every bookie, one JSON object."""
        return f"{self.root}/bookies/topology"

    @property
    def under_replicated(self) -> str:
        """The directory of all nodes about repair."""
        return f"{self.root}/underreplicated"

    @property
    def tasks(self) -> str:
        """The directory of ledgers to repair."""
        return f"{self.under_replicated}/tasks"

    def task(self, ledger_id: LedgerId) -> str:
        """The repair task of one ledger."""
        return f"{self.tasks}/{split_id(ledger_id)}"

    @property
    def task_locks(self) -> str:
        """The directory of locks on ledgers under repair; it is flat, because it has one node per worker."""
        return f"{self.under_replicated}/locks"

    def task_lock(self, ledger_id: LedgerId) -> str:
        """The ephemeral node of the worker that repairs a ledger."""
        return f"{self.task_locks}/{check_ledger_id(ledger_id):0{ID_DIGITS}d}"

    @property
    def task_signal(self) -> str:
        """The node that changes with each new task."""
        return f"{self.under_replicated}/signal"

    @property
    def repair_disabled(self) -> str:
        """The node that exists while repair is switched off."""
        return f"{self.under_replicated}/disabled"

    @property
    def lost_bookie_delay(self) -> str:
        """The time for which a bookie must be unregistered before it counts as lost, if it was set."""
        return f"{self.under_replicated}/lost-bookie-delay"

    @property
    def auditor(self) -> str:
        """The election of the auditor."""
        return f"{self.root}/auditor"

    @property
    def topics(self) -> str:
        """The directory of tenants."""
        return f"{self.root}/topics"

    def tenant(self, tenant: str) -> str:
        """The directory of a tenant's namespaces."""
        return f"{self.topics}/{encode_name(tenant)}"

    def namespace(self, tenant: str, namespace: str) -> str:
        """The directory of a namespace's topics."""
        return f"{self.tenant(tenant)}/{encode_name(namespace)}"

    def topic(self, name: TopicName) -> str:
        """The list of a topic's ledgers; cursors and policy are below it."""
        return f"{self.namespace(name.tenant, name.namespace)}/{encode_name(name.local)}"

    def topic_policy(self, name: TopicName) -> str:
        """What is set for a topic."""
        return f"{self.topic(name)}/policy"

    def topic_epoch(self, name: TopicName) -> str:
        """How often a topic had another exclusive producer."""
        return f"{self.topic(name)}/epoch"

    def job_results(self, name: TopicName) -> str:
        """The directory of what jobs did for a topic; only if one ever did."""
        return f"{self.topic(name)}/jobs"

    def job_result(self, name: TopicName, job: str) -> str:
        """What a job did for a topic the last time."""
        return f"{self.job_results(name)}/{encode_name(job)}"

    def cursors(self, name: TopicName) -> str:
        """The directory of a topic's cursors."""
        return f"{self.topic(name)}/cursors"

    def cursor(self, name: TopicName, subscription: str) -> str:
        """The cursor of a subscription."""
        return f"{self.cursors(name)}/{encode_name(subscription)}"

    def partitioned_topics(self, tenant: str, namespace: str) -> str:
        """The directory of a namespace's partitioned topics; their partitions are topics."""
        return f"{self.root}/partitioned/{encode_name(tenant)}/{encode_name(namespace)}"

    def partitioned_topic(self, name: TopicName) -> str:
        """How many partitions a topic has."""
        return f"{self.partitioned_topics(name.tenant, name.namespace)}/{encode_name(name.local)}"

    @property
    def manifests(self) -> str:
        """The directory of what jobs wrote."""
        return f"{self.root}/manifests"

    def manifest(self, name: str) -> str:
        """The list of the ledgers that the jobs of one name wrote."""
        return f"{self.manifests}/{encode_name(name)}"

    @property
    def brokers(self) -> str:
        """The directory of registered brokers."""
        return f"{self.root}/brokers"

    def broker(self, broker: BrokerId) -> str:
        """The ephemeral node of a broker."""
        return f"{self.brokers}/{check_broker_id(broker)}"

    @property
    def broker_leader(self) -> str:
        """The election of the broker that assigns bundles."""
        return f"{self.root}/leader"

    def bundles(self, tenant: str, namespace: str) -> str:
        """The directory of the bundles of a namespace that have an owner."""
        return f"{self._bundles}/{encode_name(tenant)}/{encode_name(namespace)}"

    def bundle(self, bundle: Bundle) -> str:
        """The ephemeral node of a bundle's owner."""
        return f"{self.bundles(bundle.tenant, bundle.namespace)}/{bundle.range}"

    def orders(self, broker: BrokerId) -> str:
        """The directory of what the leader and other brokers ask a broker to do."""
        return f"{self._orders}/{check_broker_id(broker)}"

    @property
    def _bundles(self) -> str:
        return f"{self.root}/bundles"

    @property
    def _orders(self) -> str:
        return f"{self.root}/orders"

    def order(self, broker: BrokerId, bundle: Bundle) -> str:
        """What a broker is to do with a bundle."""
        return f"{self.orders(broker)}/{encode_name(str(bundle))}"

    @property
    def collection_hold(self) -> str:
        """The node that holds the collection of ledgers after a restore (rule 68)."""
        return f"{self.root}/collection-hold"

    @property
    def passing(self) -> tuple[str, ...]:
        """What a backup leaves out: directories whose nodes end with a session, or permit something once (rule 29), and the hold."""
        return (
            self.available,
            self.read_only,
            self.claims,
            self.replacements,
            self.task_locks,
            self.auditor,
            self.brokers,
            self.broker_leader,
            self._bundles,
            self._orders,
            self.collection_hold,
        )

    def is_leaf(self, path: str) -> bool:
        """Whether `path` is a ledger or a repair task, which have no children: by far the most nodes."""
        return any(
            path.startswith(f"{directory}/") and path.count("/") - directory.count("/") == len(ID_LEVELS)
            for directory in (self.ledgers, self.tasks)
        )

    def directories(self) -> tuple[str, ...]:
        """Every directory that a formatted cluster has."""
        return (
            self.ledgers,
            self.requests,
            self.available,
            self.read_only,
            self.cookies,
            self.replacements,
            self.claims,
            self.epochs,
            self.tasks,
            self.task_locks,
            self.auditor,
            self.topics,
            self.brokers,
        )


def encode_name(name: str) -> str:
    """A name of any characters as the name of a node: percent-encoded UTF-8. Different names have different nodes."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E") if encoded in _RELATIVE else encoded


def decode_name(node: str) -> str:
    """The inverse of `encode_name`. Raises ValueError for a node that it never makes."""
    name = unquote(node, errors="strict")
    if not node or encode_name(name) != node:
        msg = f"{node!r} is not the node of a name"
        raise ValueError(msg)
    return name


def _name(name: str) -> str:
    if not _CLUSTER.fullmatch(name):
        msg = f"{name!r} is not a valid node name: use letters, digits, '.', '_' or '-'"
        raise ValueError(msg)
    return name
