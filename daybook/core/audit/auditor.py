"""The auditor: who is lost, which ledgers need a repair, and when everything is replicated again.

It decides and remembers; reading listings and metadata, and storing tasks, is its owner's. A cycle goes through all
ledgers at a limited rate, so that fifty thousand of them do not cost the metadata store its sessions (rule 37):

    auditor.bookies.observe(now_ms, writable, read_only)     # on every change, and again at next_check_ms()
    auditor.begin(now_ms, ledger_ids)
    while not auditor.cycle_is_over:
        for ledger_id in auditor.next_reads(now_ms): read its metadata (and listings), then
            audit = auditor.judge(metadata, findings, now_ms)   # or auditor.skip(ledger_id), if it is deleted
    report = auditor.report()

Draining a bookie is the same work for another reason: it is made read-only first, and then its ledgers are repaired
away from it until none names it (`decommission_step`).
"""

from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from daybook.core.audit.judgement import Findings, LedgerAudit, LedgerAuditor, OpenAction, RatingPolicy
from daybook.core.audit.lost_bookies import GracePeriods, LostBookies
from daybook.core.audit.task import RepairTask
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policy import RandomSource


@dataclass(frozen=True, slots=True)
class AuditorPolicy:
    """The auditor's patience and pace."""

    lost_delay_ms: int = 60_000
    open_grace_ms: int = 30_000
    reads_per_second: int = 500
    reads_in_flight_max: int = 50


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What a cycle over all ledgers found.

    `is_fully_replicated`: every confirmed entry of every ledger has all its replicas, gaps looked for, open fragments
    up to their LAC (rule 45). `unread` ledgers could not be judged.
    """

    ledgers: int
    tasks: tuple[RepairTask, ...]
    healthy: tuple[LedgerId, ...]
    """Those that need no task: one that is stored for them may go."""
    blocked: tuple[str, ...]
    unread: tuple[LedgerId, ...]
    without_replica: tuple[LedgerId, ...]
    below_ack_quorum: tuple[LedgerId, ...]
    below_write_quorum: tuple[LedgerId, ...]
    waiting: tuple[LedgerId, ...]
    """Open ledgers in need whose grace period is not over."""
    named: frozenset[BookieId]
    """Every bookie that a ledger names."""
    is_fully_replicated: bool


class PacedReads:
    """Hands out ledgers to read: at most so many a second, and so many at a time (rule 37)."""

    def __init__(self, per_second: int, in_flight_max: int) -> None:
        """Nothing to read yet."""
        assert per_second > 0
        assert in_flight_max > 0
        self._per_second = per_second
        self._in_flight_max = in_flight_max
        self._burst_millis = max(1000, per_second * 250)
        self._left: deque[LedgerId] = deque()
        self._in_flight = 0
        self._saved_millis = self._burst_millis
        self._saved_at_ms = 0

    def begin(self, ledger_ids: Iterable[LedgerId], now_ms: int) -> None:
        """Go through these; what was handed out before still counts against the rate."""
        self._save(now_ms)
        self._left = deque(ledger_ids)
        self._in_flight = 0

    def next(self, now_ms: int) -> list[LedgerId]:
        """The ledgers to read now; none while the rate or the reads in flight do not allow it."""
        self._save(now_ms)
        count = min(len(self._left), self._in_flight_max - self._in_flight, self._saved_millis // 1000)
        batch = [self._left.popleft() for _ in range(count)]
        self._in_flight += count
        self._saved_millis -= count * 1000
        return batch

    def _save(self, now_ms: int) -> None:
        """Earn reads (in thousandths) for the time that passed, up to a quarter of a second's worth."""
        earned = (now_ms - self._saved_at_ms) * self._per_second
        self._saved_millis = min(self._burst_millis, self._saved_millis + earned)
        self._saved_at_ms = now_ms

    def answered(self) -> None:
        """One of them was read, or could not be."""
        assert self._in_flight > 0
        self._in_flight -= 1

    @property
    def is_over(self) -> bool:
        """Whether all were handed out and answered."""
        return not self._left and not self._in_flight


