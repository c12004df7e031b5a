"""The batch: the unit in which a writer sends, counts acknowledgements and completes.

Entries first … last, contiguous, encoded once. There is no object per entry: acknowledgements are a bit mask of ensemble
positions, because a bookie answers for a frame as a whole. Without striping all positions share one run of bytes; with
it each position has a frame of the entries that its stripe holds, and perhaps none.
"""

from collections.abc import Sequence
from itertools import compress, cycle

from daybook.core.errors import Code
from daybook.core.format.frame import Buffer, encode_frame, entry_crcs
from daybook.core.ids import EntryId, LedgerId
from daybook.core.quorum import Quorum, stripe_of


class Batch:
    """A sealed run of entries on its way to the bookies."""

    __slots__ = (
        "acked",
        "completed_ms",
        "first",
        "frames",
        "is_uncertain",
        "last",
        "payload_bytes",
        "refusal",
        "refused",
        "waiting",
    )

    def __init__(
        self, first: EntryId, last: EntryId, payload_bytes: int, frames: tuple[bytes | None, ...]
    ) -> None:
        assert 0 <= first <= last
        self.first = first
        self.last = last
        self.payload_bytes = payload_bytes
        self.frames = frames
        """The frame of each ensemble position; None where the stripe holds none of the entries."""
        self.acked = 0
        """Positions of the current ensemble that have their frame durably, as a mask."""
        self.refused = 0
        """Positions that refused the frame as every bookie would (rule 21)."""
        self.refusal: Code | None = None
        self.waiting = 0
        """Sends without an answer."""
        self.is_uncertain = False
        """Whether some bookie may have the frame though no answer says so."""
        self.completed_ms: int | None = None

    @property
    def holders(self) -> int:
        """The positions that get a frame, as a mask."""
        return sum(1 << position for position, frame in enumerate(self.frames) if frame is not None)


def seal_batch(
    ledger_id: LedgerId,
    quorum: Quorum,
    first: EntryId,
    payloads: Sequence[Buffer],
    payload_bytes: int,
    *,
    last_add_confirmed: EntryId,
    length_at_lac: int,
    flags: int,
) -> Batch:
    """Encode `payloads` as the entries from `first` on; every frame carries the LAC and its length (rule 44)."""
    last = first + len(payloads) - 1
    entry_ids = range(first, last + 1)
    crcs = entry_crcs(ledger_id, entry_ids, payloads)
    frames: tuple[bytes | None, ...]
    if quorum.ensemble_size == quorum.write_quorum:
        frame = encode_frame(
            ledger_id,
            first,
            payloads,
            crcs,
            last_add_confirmed=last_add_confirmed,
            length_at_lac=length_at_lac,
            flags=flags,
        )
        frames = (frame,) * quorum.ensemble_size
        return Batch(first, last, payload_bytes, frames)
    striped: list[bytes | None] = []
    for position in range(quorum.ensemble_size):
        stripe = stripe_of(quorum, position)
        held = [stripe.holds(first + i) for i in range(stripe.period)]
        own_ids = list(compress(entry_ids, cycle(held)))
        if not own_ids:
            striped.append(None)
            continue
        striped.append(
            encode_frame(
                ledger_id,
                own_ids[0],
                list(compress(payloads, cycle(held))),
                list(compress(crcs, cycle(held))),
                last_add_confirmed=last_add_confirmed,
                length_at_lac=length_at_lac,
                flags=flags,
                stripe=stripe,
                entry_ids=own_ids,
            )
        )
    return Batch(first, last, payload_bytes, tuple(striped))
