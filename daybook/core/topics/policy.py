"""What is set for a topic, a namespace or a broker, what holds where several are set, and what it means for a ledger.

A topic's setting counts before its namespace's, and that before the broker's default; each value on its own. A value that is not set
is None.

*Durability* says how many copies an entry has when it is acknowledged: Qa is all of Qw (`sync`), all but one (`semi-sync`) or one
(`async`). *Degrade* says what happens while bookies are missing: `never` refuses writes, `to-ack-quorum` continues with fewer copies,
never with fewer than Qa (rule 45). `sync` acknowledges with all copies, so it cannot continue with fewer; and `semi-sync` of one copy
would acknowledge with none. Policies are checked when they are set, and contradict each other all the same where a namespace's or a broker's changes later: the
owner then serves the topic with more copies than were asked for, never with fewer (`applied`). A *pool* names the bookies that alone hold the topic's new ledgers and those of its cursors (rule 69). What jobs do for a topic and when is
its own alone: no namespace says it (`job_terms`). An ack quorum that is less than half of Qw causes a warning (rule 8).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from daybook.core.errors import PolicyError, QuorumError
from daybook.core.ids import MAX_ID, BookieId, check_integer, check_pool, pool_of
from daybook.core.quorum import Quorum, check_quorum
from daybook.core.topics.job_terms import CompactionTerms, OffloadTerms
from daybook.core.topics.manager import Manager
from daybook.core.topics.permissions import Permissions, check_permissions, permissions_of, permissions_record
from daybook.core.topics.trimming import Retention
from daybook.core.writer.policy import quorum_warning

FORMAT_VERSION: Final = 1
UNLIMITED: Final = -1
"""Of a retention and of a quota."""


class Durability(Enum):
    """How many of Qw copies are there when an entry is acknowledged."""

    SYNC = "sync"
    SEMI_SYNC = "semi-sync"
    ASYNC = "async"

    def ack_quorum(self, write_quorum: int) -> int:
        """Qa."""
        return {Durability.SYNC: write_quorum, Durability.SEMI_SYNC: write_quorum - 1}.get(self, 1)


class Degrade(Enum):
    """What a writer does while there are not enough bookies for all copies."""

    NEVER = "never"
    TO_ACK_QUORUM = "to-ack-quorum"


class BacklogAction(Enum):
    """What happens to a topic whose backlog is over its quota; the names are Pulsar's."""

    HOLD = "producer_request_hold"
    EXCEPTION = "producer_exception"
    EVICT = "consumer_backlog_eviction"


