"""Identifiers and the limits that every layer checks before it allocates anything.

Ids are signed 64-bit on the wire and on disk; −1 means "none", so that an empty ledger's last entry is −1 and the
arithmetic `last + 1` needs no special case.
"""

import re
from typing import Final, TypeAlias

LedgerId: TypeAlias = int
EntryId: TypeAlias = int
BookieId: TypeAlias = str
"""`<namespace>.<pool>-<ordinal>` on Kubernetes; a name, never an address (an address may change, a name may not)."""

NO_ENTRY: Final = -1
MAX_ID: Final = 2**63 - 1

ENTRY_BYTES_MAX: Final = 8 * 1024 * 1024
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
ENSEMBLE_SIZE_MAX: Final = 64
CUSTOM_METADATA_BYTES_MAX: Final = 64 * 1024

_POOL_OF = re.compile(r"(?P<pool>.+)-(?:0|[1-9][0-9]*)")
_BOOKIE_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def check_bookie_id(bookie: str) -> BookieId:
    """Return `bookie` if it can name a bookie; raise ValueError otherwise.

    The id becomes a ZooKeeper node and a host name's first label, so slashes, spaces and empty names are refused.
    """
    if not _BOOKIE_ID.fullmatch(bookie):
        msg = (
            f"{bookie!r} cannot name a bookie: use up to 253 letters, digits, '.', '_' or '-', "
            "with a letter or digit first and last"
        )
        raise ValueError(msg)
    return bookie


def pool_of(bookie: BookieId) -> str:
    """The pool that the bookie belongs to for life: its id without the ordinal, `<namespace>.<pool>`; "" if the id has none.

    Ordinals are those of a StatefulSet: `bk-00` and `bk-٣` have none.
    """
    found = _POOL_OF.fullmatch(bookie)
    return found["pool"] if found else ""


def check_pool(pool: str) -> str:
    """Return `pool` if bookies can belong to it; raise ValueError otherwise."""
    if not _BOOKIE_ID.fullmatch(pool):
        msg = (
            f"{pool!r} cannot name a pool: use the ids of its bookies without their ordinals, "
            "which is NAMESPACE.POOL on Kubernetes"
        )
        raise ValueError(msg)
    return pool


def check_ledger_id(ledger_id: int) -> LedgerId:
    """Return `ledger_id` if it is one a ledger can have (0 … 2⁶³−1); raise ValueError otherwise."""
    if not 0 <= ledger_id <= MAX_ID:
        msg = f"{ledger_id} is no ledger id: ids go from 0 to {MAX_ID}"
        raise ValueError(msg)
    return ledger_id


def check_integer(value: object) -> int:
    """Return `value` if it is a whole number of signed 64 bits, as ids travel: JSON's true and 1.0 are none.

    Raises TypeError, ValueError.
    """
    if type(value) is not int:
        msg = f"{value!r} is no whole number"
        raise TypeError(msg)
    if not -MAX_ID <= value <= MAX_ID:
        msg = "a number has more than 64 bits"
        raise ValueError(msg)
    return value
