"""Recover: the fences and recovery reads of many ledgers in one call.

A client that takes over thousands of ledgers asks each bookie twice for each of them, and a call of its own costs both ends
more than the answer. Each fence and each read here means what Fence and a Read that fences mean (rule 2, rule 3, rule 4); all
ledgers of a call are fenced together, so that they share a sync, and then read.
"""

from collections.abc import Sequence
from typing import Final

import grpc

from daybook.core.bookie.ledger import LacAnswer
from daybook.core.errors import Code
from daybook.runtime.logs import get_logger
from daybook.wire import bookie_pb2 as pb
from daybook.wire.service import RECOVER_MAX
from daybook_bookie.service.fencing import Fencer
from daybook_bookie.service.reads import Reads, is_possible

_LOG: Final = get_logger(__name__)
ANSWER_BYTES_MAX: Final = 1024 * 1024
"""An answer takes no more reads once it has this many bytes, so that it is no longer than this and one entry."""


class Recoveries:
    """Answers Recover, and Fence."""

    def __init__(self, fencer: Fencer, reads: Reads) -> None:
        """Of one bookie."""
        self._fencer = fencer
        self._reads = reads

    def fence(self, request: pb.FenceRequest, _: grpc.ServicerContext) -> pb.FenceResponse:
        """Fence a ledger, known or not (rule 3, rule 4)."""
        return _fenced(*self._fencer.fence(request.ledger_id, request.key))

    def recover(self, request: pb.RecoverRequest, context: grpc.ServicerContext) -> pb.RecoverResponse:
        """Fence all ledgers of the request, then read."""
        count = len(request.fences) + len(request.reads)
        if count > RECOVER_MAX:
            why = f"{count} fences and reads in one call, and at most {RECOVER_MAX} are allowed: send several calls"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
        wanted = [(each.ledger_id, each.key) for each in request.fences]
        wanted += [(each.ledger_id, each.key) for each in request.reads if is_possible(each)]
        fenced = self._fencer.fence_each(wanted)
        codes = iter([code for code, _ in fenced[len(request.fences) :]])
        return pb.RecoverResponse(
            fences=[_fenced(*each) for each in fenced[: len(request.fences)]],
            reads=self._read_each(
                [(each, next(codes) if is_possible(each) else Code.BAD_FRAME) for each in request.reads]
            ),
        )

    def _read_each(self, admitted: Sequence[tuple[pb.ReadRequest, Code]]) -> list[pb.RecoveryRead]:
        answers: list[pb.RecoveryRead] = []
        size_bytes = 0
        for request, code in admitted:
            messages: list[bytes] = []
            if size_bytes < ANSWER_BYTES_MAX:
                request.bytes_max = min(request.bytes_max, ANSWER_BYTES_MAX - size_bytes)
                try:
                    messages.extend(self._reads.answer(request, code))
                except Exception:  # noqa: BLE001 - one ledger must not keep the others from their answer
                    _LOG.exception(
                        "a recovery read failed; its client asks again", ledger_id=request.ledger_id
                    )
                    messages.clear()
                size_bytes += sum(map(len, messages))
            answers.append(pb.RecoveryRead(messages=messages))
        return answers


def _fenced(code: Code, lac: LacAnswer) -> pb.FenceResponse:
    return pb.FenceResponse(
        code=code,
        last_add_confirmed=lac.last_add_confirmed,
        length_at_lac=lac.length_at_lac,
        limbo=lac.limbo,
    )
