"""Attaching streams to ledgers: the core decides (`daybook.core.bookie.questions`), a thread here reads metadata for it.

The first normal frame of a ledger that this bookie does not know needs a synced read of its metadata (rule 20). That
waits for ZooKeeper, so it has a thread of its own and never delays the frames of other ledgers on the stream. A writer of
thousands of ledgers attaches all of them at one moment, so those that wait go together: one sync that begins after all
of them came, one request for their metadata, one look at the claim, and their answers with one system call for each stream.

While ZooKeeper is unavailable an attachment is answered with UNAVAILABLE, and everything that is attached continues (rule 46).
A bounded number may wait; the next one is refused at once, to come again.
"""

import threading
from collections import defaultdict, deque
from typing import Final, NamedTuple

from daybook.core.bookie.ledger import AttachVerdict
from daybook.core.bookie.questions import Attachment
from daybook.core.errors import Code, DaybookError
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook_bookie.identity.rollback import RollBackGuard
from daybook_bookie.journal.format import Record
from daybook_bookie.ledgers import LedgerTable
from daybook_bookie.metrics import BookieMetrics
from daybook_bookie.service.append import AppendStream, purpose_of
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


class _Waiting(NamedTuple):
    """An attachment that needs metadata, and who asks for it."""

    stream: AppendStream
    request: pb.Attach
    attachment: Attachment[Record]


class Attacher:
    """Decides attachments, those that need metadata on a thread of its own."""

    def __init__(
        self,
        table: LedgerTable,
        questions: Questions,
        guard: RollBackGuard,
        metrics: BookieMetrics,
        *,
        at_once: int,
        waiting_max: int,
    ) -> None:
        """`at_once` attachments share their reads, and `waiting_max` more may wait for the next ones."""
        self._table = table
        self._questions = questions
        self._guard = guard
        self._metrics = metrics
        self._at_once = at_once
        self._places_max = at_once + waiting_max
        self._taken = 0
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        """Held while the fields above change."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="attach", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def attach(self, stream: AppendStream, request: pb.Attach) -> None:
        """Decide what can be decided now; the rest goes to the thread. The answer goes to the stream."""
        attachment = Attachment(
            self._table.machine,
            stream.stream_id,
            request.ledger_id,
            request.key,
            purpose_of(request.purpose),
            has_ended=lambda: stream.is_closed,
        )
        with self._table.lock:
            attachment.begin()
            if not attachment.is_done:
                stream.attaching += 1
        if attachment.is_done:
            verdict = attachment.verdict
            stream.send_control(self._answer(stream, request, verdict.code, _DETAILS[verdict]))
        elif not self._wait(_Waiting(stream, request, attachment)):
            with self._table.lock:
                stream.attaching -= 1
            stream.send_control(self._answer(stream, request, Code.TOO_MANY_REQUESTS, _TOO_MANY))

    @property
    def has_place(self) -> bool:
        """Whether another attachment could wait now."""
        return self._taken < self._places_max

    def close(self) -> None:
        """Let the thread end; those that wait are not answered."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wait(self, waiting: _Waiting) -> bool:
        """Take a place; False if there is none."""
        with self._changed:
            if not self.has_place:
                return False
            self._taken += 1
            self._waiting.append(waiting)
            self._changed.notify()
        return True

    # The thread

    def _run(self) -> None:
        while batch := self._next_batch():
            self._decide(batch)

    def _next_batch(self) -> list[_Waiting]:
        """Those that waited longest, once there are any; none at the end."""
        with self._changed:
            while not (self._waiting or self._closed):
                self._changed.wait()
            return [] if self._closed else self._take(self._at_once)

    def _take(self, count: int) -> list[_Waiting]:
        """The first `count` that wait. With the condition held."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def _decide(self, batch: list[_Waiting]) -> None:
        """Read metadata for `batch`, and answer it.

        Only the ids up to what the guard knows of need another read, of a counter: it must not harm the others.
        """
        held = self._guard.highest_held
        for group in (
            [each for each in batch if each.request.ledger_id > held],
            [each for each in batch if each.request.ledger_id <= held],
        ):
            if group:
                self._decide_group(group)

    def _decide_group(self, group: list[_Waiting]) -> None:
        why_not = ""
        try:
            why_not = self._guard.why_not_begin(min(each.request.ledger_id for each in group))
            if not why_not and self._questions.settle(*(each.attachment for each in group)):
                with self._changed:  # whoever waits now would wait as long for the same
                    group += self._take(len(self._waiting))
        except DaybookError as error:
            _LOG.warning("the counter of ledger ids cannot be read", ledgers=len(group), reason=str(error))
        except Exception:  # noqa: BLE001 - the thread must answer, whatever happened
            _LOG.exception("attachments failed", ledgers=len(group))
        finally:
            with self._changed:
                self._taken -= len(group)
            self._answer_group(group, why_not)

    def _answer_group(self, group: list[_Waiting], why_not: str) -> None:
        with self._table.lock:
            for each in group:
                each.stream.attaching -= 1
        answers: defaultdict[AppendStream, list[pb.ServerControl]] = defaultdict(list)
        for stream, request, attachment in group:
            verdict = attachment.verdict
            detail = why_not or _DETAILS[verdict]
            answers[stream].append(self._answer(stream, request, verdict.code, detail))
        for stream, controls in answers.items():
            stream.send_control(*controls)

    def _answer(self, stream: AppendStream, request: pb.Attach, code: Code, detail: str) -> pb.ServerControl:
        self._metrics.attached.labels(code.name).inc()
        if code is Code.UNAUTHORIZED:
            _LOG.warning("a wrong password", ledger_id=request.ledger_id, client=stream.client)
        answer = pb.Attached(ledger_id=request.ledger_id, purpose=request.purpose, code=code, detail=detail)
        return pb.ServerControl(attached=answer)
