"""Judges the ledgers of one cycle after another: by who is registered or lost now, and by what earlier cycles observed.

The auditor brings it up to date; the examinations ask it. It remembers how long open fragments have been in need
(rule 31), and at which version a ledger was found sound, so that a quick cycle compares only what is new: closed ledgers, and open
ones whose ensemble has changed.
"""

from collections.abc import Mapping

from daybook.core.audit.cycle import CycleFindings, CycleScope
from daybook.core.audit.lost_bookies import GracePeriods, LostBookies
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import BookieInfo, RandomSource, RatingPolicy
from daybook.core.repair.judgement import Findings, LedgerAudit, LedgerJudge, OpenAction


class CycleJudge:
    """What all examinations share; `rng` picks among equally good replacements."""

    def __init__(
        self, placement: RatingPolicy, rng: RandomSource, *, lost_delay_ms: int, open_grace_ms: int
    ) -> None:
        """Nothing observed yet."""
        self.bookies = LostBookies(lost_delay_ms)
        self.registered: Mapping[BookieId, BookieInfo] = {}
        """Who was registered at the last observation."""
        self.has_newcomers = False
        """Whether a bookie registered, or may have, since the last cycle began that ended."""
        self.scope = CycleScope()
        self.found = CycleFindings()
        """What this cycle gathered so far."""
        self.now_ms = 0
        self._judge = LedgerJudge(placement, rng)
        self._grace = GracePeriods(open_grace_ms)
        self._compared: dict[LedgerId, int] = {}
        """The version at which a ledger was compared with its listings and found sound."""

    def begin(self, scope: CycleScope, *, has_newcomers: bool) -> None:
        """Begin a cycle."""
        self.scope = scope
        self.found = CycleFindings()
        self.has_newcomers = has_newcomers
        if scope.full:
            self._compared.clear()

    def is_new(self, metadata: LedgerMetadata, version: int) -> bool:
        """Whether repair may have to copy something, and the ledger was not found sound at this version since the last full cycle began."""
        return _has_fragment_with_end(metadata) and self._compared.get(metadata.ledger_id) != version

    def skip(self, ledger_id: LedgerId, *, deleted: bool) -> None:
        """The ledger is deleted, or could not be read: then nothing is said of it, and nothing is fully replicated."""
        if deleted:
            self._grace.end(ledger_id)
            self._compared.pop(ledger_id, None)
        else:
            self.found.unread.add(ledger_id)

    def needs_second_listing(self, metadata: LedgerMetadata, findings: Findings) -> bool:
        """Whether to list the entries again before `judge`, which is then given `findings.seen_again(later)`."""
        return self._judge.has_open_gap(metadata, findings)

    def judge(self, metadata: LedgerMetadata, version: int, findings: Findings) -> LedgerAudit:
        """Judge one ledger."""
        ledger_id = metadata.ledger_id
        audit = self._judge.audit(metadata, findings, grace_is_over=False)
        if audit.open_action is OpenAction.NONE:
            self._grace.end(ledger_id)
        elif self._grace.is_over(ledger_id, metadata.last_fragment, self.now_ms):
            audit = self._judge.audit(metadata, findings, grace_is_over=True)
        self.bookies.expect(metadata.bookies())
        self.found.audits[ledger_id] = metadata, audit
        if audit.gap_checked and not audit.problems and _has_fragment_with_end(metadata):
            self._compared[ledger_id] = version
        return audit


def _has_fragment_with_end(metadata: LedgerMetadata) -> bool:
    """Whether the ledger is closed, or changed its ensemble: perhaps because a bookie failed that lacks acknowledged entries."""
    return metadata.fragment_end(0) is not None