class Auditor:
    """See the module's opening; `rng` picks among equally good replacements."""

    def __init__(
        self, placement: RatingPolicy, rng: RandomSource, policy: AuditorPolicy | None = None
    ) -> None:
        """Nothing observed yet."""
        self.policy = AuditorPolicy() if policy is None else policy
        self.bookies = LostBookies(self.policy.lost_delay_ms)
        self._judge = LedgerAuditor(placement, rng)
        self._grace = GracePeriods(self.policy.open_grace_ms)
        self._reads = PacedReads(self.policy.reads_per_second, self.policy.reads_in_flight_max)
        self._audits: dict[LedgerId, tuple[LedgerMetadata, LedgerAudit]] = {}
        self._unread: set[LedgerId] = set()

    def begin(self, now_ms: int, ledger_ids: Iterable[LedgerId]) -> None:
        """Begin a cycle over `ledger_ids`."""
        self._audits.clear()
        self._unread.clear()
        self._reads.begin(ledger_ids, now_ms)

    def next_reads(self, now_ms: int) -> list[LedgerId]:
        """The ledgers whose metadata to read now."""
        return self._reads.next(now_ms)

    def skip(self, ledger_id: LedgerId, *, deleted: bool) -> None:
        """The ledger is deleted, or could not be read: then nothing is said of it, and nothing is fully replicated."""
        self._reads.answered()
        if deleted:
            self._grace.end(ledger_id)
        else:
            self._unread.add(ledger_id)

    def needs_second_look(self, metadata: LedgerMetadata, findings: Findings) -> bool:
        """Whether to ask the bookies again before `judge`, which is then given `findings.seen_again(later)`."""
        return self._judge.has_open_gap(metadata, findings)

    def judge(self, metadata: LedgerMetadata, findings: Findings, now_ms: int) -> LedgerAudit:
        """Judge a ledger that `next_reads` named; `findings.lost` is `bookies.lost()`."""
        self._reads.answered()
        audit = self._judge.audit(metadata, findings, grace_is_over=False)
        if audit.open_action is OpenAction.NONE:
            self._grace.end(metadata.ledger_id)
        elif self._grace.is_over(metadata.ledger_id, metadata.last_fragment, now_ms):
            audit = self._judge.audit(metadata, findings, grace_is_over=True)
        self.bookies.expect(metadata.bookies())
        self._audits[metadata.ledger_id] = metadata, audit
        return audit

    @property
    def cycle_is_over(self) -> bool:
        """Whether every ledger has been judged or skipped."""
        return self._reads.is_over

    def report(self) -> CycleReport:
        """What the cycle found; call it once it is over."""
        assert self.cycle_is_over
        judged = [self._audits[ledger_id] for ledger_id in sorted(self._audits)]
        audits = [audit for _, audit in judged]
        quorums = {metadata.ledger_id: metadata.quorum for metadata, _ in judged}
        return CycleReport(
            ledgers=len(audits) + len(self._unread),
            tasks=tuple(RepairTask.of(audit) for audit in audits if audit.needs_task),
            healthy=tuple(audit.ledger_id for audit in audits if not audit.problems and not audit.plans),
            blocked=tuple(why for audit in audits for why in audit.blocked),
            unread=tuple(sorted(self._unread)),
            without_replica=tuple(a.ledger_id for a in audits if a.replicas_min == 0),
            below_ack_quorum=tuple(
                a.ledger_id for a in audits if a.replicas_min < quorums[a.ledger_id].ack_quorum
            ),
            below_write_quorum=tuple(
                a.ledger_id for a in audits if a.replicas_min < quorums[a.ledger_id].write_quorum
            ),
            waiting=tuple(a.ledger_id for a in audits if a.open_action is OpenAction.WAIT),
            named=frozenset(bookie for metadata, _ in judged for bookie in metadata.bookies()),
            is_fully_replicated=not self._unread and all(audit.is_fully_replicated for audit in audits),
        )


class DecommissionStep(Enum):
    """What comes next on the way of a bookie out of the cluster."""

    MAKE_READ_ONLY = "no new ledger may name it"
    DRAIN = "repair its ledgers away from it"
    REMOVE = "no ledger names it: remove its cookie and its directories"


def decommission_step(
    bookie: BookieId, writable: AbstractSet[BookieId], report: CycleReport | None
) -> DecommissionStep:
    """The next step for `bookie`. `report` is of a cycle that began after it was read-only; None if there is none yet.

    A bookie that is away altogether is drained like one that is read-only. An unread ledger may name it.
    """
    if bookie in writable:
        return DecommissionStep.MAKE_READ_ONLY
    if report is None or report.unread or bookie in report.named:
        return DecommissionStep.DRAIN
    return DecommissionStep.REMOVE
