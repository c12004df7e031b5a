"""How a simulated bookie starts: the core's life (`daybook.core.bookie.life`), over the simulated disk and metadata."""

from typing import TYPE_CHECKING, Final

from daybook_bookie.journal.format import NONCE_BYTES

from daybook.core.bookie.life import (
    BookieLife,
    ClaimLost,
    ClaimTaken,
    CompareEpochs,
    Created,
    CreateStorage,
    EpochsCompared,
    JudgeStart,
    LifeEffect,
    LifeEvent,
    LifeState,
    LimboMarked,
    MarkLimbo,
    Serve,
    StampCookie,
    Stamped,
    Start,
    StartJudged,
    StartRefused,
    TakeClaim,
)
from daybook.core.errors import Code
from daybook.core.ids import LedgerId
from tests.model.sim.metadata_model import LOST, Session, Stamp
from tests.model.sim.world import MS

if TYPE_CHECKING:
    from tests.model.sim.bookie_model import SimBookie

RETRY_US: Final = 20 * MS


class SimBoot:
    """Performs the effects of one start."""

    def __init__(self, bookie: "SimBookie", life: BookieLife) -> None:
        self._bookie = bookie
        self._life = life
        self._store = bookie.cluster.store
        self._disks_lost = bookie.disks_lost
        self._nonces = 0

    def begin(self) -> None:
        """Start."""
        self._perform(self._life.start())

    def _happened(self, event: LifeEvent) -> None:
        self._perform(self._life.step(event))

    def _perform(self, effects: list[LifeEffect]) -> None:
        bookie, store = self._bookie, self._store
        for effect in effects:
            match effect:
                case JudgeStart() if self._life.state is LifeState.LISTING:
                    store.request(bookie.session, self._listed, lambda: dict(store.ledgers))
                case JudgeStart():
                    self._happened(StartJudged(self._start()))
                case TakeClaim():
                    self._take_claim()
                case CreateStorage():
                    self._happened(Created())
                case MarkLimbo(ledgers):
                    self._mark(ledgers)
                case StampCookie():
                    store.request(bookie.session, self._stamped, self._stamp, bookie.session)
                case CompareEpochs():
                    self._happened(EpochsCompared(went_back=False))
                case Serve():
                    bookie.started()
                case _:
                    raise AssertionError(effect)

    def _start(self) -> Start:
        return Start.REPLACEMENT if self._bookie.needs_stamp else Start.NORMAL

    def _take_claim(self) -> None:
        bookie, store = self._bookie, self._store
        session = bookie.live_session()
        store.request(session, self._claimed, store.claim, session, bookie.name, bookie.place)

    def _claimed(self, answer: object) -> None:
        if answer is Stamp.REFUSED:
            self._refused()
        elif answer is Stamp.DONE:
            self._happened(ClaimTaken())
        else:
            self._bookie.later(RETRY_US, self._take_claim)

    def _listed(self, answer: object) -> None:
        if isinstance(answer, dict):
            named = [name for name, found in answer.items() if self._life.must_mark(found.metadata)]
            self._happened(StartJudged(self._start(), tuple(named)))
        else:
            self._bookie.later(RETRY_US, self._happened, ClaimLost())

    def _mark(self, ledgers: tuple[LedgerId, ...]) -> None:
        bookie, records = self._bookie, []
        for ledger_id in ledgers:
            self._nonces += 1
            nonce = f"{bookie.boot_id}/{self._nonces}".encode().ljust(NONCE_BYTES, b"\0").hex()
            records.append(bookie.machine.mark_limbo(ledger_id, nonce))
            bookie.world.tally.state("limbo")
            bookie.cluster.checkers.audits.in_limbo(bookie.name, ledger_id, bookie.world.now_ms)
            bookie.note(f"is in limbo for ledger {ledger_id}")
        bookie.queue(records, self._marked)

    def _marked(self, code: Code) -> None:
        if code is Code.OK:
            self._happened(LimboMarked())
        else:
            self._bookie.fail()

    def _stamp(self, session: Session) -> Stamp:
        """At ZooKeeper, maybe after the process has died and another has started in its place."""
        bookie = self._bookie
        outcome = self._store.stamp(session, bookie.name, bookie.place)
        if outcome is Stamp.DONE and bookie.needs_stamp:
            bookie.stamped(self._disks_lost)
        return outcome

    def _stamped(self, answer: object) -> None:
        if answer is Stamp.REFUSED:
            self._refused()
        elif answer is LOST or answer is Stamp.LOST_CLAIM:
            self._happened(ClaimLost())
        else:
            self._happened(Stamped())

    def _refused(self) -> None:
        self._happened(StartRefused())
        self._bookie.cluster.twins.refused(self._bookie)
