"""What a broker answers when a client asks who owns a topic.

A broker that finds no owner sends the client to the leader, the leader chooses a broker by load and sends the client there with the
word that it is chosen (`authoritative`), and the chosen broker takes the lease. So nobody but the chosen one tries to, and no broker
must reach another one.

A client whose lookup fails waits for longer and longer. So where the answer will be another in a moment, the broker holds the lookup:
the owner does not answer although its lease is there, the leader is being elected, a bundle is on its way, or this broker's own session
may have ended (rule 46): then another may own the topic already.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from daybook.core.topics.ownership.load import BrokerId


class BundleOwner(NamedTuple):
    """What the metadata says of a bundle: who has its lease."""

    broker: BrokerId
    released: bool = False
    """Whether the owner has stopped and given it up: anybody may take the lease over."""
    to: BrokerId = ""
    """For whom it was released, if the owner named one."""


class Holding(Enum):
    """What this broker does with a bundle."""

    NOTHING = "it has no lease"
    OWNED = "it has the lease"
    LEAVING = "it has the lease, and is about to release it"


@dataclass(frozen=True, slots=True)
class LookupFacts:
    """All that an answer depends on."""

    me: BrokerId
    is_certain: bool
    """Whether this broker's session certainly lives (rule 46)."""
    holding: Holding
    owner: BundleOwner | None
    """None: nobody has the lease."""
    leader: BrokerId | None
    answering: AbstractSet[BrokerId]
    """The registered brokers, without those that do not answer."""
    authoritative: bool
    """Whether the client says that the leader chose this broker."""


@dataclass(frozen=True, slots=True)
class Mine:
    """This broker owns the topic."""


@dataclass(frozen=True, slots=True)
class Take:
    """This broker is to take the lease."""


@dataclass(frozen=True, slots=True)
class Choose:
    """This broker is the leader, and is to choose."""


@dataclass(frozen=True, slots=True)
class AtOwner:
    """`broker` owns the topic."""

    broker: BrokerId


@dataclass(frozen=True, slots=True)
class Ask:
    """The client is to ask `broker`: the one that is chosen if `authoritative`, else the leader."""

    broker: BrokerId
    authoritative: bool


@dataclass(frozen=True, slots=True)
class Hold:
    """Nobody knows yet."""

    why: str


Decision: TypeAlias = Mine | Take | Choose | AtOwner | Ask | Hold


def decide(facts: LookupFacts) -> Decision:
    """The answer."""
    if not facts.is_certain:
        return Hold(f"the ZooKeeper session of {facts.me} may have ended")
    if facts.holding is Holding.OWNED:
        return Mine()
    if facts.holding is Holding.LEAVING:
        return Hold(f"{facts.me} is handing the topic over")
    owner = facts.owner
    if owner is not None and not owner.released:
        return _at_owner(facts, owner.broker)
    if owner is not None and owner.to == facts.me:
        return Take()
    if owner is not None and owner.to in facts.answering:
        return Ask(owner.to, authoritative=True)
    if facts.authoritative:
        return Take()
    if facts.leader is None:
        return Hold("the brokers are electing a leader")
    if facts.leader == facts.me:
        return Choose()
    if facts.leader not in facts.answering:
        return Hold(f"the leader {facts.leader} does not answer")
    return Ask(facts.leader, authoritative=False)


def _at_owner(facts: LookupFacts, owner: BrokerId) -> Decision:
    if owner == facts.me:
        return Hold(f"the lease of an earlier session of {owner} has not ended yet")
    if owner not in facts.answering:
        return Hold(f"the owner {owner} does not answer, and its lease has not ended yet")
    return AtOwner(owner)
