"""Frames for the tests of the storage."""

from collections.abc import Sequence

from daybook.core.format.frame import Entry, encode_frame, entry_crcs
from daybook.core.quorum import DENSE, Stripe


def payload(entry: int, size: int = 40) -> bytes:
    """The one payload that an entry id has in these tests, as the protocol demands."""
    return (f"entry {entry} ".encode() * (size // 8 + 1))[: size + entry % 3]


def frame(
    ledger: int, ids: Sequence[int], *, stripe: Stripe = DENSE, size: int = 40, lac: int = -1, length: int = 0
) -> bytes:
    """A frame with `payload` for each id; without ids, one that publishes `lac`."""
    data = [payload(n, size) for n in ids]
    return encode_frame(
        ledger,
        ids[0] if ids else 0,
        data,
        entry_crcs(ledger, ids, data),
        entry_ids=ids,
        stripe=stripe,
        last_add_confirmed=lac,
        length_at_lac=length,
    )


def entries(ids: Sequence[int], size: int = 40) -> list[Entry]:
    """What reading these ids must give."""
    return [Entry(n, payload(n, size)) for n in ids]
