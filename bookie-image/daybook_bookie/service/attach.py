"""Attaching streams to ledgers: the core decides (`daybook.core.bookie.questions`), workers here read metadata for it.

The first normal frame of a ledger that this bookie does not know needs a synced read of its metadata (rule 20). That
waits for ZooKeeper, so it has workers of its own and never delays the frames of other ledgers on the stream. While
ZooKeeper is unavailable such an attachment is answered with UNAVAILABLE, and everything that is attached continues (rule 46).
A bounded number may wait for the workers; the next one is refused at once, to come again.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from daybook.core.bookie.ledger import AttachVerdict, Purpose
from daybook.core.bookie.questions import Attachment
from daybook.core.errors import Code, DaybookError
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.format import Record
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendStream
from daybook_bookie.service.questions import Questions

_LOG: Final = get_logger(__name__)
_TOO_MANY: Final = (
    "as many attachments wait for ZooKeeper as may (attaches_waiting_max): try again a little later"
)

_IMPOSSIBLE: Final = "no ledger has this id or key: is the request damaged?"
_DETAILS: Final = {
    AttachVerdict.OK: "",
    AttachVerdict.UNAUTHORIZED: "the password is not the ledger's: open it with the one it was created with",
    AttachVerdict.NEEDS_METADATA: "the ledger's metadata is needed and cannot be read now: try again",
    AttachVerdict.NOT_OPEN: "the ledger is not OPEN: create a new one to write on",
    AttachVerdict.NO_SUCH_LEDGER: "the ledger does not exist, or was deleted",
    AttachVerdict.IMPOSSIBLE_LEDGER: _IMPOSSIBLE,
    AttachVerdict.IMPOSSIBLE_KEY: _IMPOSSIBLE,
}


class Attacher:
    """Decides attachments, on workers of its own."""

    def __init__(
        self,
        table: LedgerTable,
        questions: Questions,
        guard: RollBackGuard,
        metrics: BookieMetrics,
        *,
        workers: int,
        waiting_max: int,
    ) -> None:
        self._table = table
        self._questions = questions
        self._guard = guard
        self._metrics = metrics
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="attach")
        self._places = threading.Semaphore(workers + waiting_max)

    def attach(self, stream: AppendStream, request: pb.Attach) -> None:
        """Decide what can be decided now; the rest goes to the workers. The answer goes to the stream."""
        attachment = Attachment(
            self._table.machine,
            stream.stream_id,
            request.ledger_id,
            request.key,
            _purpose(request),
            has_ended=lambda: stream.is_closed,
        )
        with self._table.lock:
            attachment.begin()
        if attachment.is_done:
            self._answer(stream, request, attachment.verdict)
        elif self._places.acquire(blocking=False):
            with self._table.lock:
                stream.attaching += 1
            self._workers.submit(self._attach_later, stream, request, attachment)
        else:
            self._send(stream, request, Code.TOO_MANY_REQUESTS, _TOO_MANY)

    @property
    def has_place(self) -> bool:
        """Whether another attachment could wait for a worker now."""
        if self._places.acquire(blocking=False):
            self._places.release()
            return True
        return False

    def close(self) -> None:
        """Let the workers end."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _attach_later(self, stream: AppendStream, request: pb.Attach, attachment: Attachment[Record]) -> None:
        why_not = ""
        try:
            why_not = self._guard.why_not_begin(request.ledger_id)
            if not why_not:
                self._questions.settle(attachment)
        except DaybookError as error:
            _LOG.warning("a ledger's metadata cannot be read", ledger_id=request.ledger_id, reason=str(error))
        except Exception:  # noqa: BLE001 - a worker must answer, whatever happened
            _LOG.exception("an attachment failed", ledger_id=request.ledger_id)
        finally:
            self._places.release()
            with self._table.lock:
                stream.attaching -= 1
        self._send(stream, request, attachment.verdict.code, why_not or _DETAILS[attachment.verdict])

    def _answer(self, stream: AppendStream, request: pb.Attach, verdict: AttachVerdict) -> None:
        self._send(stream, request, verdict.code, _DETAILS[verdict])

    def _send(self, stream: AppendStream, request: pb.Attach, code: Code, detail: str) -> None:
        self._metrics.attached.labels(code.name).inc()
        if code is Code.UNAUTHORIZED:
            _LOG.warning("a wrong password", ledger_id=request.ledger_id, client=stream.client)
        answer = pb.Attached(ledger_id=request.ledger_id, purpose=request.purpose, code=code, detail=detail)
        stream.send_control(pb.ServerControl(attached=answer))


def _purpose(request: pb.Attach) -> Purpose:
    return Purpose.RECOVERY if request.purpose == pb.PURPOSE_RECOVERY else Purpose.WRITE