@dataclass(frozen=True, slots=True)
class PolicyLayer:
    """What is set at one place: of a topic, of its namespace. Raises PolicyError for a value that is wrong in itself."""

    durability: Durability | None = None
    degrade: Degrade | None = None
    ensemble_size: int | None = None
    write_quorum: int | None = None
    retention_ms: int | None = None
    """How long what every subscription has passed is kept; 0: not at all, −1: for ever."""
    retention_bytes: int | None = None
    """And how much of it; −1: any amount."""
    ttl_ms: int | None = None
    """After this time a message counts as acknowledged; 0: never."""
    backlog_bytes: int | None = None
    """The quota of a topic's backlog; −1: none."""
    backlog_ms: int | None = None
    """The quota as the age of the oldest message that is not acknowledged; −1: none."""
    backlog_action: BacklogAction | None = None
    inactive_ms: int | None = None
    """A topic without clients and subscriptions, of whose messages the retention keeps none, is deleted after this time; 0: never."""
    pool: str | None = None
    """The pool whose bookies alone hold what is written from now on; "": any bookies, whatever the namespace says."""
    permissions: Permissions = field(default_factory=dict)
    """Of a namespace: what roles may do with its topics."""
    managed_by: Manager | None = None
    """Of a topic: the resource that alone changes what is set here."""
    compaction: CompactionTerms | None = None
    """Of a topic: when jobs compact it; None: only by request."""
    offload: OffloadTerms | None = None
    """Of a topic: when and to where jobs offload its closed ledgers; None: never."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a later release, which are written back."""

    def __post_init__(self) -> None:
        """Check the bounds of each number, and of the permissions."""
        check_permissions(self.permissions)
        for name, minimum in _MINIMA.items():
            value = getattr(self, name)
            if value is not None:
                _check_bounds(name, value, minimum)
        _check_pool(self.pool)

    @property
    def known(self) -> dict[str, Any]:
        """The values that are set, by the names of the fields."""
        found = {name: getattr(self, name) for name in _NAMES}
        return {name: value for name, value in found.items() if value is not None}

    def to_record(self) -> dict[str, Any]:
        """The stored form; unknown fields that were read are written back."""
        known = {
            _stored(name): value.value if isinstance(value, Enum) else value
            for name, value in self.known.items()
        }
        if self.permissions:
            known[_PERMISSIONS] = permissions_record(self.permissions)
        if self.managed_by is not None:
            known[_MANAGED_BY] = self.managed_by.to_record()
        if self.compaction is not None:
            known[_COMPACTION] = self.compaction.to_record()
        if self.offload is not None:
            known[_OFFLOAD] = self.offload.to_record()
        return {**self.unknown_fields, "formatVersion": FORMAT_VERSION, **known}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a stored record; an empty one sets nothing. Raises PolicyError for a value that cannot be one."""
        rest = dict(record)
        version = rest.pop("formatVersion", FORMAT_VERSION)
        if version != FORMAT_VERSION:
            msg = f"a policy has format {version!r}, this release reads {FORMAT_VERSION}: upgrade it first"
            raise PolicyError(msg)
        values: dict[str, Any] = {}
        for name in _NAMES:
            value = rest.pop(_stored(name), None)
            if value is not None:
                values[name] = _checked(name, value)
        permissions = permissions_of(rest.pop(_PERMISSIONS, {}))
        manager = rest.pop(_MANAGED_BY, None)
        compaction, offload = rest.pop(_COMPACTION, None), rest.pop(_OFFLOAD, None)
        return cls(
            **values,
            permissions=permissions,
            managed_by=None if manager is None else Manager.from_record(manager),
            compaction=None if compaction is None else CompactionTerms.from_record(compaction),
            offload=None if offload is None else OffloadTerms.from_record(offload),
            unknown_fields=rest,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for a topic. The defaults are the broker's unless its settings have others, and mostly Pulsar's."""

    durability: Durability = Durability.SEMI_SYNC
    degrade: Degrade = Degrade.TO_ACK_QUORUM
    ensemble_size: int = 3
    write_quorum: int = 3
    retention_ms: int = 0
    retention_bytes: int = 0
    ttl_ms: int = 0
    backlog_bytes: int = UNLIMITED
    backlog_ms: int = UNLIMITED
    backlog_action: BacklogAction = BacklogAction.HOLD
    inactive_ms: int = 0
    pool: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot hold together. Raises PolicyError."""
        _check_pool(self.pool)
        try:
            check_quorum(self.ensemble_size, self.write_quorum, 1)
        except QuorumError as error:
            raise PolicyError(str(error)) from error
        if self.durability is Durability.SYNC and self.degrade is Degrade.TO_ACK_QUORUM:
            msg = (
                "durability=sync acknowledges with every copy, so it cannot continue with fewer: "
                "set degrade=never, or durability=semi-sync"
            )
            raise PolicyError(msg)
        if self.durability is Durability.SEMI_SYNC and self.write_quorum == 1:
            msg = "durability=semi-sync with writeQuorum=1 would acknowledge without any copy: set writeQuorum=2 or more, or durability=sync"
            raise PolicyError(msg)

    @property
    def quorum(self) -> Quorum:
        """E, Qw and Qa while all bookies are there."""
        ack_quorum = self.durability.ack_quorum(self.write_quorum)
        return check_quorum(self.ensemble_size, self.write_quorum, ack_quorum)

    @property
    def warning(self) -> str | None:
        """Why the policy is weak, in words; None if it is not (rule 8)."""
        return quorum_warning(self.quorum)

    @property
    def retention(self) -> Retention:
        """The retention, for `trimming`. A time without a size keeps any amount for that time, and a size without a time keeps that size for any time."""
        limits = (self.retention_ms, self.retention_bytes)
        if limits == (0, 0):
            return Retention()
        time_ms, size_bytes = (None if limit == UNLIMITED else limit for limit in limits)
        return Retention(time_ms or None, size_bytes or None)


def merged(default: Policy, *layers: PolicyLayer) -> Policy:
    """What holds where `layers` are set over the broker's `default`, the least important one first. Raises PolicyError."""
    return Policy(**_together(default, layers))


class Applied(NamedTuple):
    """What an owner serves a topic with."""

    policy: Policy
    contradiction: str = ""
    """Why that is not what is set, in words; empty if it is."""


def applied(default: Policy, *layers: PolicyLayer) -> Applied:
    """As `merged`, but of values that contradict each other the one with more copies holds: a topic is served whatever its brokers' settings are.

    E rises to Qw, a single copy is acknowledged as `sync`, and `sync` never degrades. Raises PolicyError for a value that is wrong in itself.
    """
    values = _together(default, layers)
    try:
        return Applied(Policy(**values))
    except PolicyError as error:
        contradiction = str(error)
    values["ensemble_size"] = max(values["ensemble_size"], values["write_quorum"])
    if values["write_quorum"] == 1 and values["durability"] is Durability.SEMI_SYNC:
        values["durability"] = Durability.SYNC
    if values["durability"] is Durability.SYNC:
        values["degrade"] = Degrade.NEVER
    return Applied(Policy(**values), contradiction)


