"""The auditor: who is lost, which ledgers need a repair, and when everything is replicated again.

It decides and remembers; its owner reads, lists and stores. Cycles go through all ledgers at a limited rate (rule 37):

    auditor.begin_term()                                      # if it was elected
    auditor.observe(now_ms, registered)                       # on every change, and again at bookies.next_check_ms()
    auditor.begin(now_ms, ledger_ids, scope)
    while not auditor.cycle_is_over:
        for examination in auditor.next_examinations(now_ms):
            carry out examination.start(), and give each answer to examination.step(), until it is done
    report = auditor.report()

The owner observes all the time, so that a bookie that returns during a cycle is no longer lost for the rest of it
(rule 33). Between full cycles only what is new is compared: ledgers that were closed or changed since, also open ones whose
ensemble has changed (rule 47), and those with a task, because a task is removed only after an examination of everything that it could be about.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from daybook.core.audit.cycle import CycleReport, CycleScope
from daybook.core.audit.cycle_judge import CycleJudge
from daybook.core.audit.examination import LedgerExamination
from daybook.core.audit.lost_bookies import LostBookies
from daybook.core.audit.pace import PacedReads
from daybook.core.ids import BookieId, LedgerId
from daybook.core.placement.policy import BookieInfo, RandomSource, RatingPolicy


@dataclass(frozen=True, slots=True)
class AuditorPolicy:
    """The auditor's patience and pace."""

    lost_delay_ms: int = 60_000
    open_grace_ms: int = 30_000
    reads_per_second: int = 500
    reads_in_flight_max: int = 50


class Auditor:
    """See the module's opening; `rng` picks among equally good replacements."""

    def __init__(
        self, placement: RatingPolicy, rng: RandomSource, policy: AuditorPolicy | None = None
    ) -> None:
        """Nothing observed yet."""
        self.policy = AuditorPolicy() if policy is None else policy
        self._judge = CycleJudge(
            placement,
            rng,
            lost_delay_ms=self.policy.lost_delay_ms,
            open_grace_ms=self.policy.open_grace_ms,
        )
        self._reads = PacedReads(self.policy.reads_per_second, self.policy.reads_in_flight_max)
        self._boots: AbstractSet[tuple[BookieId, str]] | None = None
        """The processes at the last observation."""
        self._came = False
        """Whether a bookie came, or started anew, since the last cycle began."""
        self._unheeded = False
        """Whether one came before that, and no cycle has ended since that could set tasks free (rule 35)."""
        self._cookies: AbstractSet[BookieId] = frozenset()

    # Who is registered.

    @property
    def bookies(self) -> LostBookies:
        """Who is lost."""
        return self._judge.bookies

    @property
    def registered(self) -> Mapping[BookieId, BookieInfo]:
        """Who was registered at the last observation."""
        return self._judge.registered

    def begin_term(self) -> None:
        """The auditor was elected: who came before is not known here, so the first cycle sets tasks free (rule 35)."""
        self._came = True

    def observe(self, now_ms: int, registered: Mapping[BookieId, BookieInfo]) -> bool:
        """A list of the registered bookies, read at `now_ms`: is there something for a cycle to find?

        That is so when a bookie came or started anew, or when others are lost now. A listing that failed must not be given as an empty one.
        """
        lost = self.bookies.lost()
        writable = {bookie for bookie, info in registered.items() if info.writable}
        self.bookies.observe(now_ms, writable, registered.keys() - writable)
        self._judge.registered = registered
        boots = {(bookie, info.boot_id) for bookie, info in registered.items()}
        came = self._boots is not None and not boots <= self._boots
        self._boots = boots
        self._came |= came
        return came or self.bookies.lost() != lost

    def expect(self, cookies: AbstractSet[BookieId], registered: AbstractSet[BookieId]) -> None:
        """Who has a cookie should be there; whose cookie is gone is decommissioned, and nobody waits for it."""
        for bookie in self._cookies - cookies - registered:
            self.bookies.forget(bookie)
        self.bookies.expect(cookies)
        self._cookies = cookies

    # A cycle.

    def begin(self, now_ms: int, ledger_ids: Iterable[LedgerId], scope: CycleScope) -> None:
        """Begin a cycle over `ledger_ids`."""
        self._judge.now_ms = now_ms
        self._unheeded |= self._came
        self._came = False
        self._judge.begin(scope, has_newcomers=self._unheeded)
        self._reads.begin(ledger_ids, now_ms)

    def next_examinations(self, now_ms: int) -> list[LedgerExamination]:
        """The ledgers to examine now, as many as the pace allows."""
        self._judge.now_ms = now_ms
        return [
            LedgerExamination(ledger_id, self._judge, on_judged=self._reads.answered)
            for ledger_id in self._reads.next(now_ms)
        ]

    @property
    def cycle_is_over(self) -> bool:
        """Whether every ledger has been judged or skipped. Some of their tasks may still be under way."""
        return self._reads.is_over

    def report(self) -> CycleReport:
        """What the cycle found; call it once it is over, with all of its tasks.

        A cycle that broke off has set only some tasks free, so the next one does it again (rule 35).
        """
        assert self.cycle_is_over
        self._unheeded &= not self._judge.scope.enabled
        return CycleReport.of(self._judge.found)
