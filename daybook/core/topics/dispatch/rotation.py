"""Whose turn it is on a shared subscription: the consumers of the highest priority that take something, one after the other.

A consumer of a lower priority receives only what none of a higher one takes. The highest priority is 0.
"""

from collections import deque

from daybook.core.topics.dispatch.consumers import Consumer


class Rotation:
    """The consumers of a shared subscription, in the order of their turns."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[int, deque[Consumer]] = {}
        """By priority, the highest first; no level is empty."""

    def add(self, consumer: Consumer) -> None:
        """A consumer came; its turn is the last of its level."""
        self._levels.setdefault(consumer.priority, deque()).append(consumer)
        self._levels = dict(sorted(self._levels.items()))

    def remove(self, consumer: Consumer) -> None:
        """A consumer left."""
        level = self._levels[consumer.priority]
        level.remove(consumer)
        if not level:
            del self._levels[consumer.priority]

    def ready(self) -> list[Consumer]:
        """The consumers that take something now and whose turn it is, in order: all of one level."""
        for level in self._levels.values():
            ready = [consumer for consumer in level if consumer.is_ready]
            if ready:
                return ready
        return []

    def served(self, consumer: Consumer) -> None:
        """The consumer received something: its next turn comes after that of the others."""
        level = self._levels[consumer.priority]
        level.remove(consumer)
        level.append(consumer)