def _together(default: Policy, layers: Iterable[PolicyLayer]) -> dict[str, Any]:
    values = {name: getattr(default, name) for name in _NAMES}
    for layer in layers:
        values.update(layer.known)
    return values


class LedgerTerms(NamedTuple):
    """How a ledger of a topic is created."""

    quorum: Quorum
    go_on_without_spare: bool
    """As `WriterPolicy.go_on_without_spare` (rule 45)."""
    is_degraded: bool
    """Whether it has fewer copies than the policy says: the topic begins another ledger once more bookies are there."""
    pool: str = ""
    """The pool that the ledger stays in (rule 69); "": any bookies."""
    durability: Durability = Durability.SEMI_SYNC
    """What the quorums come from: those of small ensembles do not say it."""

    @property
    def degrade(self) -> Degrade:
        """Whether the ensemble may shrink."""
        return Degrade.TO_ACK_QUORUM if self.go_on_without_spare else Degrade.NEVER


def ledger_terms(policy: Policy, writable: Iterable[BookieId]) -> LedgerTerms:
    """How the topic's next ledger is created while the bookies `writable` take writes, of which only the pool's count.

    Where the policy allows, E and Qw shrink to the bookies that are there, never below Qa: with fewer, the creation fails.
    """
    whole, pool = policy.quorum, policy.pool
    terms = LedgerTerms(
        whole, go_on_without_spare=False, is_degraded=False, pool=pool, durability=policy.durability
    )
    if policy.degrade is Degrade.NEVER:
        return terms
    available = sum(1 for bookie in writable if not pool or pool_of(bookie) == pool)
    ensemble_size = min(whole.ensemble_size, max(available, whole.ack_quorum))
    write_quorum = min(whole.write_quorum, ensemble_size)
    quorum = check_quorum(ensemble_size, write_quorum, whole.ack_quorum)
    return terms._replace(quorum=quorum, go_on_without_spare=True, is_degraded=quorum != whole)


def placeable(terms: LedgerTerms, can_place: Callable[[Quorum], bool]) -> LedgerTerms:
    """These terms with as many bookies as can be placed: of bookies that share a node, an entry has a replica on one alone (rule 45).

    E and Qw shrink where the policy allows, never below Qa: if even that cannot be placed, the creation fails and says what is missing.
    """
    while terms.go_on_without_spare and not can_place(terms.quorum):
        ensemble_size, write_quorum, ack_quorum = terms.quorum
        if ensemble_size == ack_quorum:
            break
        quorum = check_quorum(ensemble_size - 1, min(write_quorum, ensemble_size - 1), ack_quorum)
        terms = terms._replace(quorum=quorum, is_degraded=True)
    return terms


_PERMISSIONS: Final = "permissions"
_MANAGED_BY: Final = "managedBy"
_COMPACTION: Final = "compaction"
_OFFLOAD: Final = "offload"
_NAMES: Final = tuple(each.name for each in fields(Policy))
_ENUMS: Final[Mapping[str, type[Enum]]] = {
    "durability": Durability,
    "degrade": Degrade,
    "backlog_action": BacklogAction,
}
_MINIMA: Final = {
    "ensemble_size": 1,
    "write_quorum": 1,
    "retention_ms": UNLIMITED,
    "retention_bytes": UNLIMITED,
    "ttl_ms": 0,
    "backlog_bytes": UNLIMITED,
    "backlog_ms": UNLIMITED,
    "inactive_ms": 0,
}
_UNLIMITED_MEANS: Final = {UNLIMITED: ", which means no limit"}


def _stored(name: str) -> str:
    """The name of a field in the stored form."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _check_bounds(name: str, value: int, minimum: int) -> None:
    """Raise PolicyError for a number that cannot hold, and for one that could be stored and not be read again."""
    if abs(value) > MAX_ID:
        msg = f"{_stored(name)} has more than 64 bits: use at most {MAX_ID}"
        raise PolicyError(msg)
    if value < minimum:
        msg = f"{_stored(name)}={value}: at least {minimum} is needed" + _UNLIMITED_MEANS.get(minimum, "")
        raise PolicyError(msg)


def _checked(name: str, value: object) -> object:
    """A value of a stored record. Raises PolicyError."""
    enum = _ENUMS.get(name)
    allowed = "a whole number"
    try:
        if name == "pool":
            allowed = "the name of a pool"
            return _text(value)
        if enum is not None:
            allowed = " or ".join(str(each.value) for each in enum)
            return enum(value)
        return check_integer(value)
    except (TypeError, ValueError) as error:
        msg = f"{_stored(name)}={str(value)[:100]!r} is not possible: use {allowed}"
        raise PolicyError(msg) from error


def _check_pool(pool: str | None) -> None:
    """Raise PolicyError for what cannot name a pool."""
    if pool:
        try:
            check_pool(pool)
        except ValueError as error:
            msg = f"pool={error}"
            raise PolicyError(msg) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} is no text"
        raise TypeError(msg)
    return value
