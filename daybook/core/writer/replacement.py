"""Who takes the place of a failed bookie, and which metadata that a writer finds is still its own.

Choosing is placement's; what is decided here is whom not to choose (the quarantined, until they restart) and to replace
as many as can be replaced. The writer is the only one that changes the last fragment of an open ledger, and repair may
change older ones meanwhile: those changes are kept by building the next change on what was read (rule 19).
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from daybook.core.errors import DaybookError, LedgerFencedError, NoSuchLedgerError, NotEnoughBookiesError
from daybook.core.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata, LedgerState
from daybook.core.placement.among import in_pool
from daybook.core.placement.policy import BookieInfo, PlacementPolicy, RandomSource
from daybook.core.writer.policy import PROBE_DOUBLINGS_MAX


@dataclass(frozen=True, slots=True)
class _Term:
    until_ms: int
    boot_id: str


class Quarantine:
    """The bookies that are not chosen for a while because they failed or were slow."""

    __slots__ = ("_terms",)

    def __init__(self) -> None:
        self._terms: dict[BookieId, _Term] = {}

    def __bool__(self) -> bool:
        """Whether somebody is kept out."""
        return bool(self._terms)

    def add(self, bookie: BookieId, until_ms: int, boot_id: str) -> None:
        """Keep `bookie`, running as `boot_id`, out until `until_ms`."""
        self._terms[bookie] = _Term(until_ms, boot_id)

    def release(self, bookies: Mapping[BookieId, BookieInfo], now_ms: int) -> bool:
        """Let go whose time is over, who left the registry, and who restarted; whether there was one."""
        if not self._terms:
            return False  # nearly always, and every tick of every writer asks
        before = len(self._terms)
        self._terms = {
            bookie: term
            for bookie, term in self._terms.items()
            if now_ms < term.until_ms and bookie in bookies and bookies[bookie].boot_id == term.boot_id
        }
        return len(self._terms) < before

    @property
    def bookies(self) -> frozenset[BookieId]:
        """Those in quarantine."""
        return frozenset(self._terms)


class RetakePause:
    """How long to wait before bookies are taken out of their quarantine again, for want of a quorum without them.

    The first time costs no wait. After it the pause is `pause_ms`, and twice as long each time that nothing was acknowledged in
    between, at most `PROBE_DOUBLINGS_MAX` times.
    """

    __slots__ = ("_confirmed", "_pause_ms", "_times", "_until_ms")

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._times = 0
        self._until_ms = 0
        self._confirmed: EntryId = NO_ENTRY

    def is_over(self, now_ms: int, last_add_confirmed: EntryId) -> bool:
        """Whether they may be taken now."""
        return now_ms >= self._until_ms or last_add_confirmed > self._confirmed

    def tried(self, now_ms: int, last_add_confirmed: EntryId) -> None:
        """They were asked for at `now_ms`."""
        if last_add_confirmed > self._confirmed:
            self._times = 0
        self._confirmed = last_add_confirmed
        self._until_ms = now_ms + (self._pause_ms << min(self._times, PROBE_DOUBLINGS_MAX))
        self._times += 1


class Replacer:
    """Asks placement for replacements."""

    __slots__ = ("_placement", "_quorum", "_rng")

    def __init__(self, metadata: LedgerMetadata, placement: PlacementPolicy, rng: RandomSource) -> None:
        """`placement` chooses for the ledger, within its pool (rule 69)."""
        self._quorum = metadata.quorum
        self._placement = in_pool(metadata.pool, placement)
        self._rng = rng

    def replace(
        self,
        ensemble: tuple[BookieId, ...],
        positions: Iterable[int],
        bookies: Mapping[BookieId, BookieInfo],
        exclude: AbstractSet[BookieId],
    ) -> tuple[BookieId, ...]:
        """`ensemble` with other bookies at `positions`, or at as many of them as there are bookies for."""
        wanted = sorted(positions)
        found = self._try(ensemble, frozenset(wanted), bookies, exclude)
        if found is not None:
            return found
        for position in wanted if len(wanted) > 1 else ():
            found = self._try(ensemble, frozenset({position}), bookies, exclude)
            if found is not None:
                ensemble = found
        return ensemble

    def _try(
        self,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        bookies: Mapping[BookieId, BookieInfo],
        exclude: AbstractSet[BookieId],
    ) -> tuple[BookieId, ...] | None:
        try:
            found = self._placement.replace(
                self._quorum, ensemble, positions, bookies, self._rng, exclude=exclude
            )
        except NotEnoughBookiesError:
            return None
        assert all(
            (old != new) == (position in positions)
            for position, (old, new) in enumerate(zip(ensemble, found, strict=True))
        ), "placement replaces the positions it was asked to, and no other"
        assert exclude.isdisjoint(found[position] for position in positions)
        return found


def why_not_own(own: LedgerMetadata, read: LedgerMetadata | None) -> DaybookError | None:
    """Why a writer that last knew `own` may not go on with `read`; None if it may.

    It may while the ledger is OPEN, attached by it, and differs in older fragments' bookies at most, or in a last
    fragment that an earlier attempt of its own made.
    """
    ledger_id: LedgerId = own.ledger_id
    if read is None:
        return NoSuchLedgerError(f"ledger {ledger_id} was deleted while it was written")
    if read.state is not LedgerState.OPEN or read.writer_token != own.writer_token:
        return LedgerFencedError(
            f"ledger {ledger_id} is {read.state.value}: another client recovers or closed it; "
            "the outcome of what was not acknowledged is unknown until it is recovered"
        )
    starts = [fragment.first_entry for fragment in own.fragments]
    read_starts = [fragment.first_entry for fragment in read.fragments]
    if read_starts[: len(starts)] != starts or len(read_starts) > len(starts) + 1:
        return LedgerFencedError(
            f"ledger {ledger_id} was changed by another writer: it cannot be written here"
        )
    return None
