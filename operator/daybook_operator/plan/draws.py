"""Pseudo-random numbers that are a function of a text: a plan that is made again for the same object draws the same.

Placement needs random numbers to spread ledgers over bookies, and a plan must be deterministic.
"""

import hashlib
from typing import Final

_BYTES: Final = 7
"""A float's 53 bits fit."""


class Draws:
    """A `RandomSource` seeded by `text`."""

    def __init__(self, text: str) -> None:
        """At the beginning of the sequence."""
        self._text = text
        self._count = 0

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._count} {self._text}".encode()).digest()
        return (int.from_bytes(digest[:_BYTES], "big") >> (8 * _BYTES - 53)) / 2**53

    def randrange(self, stop: int, /) -> int:
        """A whole number from 0 up to, not including, `stop`."""
        assert stop >= 1
        return min(stop - 1, int(self.random() * stop))
