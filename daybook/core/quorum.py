"""Quorum arithmetic: who holds an entry, and how many answers decide.

E = ensemble size, Qw = write quorum, Qa = ack quorum, E ≥ Qw ≥ Qa ≥ 1. The write set of entry n is the Qw positions
that follow n mod E, so a position's share of the entries repeats with period E: a *stripe*, written as a bit mask over
the residues. Qf = Qw − Qa + 1 answers of a write set meet every ack quorum of it, which is what fencing and a proof of
absence need (rule 1, rule 6).
"""

from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

from daybook.core.errors import QuorumError
from daybook.core.ids import ENSEMBLE_SIZE_MAX, EntryId


class Stripe(NamedTuple):
    """The entries n with bit (n mod period) of `mask` set: what one position of an ensemble holds."""

    period: int
    mask: int

    def holds(self, entry_id: EntryId) -> bool:
        """Whether `entry_id` is one of these entries."""
        return bool(self.mask >> (entry_id % self.period) & 1)

    def count_between(self, first: EntryId, last: EntryId) -> int:
        """How many entries of first … last (inclusive) it holds."""
        if last < first:
            return 0
        whole, rest = divmod(last - first + 1, self.period)
        start = first % self.period
        return whole * self.mask.bit_count() + sum(
            self.mask >> ((start + i) % self.period) & 1 for i in range(rest)
        )


DENSE = Stripe(1, 1)
"""Every entry."""


class Quorum(NamedTuple):
    """(E, Qw, Qa) of a ledger; made by `check_quorum`."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    @property
    def coverage(self) -> int:
        """Qf: how many answers of a write set meet every ack quorum of it."""
        return self.write_quorum - self.ack_quorum + 1


def check_quorum(ensemble_size: int, write_quorum: int, ack_quorum: int) -> Quorum:
    """Return the quorum, or raise QuorumError when 64 ≥ E ≥ Qw ≥ Qa ≥ 1 does not hold."""
    if not ENSEMBLE_SIZE_MAX >= ensemble_size >= write_quorum >= ack_quorum >= 1:
        msg = (
            f"ensemble size {ensemble_size}, write quorum {write_quorum}, ack quorum {ack_quorum}: "
            f"need {ENSEMBLE_SIZE_MAX} ≥ ensemble size ≥ write quorum ≥ ack quorum ≥ 1"
        )
        raise QuorumError(msg)
    return Quorum(ensemble_size, write_quorum, ack_quorum)


def write_set(quorum: Quorum, entry_id: EntryId) -> tuple[int, ...]:
    """The Qw positions that hold `entry_id`, first the one that is read first."""
    return _write_set_from(quorum, entry_id % quorum.ensemble_size)


@lru_cache(maxsize=4096)
def _write_set_from(quorum: Quorum, start: int) -> tuple[int, ...]:
    return tuple((start + i) % quorum.ensemble_size for i in range(quorum.write_quorum))


@lru_cache(maxsize=1024)
def write_set_masks(quorum: Quorum) -> tuple[int, ...]:
    """For every residue of the entry id mod E, the write set as a bit mask of positions; one mask if E = Qw."""
    if quorum.ensemble_size == quorum.write_quorum:
        return ((1 << quorum.ensemble_size) - 1,)
    return tuple(
        sum(1 << position for position in write_set(quorum, residue))
        for residue in range(quorum.ensemble_size)
    )


@lru_cache(maxsize=4096)
def stripe_of(quorum: Quorum, position: int) -> Stripe:
    """The entries that `position` of the ensemble holds; DENSE if E = Qw."""
    assert 0 <= position < quorum.ensemble_size
    if quorum.ensemble_size == quorum.write_quorum:
        return DENSE
    mask = sum(
        1 << residue for residue in range(quorum.ensemble_size) if position in write_set(quorum, residue)
    )
    return Stripe(quorum.ensemble_size, mask)


def residues_between(quorum: Quorum, first: EntryId, last: EntryId) -> tuple[int, ...]:
    """The distinct write sets met by entries first … last, as indexes into `write_set_masks`."""
    masks = len(write_set_masks(quorum))
    if last - first + 1 >= masks:
        return tuple(range(masks))
    return tuple(sorted({entry % masks for entry in range(first, last + 1)}))


def is_ack_quorum(quorum: Quorum, acked: int, first: EntryId, last: EntryId) -> bool:
    """Whether `acked` (a mask of positions) holds Qa of every write set met by entries first … last."""
    if quorum.ensemble_size == quorum.write_quorum:
        return acked.bit_count() >= quorum.ack_quorum
    masks = write_set_masks(quorum)
    return all(
        (acked & masks[residue]).bit_count() >= quorum.ack_quorum
        for residue in residues_between(quorum, first, last)
    )


def covers_every_write_set(quorum: Quorum, answered: int) -> bool:
    """Whether `answered` (a mask of positions) meets every ack quorum of every write set (rule 1).

    BookKeeper: RoundRobinDistributionSchedule.RRQuorumCoverageSet.
    """
    return all((answered & mask).bit_count() >= quorum.coverage for mask in write_set_masks(quorum))


def can_still_ack(quorum: Quorum, alive: int) -> bool:
    """Whether Qa of every write set is among `alive` (a mask of positions): may a writer continue without the rest?"""
    return all((alive & mask).bit_count() >= quorum.ack_quorum for mask in write_set_masks(quorum))


def mask_of(positions: AbstractSet[int]) -> int:
    """Positions as a bit mask."""
    return sum(1 << position for position in positions)
