"""What lookups return, what the broker is notified of, and how long things may take."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from daybook.core.topics.ownership.bundles import Bundle
from daybook.core.topics.ownership.load import BundleLoad
from daybook.core.topics.ownership.shedding import SheddingPolicy
from daybook.metadata.brokers import BrokerInfo

LOOKUPS_HELD_MAX: Final = 50_000
"""Lookups that wait for an answer at once; more are answered "not ready"."""


@dataclass(frozen=True, slots=True)
class Mine:
    """This broker owns the topic."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another broker owns the topic (`is_owner`), or the client is to ask it, with `authoritative` in its lookup."""

    broker: BrokerInfo
    is_owner: bool = False
    authoritative: bool = False


@dataclass(frozen=True, slots=True)
class NotReady:
    """Nobody could say in time; the client may ask again."""

    why: str


LookupResult: TypeAlias = Mine | Elsewhere | NotReady


class BundleEvents(Protocol):
    """What the broker does when its bundles change."""

    def gained(self, bundle: Bundle) -> None:
        """The broker owns a bundle from now on."""

    async def leaving(self, bundle: Bundle) -> None:
        """The bundle is to be handed over: refuse new work, and finish what is under way. `lost` follows."""

    def lost(self, bundle: Bundle, to: BrokerInfo | None) -> None:
        """The broker does not own the bundle any more: stop its topics at once, and name `to`, if it is known, to their clients."""


Measure: TypeAlias = Callable[[], Mapping[Bundle, BundleLoad]]
"""What happens in each bundle that this broker owns."""

Answers: TypeAlias = Callable[[BrokerInfo], Awaitable[bool]]
"""Whether another broker answers now."""


@dataclass(frozen=True, slots=True)
class OwnershipOptions:
    """Times in seconds."""

    hold_s: float = 20.0
    """How long a lookup is held; clients give up after 30 s."""
    recheck_s: float = 0.25
    """The pause before a broker that did not answer is asked again, while lookups are held."""
    leave_s: float = 15.0
    """How long the topics of a bundle may take to finish before it is handed over anyway: more than each of them may (UNLOAD_S)."""
    report_s: float = 5.0
    """The pause between reports of the load."""
    shed_s: float = 60.0
    """The pause between cycles of shedding."""
    taken_s: float = 2.0
    """How long a broker that stops waits until others have taken its bundles."""
    shedding: SheddingPolicy = field(default_factory=SheddingPolicy)
