"""Amounts as Kubernetes writes them, in bytes: `10Gi`, `1500M`, `1e9`."""

import math
from decimal import Decimal, InvalidOperation
from typing import Final

_UNITS: Final = {
    **{f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
    **{letter: Decimal(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    "m": Decimal("0.001"),
}


def bytes_of(quantity: str) -> int:
    """Whole bytes, rounded up as Kubernetes does. Raises ValueError."""
    suffix = next((unit for unit in _UNITS if quantity.endswith(unit)), "")
    try:
        number = Decimal(quantity.removesuffix(suffix))
    except InvalidOperation as error:
        msg = f"{quantity!r} is no amount: write it like 20Gi"
        raise ValueError(msg) from error
    return math.ceil(number * _UNITS.get(suffix, 1))


def in_words(size_bytes: int) -> str:
    """The shortest exact way to write it: 10737418240 is 10Gi."""
    for unit in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if size_bytes and size_bytes % int(_UNITS[unit]) == 0:
            return f"{size_bytes // int(_UNITS[unit])}{unit}"
    return str(size_bytes)
