"""The control calls: small questions with workers of their own, so that slow readers never pin them.

What ReadLac answers is durable first: such an answer waits for the journal to pass what was queued before it, which costs
no sync of its own, and while the journal owes something the bookie vouches for nothing. Limbo marks are cleared only by the
nonce that a repair read (rule 29).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import Final, Protocol, TypeVar

import grpc

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.bookie.polls import Poll
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook_bookie.disk.watch import DiskWatch
from daybook_bookie.identity.kept_mode import NO_REASON
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.thread import Barrier, JournalThread
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.availability import Availability
from daybook_bookie.service.long_poll import LongPolls
from daybook_bookie.service.questions import Questions
from daybook_bookie.service.streams import AppendStreams
from daybook_bookie.settings import BookieSettings
from daybook_bookie.upkeep.gc import Collector
from daybook_bookie.upkeep.scrubber import Scrubber

_LOG: Final = get_logger(__name__)
_PAGE_MAX: Final = 10_000

T = TypeVar("T")


class Send(Protocol):
    """gRPC's callback: a response, then None for the end."""

    def __call__(self, response: pb.ReadLacResponse | None) -> None:
        """Send it."""


@dataclass(frozen=True, kw_only=True)
class Control:
    """Answers the control calls of one bookie, from its parts."""

    settings: BookieSettings
    boot_id: str
    metrics: BookieMetrics
    table: LedgerTable
    journal: JournalThread
    long_polls: LongPolls
    questions: Questions
    streams: AppendStreams
    availability: Availability
    disk_watch: DiskWatch
    link: MetadataLink
    roll_back: RollBackGuard
    scrubber: Scrubber
    collector: Collector
    make_durable: Callable[[], bool]
    """Waits until everything accepted so far is durable; False if it is not."""
    journal_bytes: Callable[[], int]
    """What the journal's files take."""
    timeout_s: float
    """How long an answer waits for the journal."""

    # LAC

    def read_lac(self, request: pb.ReadLacRequest, context: grpc.ServicerContext, send: Send) -> None:
        """The LAC; as a long poll once it is beyond `known_lac`, at the latest after `timeout_ms`.

        Does not hold a worker while it waits: `send` is called later, from another thread.
        """

        def answer(lac: LacAnswer | None) -> None:
            if context.is_active():
                send(_lac_response(lac))
                send(None)

        code = self.questions.check(request.ledger_id, request.key)
        if code is not Code.OK:
            send(pb.ReadLacResponse(code=code, last_add_confirmed=-1))
            send(None)
            return
        wait_ms = min(request.timeout_ms, self.settings.long_poll_ms_max)
        poll = Poll(
            request.ledger_id,
            request.known_lac,
            request.known_fenced,
            monotonic_ms() + wait_ms,
            look=lambda: self._look(request.ledger_id),
            answer=answer,
        )
        if wait_ms <= 0 or not self.long_polls.park(poll):
            lac = poll.look()
            answer(lac if self.make_durable() else None)
        elif not context.add_callback(partial(self.long_polls.forget, poll)):
            self.long_polls.forget(poll)  # the call has ended already

    def _look(self, ledger_id: LedgerId) -> LacAnswer:
        with self.table.lock:
            return self.table.machine.lac(ledger_id)

    # Force

    def force(self, request: pb.ForceRequest, _: grpc.ServicerContext) -> pb.ForceResponse:
        """Answer once everything that was accepted deferred is durable; with the boot id (rule 22)."""
        with self.table.lock:
            code = self.table.machine.force(request.ledger_id)
            barrier = Barrier([])
            self.journal.put(barrier)
        if code is Code.OK:
            code = self.table.machine.refusals.vouch(barrier.wait(self.timeout_s))
        self.metrics.forces.labels(code.name).inc()
        return pb.ForceResponse(code=code, boot_id=self.boot_id)

    # What is here

    def get_info(self, _: pb.GetInfoRequest, __: grpc.ServicerContext) -> pb.GetInfoResponse:
        """The bookie as a whole."""
        fullest = self.disk_watch.fullest
        known, guard = self.table.known(), self.roll_back
        return pb.GetInfoResponse(
            bookie_id=self.settings.bookie_id,
            boot_id=self.boot_id,
            version=version("daybook-bookie"),
            writable=self.availability.is_writable,
            read_only_reason=self.availability.reason,
            capacity_bytes=fullest.capacity_bytes,
            free_bytes=fullest.free_bytes,
            ledgers=len(known.ledger_ids),
            write_cache_bytes=self.table.storage.cache.size_bytes,
            journal_bytes=self.journal_bytes(),
            streams=self.streams.count,
            limbo_ledgers=len(self.table.limbo_marks()),
            collection_refused=guard.reason,
            disk_notice=self.link.disk_notice,
            highest_ledger=max(known.highest_proved, guard.highest_held),
        )

    def list_ledgers(self, request: pb.ListLedgersRequest, _: grpc.ServicerContext) -> pb.ListLedgersResponse:
        """A page of the ledgers known here."""
        page, more = _page((i for i in self.table.known_ids() if i > request.after_ledger), request.limit)
        return pb.ListLedgersResponse(ledger_ids=page, more=more)

    def entry_intervals(
        self, request: pb.EntryIntervalsRequest, _: grpc.ServicerContext
    ) -> pb.EntryIntervalsResponse:
        """Which entries are here, cache included, and which of them are damaged (rule 47)."""
        with self.table.lock:
            ledger = self.table.machine.ledgers.find(request.ledger_id)
            if ledger is None:
                return pb.EntryIntervalsResponse(code=Code.OK, last_add_confirmed=-1)
            lac = ledger.last_add_confirmed()
        held = self.table.intervals(request.ledger_id)
        if not self.make_durable():
            return pb.EntryIntervalsResponse(code=Code.UNAVAILABLE)
        page, more = _page((i for i in held if i.last >= request.from_entry), request.limit)
        return pb.EntryIntervalsResponse(
            code=Code.OK,
            intervals=[
                pb.EntryInterval(
                    first_entry=first, last_entry=last, stripe_period=stripe.period, stripe_mask=stripe.mask
                )
                for first, last, stripe in page
            ],
            more=more,
            limbo=lac.limbo,
            damaged=self.scrubber.damaged_of(request.ledger_id),
            last_add_confirmed=lac.last_add_confirmed,
            length_at_lac=lac.length_at_lac,
        )

    # What an operator asks for

    def set_read_only(
        self, request: pb.SetReadOnlyRequest, context: grpc.ServicerContext
    ) -> pb.SetReadOnlyResponse:
        """Refuse or allow normal writes, over restarts as well; answered once that is durable."""
        reason = (request.reason or NO_REASON) if request.read_only else ""
        try:
            self.availability.set_read_only(reason)
        except OSError as error:
            why = f"the bookie is read-only, but that cannot be kept or ended on its disk: {error}; make room, try again"
            context.abort(grpc.StatusCode.INTERNAL, why)
        return pb.SetReadOnlyResponse(
            writable=self.availability.is_writable, read_only_reason=self.availability.reason
        )

    def scrub(self, request: pb.ScrubRequest, _: grpc.ServicerContext) -> pb.ScrubResponse:
        """Check the checksums of one ledger or of all, at full speed."""
        result = self.scrubber.scrub_now(None if request.ledger_id < 0 else request.ledger_id)
        return pb.ScrubResponse(
            code=Code.OK,
            ledgers=result.ledgers,
            entries=result.entries,
            damaged=[
                pb.DamagedLedger(ledger_id=ledger_id, entries=entries[:_PAGE_MAX])
                for ledger_id, entries in sorted(result.damaged.items())
            ],
        )

    def list_limbo(self, request: pb.ListLimboRequest, _: grpc.ServicerContext) -> pb.ListLimboResponse:
        """A page of the ledgers that this bookie cannot vouch for, with their nonces, or one of them (rule 29)."""
        if request.only:
            ledger_id = request.after_ledger + 1
            nonce = self.table.limbo_mark(ledger_id)
            marks = {} if nonce is None else {ledger_id: nonce}
        else:
            marks = self.table.limbo_marks()
        page, more = _page((i for i in sorted(marks) if i > request.after_ledger), request.limit)
        return pb.ListLimboResponse(
            ledgers=[pb.LimboLedger(ledger_id=ledger_id, nonce=marks[ledger_id]) for ledger_id in page],
            more=more,
            boot_id=self.boot_id,
        )

    def clear_limbo(self, request: pb.ClearLimboRequest, _: grpc.ServicerContext) -> pb.ClearLimboResponse:
        """End limbo if the nonce still stands; the answer waits until that is durable."""
        with self.table.lock:
            record = self.table.machine.clear_limbo(request.ledger_id, request.nonce)
            if record is None:
                return pb.ClearLimboResponse(code=Code.OK, cleared=False)
            barrier = Barrier([record])
            self.journal.put(barrier)
        code = barrier.wait(self.timeout_s)
        _LOG.info("limbo cleared", ledger_id=request.ledger_id, code=code.name)
        return pb.ClearLimboResponse(code=code, cleared=code is Code.OK)

    def collect_garbage(
        self, _: pb.CollectGarbageRequest, __: grpc.ServicerContext
    ) -> pb.CollectGarbageResponse:
        """One cycle of garbage collection now."""
        result = self.collector.collect()
        code = Code.OK if result.complete else Code.UNAVAILABLE
        return pb.CollectGarbageResponse(
            code=code,
            deleted=result.deleted,
            detail=result.detail,
            surplus_entries=result.over_replicated_entries,
        )

    def accept_roll_back(
        self, request: pb.AcceptRollBackRequest, context: grpc.ServicerContext
    ) -> pb.AcceptRollBackResponse:
        """Take what ZooKeeper says now for the truth again (rule 62)."""
        try:
            why_not = self.roll_back.accept(request.highest_ledger)
        except (DaybookError, OSError) as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"the roll-back cannot be accepted now: {error}")
        return pb.AcceptRollBackResponse(accepted=not why_not, detail=why_not)


def _page(items: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first `limit` items, and whether there are more."""
    size = min(limit, _PAGE_MAX) if limit > 0 else _PAGE_MAX
    found = list(islice(items, size + 1))
    return found[:size], len(found) > size


def _lac_response(lac: LacAnswer | None) -> pb.ReadLacResponse:
    if lac is None:
        return pb.ReadLacResponse(code=Code.UNAVAILABLE, last_add_confirmed=-1)
    return pb.ReadLacResponse(
        code=Code.OK,
        last_add_confirmed=lac.last_add_confirmed,
        length_at_lac=lac.length_at_lac,
        limbo=lac.limbo,
        fenced=lac.fenced,
    )
