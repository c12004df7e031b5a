"""Quantities of Kubernetes: `10Gi`, `1500M`, `1e9` bytes, `500m` of a processor.

The API server may store another form of a quantity (`1000m` becomes `1`), so quantities are compared by value.
"""

import math
from decimal import Decimal, InvalidOperation
from typing import Final

_UNITS: Final = {
    **{f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
    **{letter: Decimal(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    "m": Decimal("0.001"),
    "u": Decimal("0.000001"),
    "n": Decimal("0.000000001"),
}


def bytes_of(quantity: str) -> int:
    """Whole bytes, rounded up as Kubernetes does. Raises ValueError."""
    return math.ceil(amount_of(quantity))


def amount_of(quantity: str) -> Decimal:
    """The exact amount. Raises ValueError."""
    suffix = next((unit for unit in _UNITS if quantity.endswith(unit)), "")
    try:
        number = Decimal(quantity.removesuffix(suffix))
    except InvalidOperation as error:
        msg = f"{quantity!r} is no amount: write it like 20Gi"
        raise ValueError(msg) from error
    return number * _UNITS.get(suffix, 1)


def are_same_amounts(one: object, other: object) -> bool:
    """Whether two quantities have one value; what is no quantity equals only itself."""
    try:
        return amount_of(str(one)) == amount_of(str(other))
    except ValueError:
        return one == other


def in_words(size_bytes: int) -> str:
    """The shortest exact way to write it: 10737418240 is 10Gi."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes and size_bytes % int(_UNITS[unit]) == 0:
            return f"{size_bytes // int(_UNITS[unit])}{unit}"
    return str(size_bytes)
