"""The parts of an explored world as small numbers: machines, bookies, metadata and messages, each stored once.

A world is a tuple of numbers, so it is cheap to copy, hash and compare. A machine is brought back to life only when it
meets an event that it has not met in that very state before; everything else is a look-up (`Memo`).
"""

import pickle
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ATOMS = (int, str, bytes, float, bool, type(None))


def freeze(value: Any, above: frozenset[int] = frozenset()) -> Hashable:
    """A hashable image of `value` that is equal exactly where a machine would behave the same.

    Sets are sorted; dicts keep their order, which a machine may depend on. A reference to an object that is being
    frozen already (a bookie's ledger knows the bookie) is a mark.
    """
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, (Enum, type, FunctionType, BuiltinMethodType, MethodType)):
        return str(value) if isinstance(value, Enum) else value.__qualname__
    if id(value) in above:
        return "…"
    above = above | {id(value)}
    if isinstance(value, (list, tuple, deque)):
        return (type(value).__name__, *(freeze(item, above) for item in value))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted((freeze(item, above) for item in value), key=repr))
    if isinstance(value, dict):
        return ("dict", *((freeze(k, above), freeze(v, above)) for k, v in value.items()))
    return (type(value).__name__, *((name, freeze(part, above)) for name, part in _parts(value)))


def _parts(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object, from its dict and its slots."""
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in fields(value)]
    names = dict.fromkeys(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = getattr(cls, "__slots__", ())
        names.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    return [(name, getattr(value, name)) for name in names if hasattr(value, name) and name != "__dict__"]


class Pool(Generic[T]):
    """Values by number; equal ones share it."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._pickles: list[bytes] = []

    def __len__(self) -> int:
        return len(self._pickles)

    def number(self, value: T) -> int:
        """The number of `value`."""
        key = freeze(value)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._pickles)
            self._pickles.append(pickle.dumps(value))
        return number

    def copy(self, number: int) -> T:
        """A fresh copy of the value with that number."""
        value: T = pickle.loads(self._pickles[number])
        return value


class Memo(Generic[K, V]):
    """Remembers what a function gave for a key."""

    def __init__(self, function: Callable[[K], V]) -> None:
        self._function = function
        self._known: dict[K, V] = {}

    def __call__(self, key: K) -> V:
        """The function's value."""
        if key not in self._known:
            self._known[key] = self._function(key)
        return self._known[key]


class Shared(Generic[K]):
    """Immutable, hashable values by number."""

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._values: list[K] = []

    def number(self, value: K) -> int:
        """The number of `value`."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._values)
            self._values.append(value)
        return number

    def __getitem__(self, number: int) -> K:
        return self._values[number]
