"""The control calls: small questions with workers of their own, so that slow readers never pin them.

What ReadLac tells is durable first: such an answer waits for the journal to pass what was queued before it, which costs
no sync of its own, and while the journal owes something nothing is vouched for. Limbo marks are cleared only by the nonce that a repair read (rule 29).
"""

from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import grpc

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.errors import Code, DaybookError
from daybook.core.ids import LedgerId
from daybook.runtime.clock import monotonic_ms
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook_bookie.identity.kept_mode import NO_REASON
from daybook_bookie.journal.format import limbo_clear_record
from daybook_bookie.journal.thread import Barrier
from daybook_bookie.service.long_poll import Poll

if TYPE_CHECKING:
    from daybook_bookie.bookie import Bookie

_LOG: Final = get_logger(__name__)
_PAGE_MAX: Final = 10_000

T = TypeVar("T")


class Send(Protocol):
    """gRPC's callback: a response, then None for the end."""

    def __call__(self, response: pb.ReadLacResponse | None) -> None:
        """Send it."""


class Control:
    """Answers the control calls of one bookie."""

    def __init__(self, bookie: "Bookie", *, timeout_s: float) -> None:
        """`timeout_s`: how long an answer waits for the journal."""
        self._bookie = bookie
        self._fencer = bookie.fencer
        self._passwords = bookie.passwords
        self._table = bookie.table
        self._timeout_s = timeout_s

    # LAC

    def read_lac(self, request: pb.ReadLacRequest, context: grpc.ServicerContext, send: Send) -> None:
        """The LAC; as a long poll once it is beyond `known_lac`, at the latest after `timeout_ms`.

        Does not hold a worker while it waits: `send` is called later, from another thread.
        """

        def answer(lac: LacAnswer | None) -> None:
            if context.is_active():
                send(_lac_response(lac))
                send(None)

        code = self._passwords.check(request.ledger_id, request.key)
        if code is not Code.OK:
            send(pb.ReadLacResponse(code=code, last_add_confirmed=-1))
            send(None)
            return
        wait_ms = min(request.timeout_ms, self._bookie.settings.long_poll_ms_max)
        poll = Poll(
            request.ledger_id,
            request.known_lac,
            request.known_fenced,
            monotonic_ms() + wait_ms,
            look=lambda: self._look(request.ledger_id),
            answer=answer,
        )
        if wait_ms <= 0 or not self._bookie.long_polls.park(poll):
            lac = poll.look()
            answer(lac if self._bookie.make_durable(self._timeout_s) else None)
        elif not context.add_callback(partial(self._bookie.long_polls.forget, poll)):
            self._bookie.long_polls.forget(poll)  # the call has ended already

    def _look(self, ledger_id: LedgerId) -> LacAnswer:
        with self._table.lock:
            ledger = self._table.find(ledger_id)
            return (
                LacAnswer(-1, 0, limbo=False, fenced=False) if ledger is None else ledger.last_add_confirmed()
            )

    # Fence and force

    def fence(self, request: pb.FenceRequest, _: grpc.ServicerContext) -> pb.FenceResponse:
        """Fence a ledger, known or not (rule 3, rule 4)."""
        code, lac = self._fencer.fence(request.ledger_id, request.key)
        return pb.FenceResponse(
            code=code,
            last_add_confirmed=lac.last_add_confirmed,
            length_at_lac=lac.length_at_lac,
            limbo=lac.limbo,
        )

    def force(self, request: pb.ForceRequest, _: grpc.ServicerContext) -> pb.ForceResponse:
        """Answer once everything that was accepted deferred is durable; with the boot id (rule 22)."""
        with self._table.lock:
            ledger = self._table.find(request.ledger_id)
            code = Code.OK if ledger is None else ledger.force().code  # unknown: no entry is striped here yet
            barrier = Barrier([])
            self._bookie.journal.put(barrier)
        if code is Code.OK:
            code = barrier.wait(self._timeout_s)
        if code is Code.OK and self._bookie.journal.has_unstored_refusals:
            code = Code.READ_ONLY
        self._bookie.metrics.forces.labels(code.name).inc()
        return pb.ForceResponse(code=code, boot_id=self._bookie.boot_id)

    # What is here

    def get_info(self, _: pb.GetInfoRequest, __: grpc.ServicerContext) -> pb.GetInfoResponse:
        """The bookie as a whole."""
        bookie = self._bookie
        fullest = bookie.disk_watch.fullest
        known, guard = self._table.known(), bookie.roll_back
        return pb.GetInfoResponse(
            bookie_id=bookie.settings.bookie_id,
            boot_id=bookie.boot_id,
            version=version("daybook-bookie"),
            writable=bookie.is_writable,
            read_only_reason=bookie.read_only_reason,
            capacity_bytes=fullest.capacity_bytes,
            free_bytes=fullest.free_bytes,
            ledgers=len(known.ledger_ids),
            write_cache_bytes=self._table.storage.cache.size_bytes,
            journal_bytes=bookie.journal_bytes(),
            streams=bookie.open_streams,
            limbo_ledgers=len(self._table.limbo_marks()),
            collection_refused=guard.reason,
            disk_notice=bookie.link.disk_notice,
            highest_ledger=max(known.highest_proved, guard.highest_held),
        )

    def list_ledgers(self, request: pb.ListLedgersRequest, _: grpc.ServicerContext) -> pb.ListLedgersResponse:
        """A page of the ledgers known here."""
        page, more = _page((i for i in self._table.known_ids() if i > request.after_ledger), request.limit)
        return pb.ListLedgersResponse(ledger_ids=page, more=more)

    def entry_intervals(
        self, request: pb.EntryIntervalsRequest, _: grpc.ServicerContext
    ) -> pb.EntryIntervalsResponse:
        """Which entries are here, cache included, and which of them are damaged (rule 47)."""
        with self._table.lock:
            ledger = self._table.find(request.ledger_id)
            if ledger is None:
                return pb.EntryIntervalsResponse(code=Code.OK, last_add_confirmed=-1)
            lac = ledger.last_add_confirmed()
        held = self._table.intervals(request.ledger_id)
        if not self._bookie.make_durable(self._timeout_s):
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
            damaged=self._bookie.scrubber.damaged_of(request.ledger_id),
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
            self._bookie.set_read_only(reason)
        except OSError as error:
            why = f"the bookie is read-only, but that cannot be kept or ended on its disk: {error}; make room, try again"
            context.abort(grpc.StatusCode.INTERNAL, why)
        return pb.SetReadOnlyResponse(
            writable=self._bookie.is_writable, read_only_reason=self._bookie.read_only_reason
        )

    def scrub(self, request: pb.ScrubRequest, _: grpc.ServicerContext) -> pb.ScrubResponse:
        """Check the checksums of one ledger or of all, at full speed."""
        result = self._bookie.scrubber.scrub_now(None if request.ledger_id < 0 else request.ledger_id)
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
            nonce = self._table.limbo_mark(ledger_id)
            marks = {} if nonce is None else {ledger_id: nonce}
        else:
            marks = self._table.limbo_marks()
        page, more = _page((i for i in sorted(marks) if i > request.after_ledger), request.limit)
        return pb.ListLimboResponse(
            ledgers=[pb.LimboLedger(ledger_id=ledger_id, nonce=marks[ledger_id]) for ledger_id in page],
            more=more,
            boot_id=self._bookie.boot_id,
        )

    def clear_limbo(self, request: pb.ClearLimboRequest, _: grpc.ServicerContext) -> pb.ClearLimboResponse:
        """End limbo if the nonce still stands; the answer waits until that is durable."""
        with self._table.pinned(request.ledger_id) as ledger:
            with self._table.lock:
                if not ledger.clear_limbo(request.nonce):
                    return pb.ClearLimboResponse(code=Code.OK, cleared=False)
                record = limbo_clear_record(request.ledger_id, bytes.fromhex(request.nonce))
                barrier = Barrier([self._table.storage.decide(record)])
                self._bookie.journal.put(barrier)
            code = barrier.wait(self._timeout_s)
        _LOG.info("limbo cleared", ledger_id=request.ledger_id, code=code.name)
        return pb.ClearLimboResponse(code=code, cleared=code is Code.OK)

    def collect_garbage(
        self, _: pb.CollectGarbageRequest, __: grpc.ServicerContext
    ) -> pb.CollectGarbageResponse:
        """One round of garbage collection now."""
        result = self._bookie.collector.collect()
        code = Code.OK if result.complete else Code.UNAVAILABLE
        return pb.CollectGarbageResponse(
            code=code, deleted=result.deleted, detail=result.detail, surplus_entries=result.surplus_entries
        )

    def accept_roll_back(
        self, request: pb.AcceptRollBackRequest, context: grpc.ServicerContext
    ) -> pb.AcceptRollBackResponse:
        """Take what ZooKeeper says now for the truth again (rule 62)."""
        try:
            why_not = self._bookie.roll_back.accept(request.highest_ledger)
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
