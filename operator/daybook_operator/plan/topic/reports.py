"""What the owners of topics report about them, as far as a Topic's status shows it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

SUBSCRIPTIONS_MAX: Final = 20
"""As many subscriptions are in a status, those with the largest backlogs."""


@dataclass(frozen=True, slots=True)
class SubscriptionBacklog:
    """What a subscription has not acknowledged: entries, and about when the oldest one was published, in ms since 1970.

    It is a point in time, and no age: it stays the same while the subscription stands still. None: it is not known.
    """

    name: str
    entries: int
    oldest_published_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicAtOwner:
    """One topic. `refusal` says why its backlog quota holds producers off or refuses them; None: it does not."""

    broker: str
    backlogs: tuple[SubscriptionBacklog, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class OwnersReports:
    """The topics that brokers have in memory, by full name. `silent` says which broker did not answer; "" if all did."""

    topics: Mapping[str, TopicAtOwner]
    silent: str = ""


def largest_backlogs(topics: Iterable[TopicAtOwner]) -> tuple[SubscriptionBacklog, ...]:
    """The subscriptions of a topic, or of its partitions together, with the largest backlogs first."""
    found: dict[str, SubscriptionBacklog] = {}
    for topic in topics:
        for each in topic.backlogs:
            before = found.get(each.name, SubscriptionBacklog(each.name, 0))
            known = [at for at in (before.oldest_published_ms, each.oldest_published_ms) if at is not None]
            found[each.name] = SubscriptionBacklog(
                each.name, before.entries + each.entries, min(known, default=None)
            )
    ordered = sorted(sorted(found.values(), key=attrgetter("name")), key=attrgetter("entries"), reverse=True)
    return tuple(ordered[:SUBSCRIPTIONS_MAX])
