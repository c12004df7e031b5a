"""What a simulated bookie answers on the wire: the calls of `daybook/wire/service.py`, in bytes, by the bookie model.

The model speaks the events of the core. Here they are put into the messages that a real bookie would send, so that the
client's own code takes them apart.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from daybook.core import effects as fx
from daybook.core.bookie.ledger import LacAnswer
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.core.format.checksums import entry_crcs
from daybook.core.format.entries import Entry
from daybook.core.format.frame import encode_frame
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId, EntryId, LedgerId
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import ReadHeader, encode_read
from daybook.wire.service import READ
from tests.model.sim.bookie_calls import Call
from tests.model.sim.bookie_model import SimBookie
from tests.model.sim.shipped.loop import SCALE

Payload: TypeAlias = tuple[bytes, ...] | grpc.StatusCode
"""The messages of an answer, or why there is none."""
Respond: TypeAlias = Callable[[Payload], None]
_SENTINEL: Final = 0


def serve(bookie: SimBookie, boot_id: str | None, method: str, request: bytes, respond: Respond) -> None:
    """Carry out a call at `bookie`, in its own time, if the process with `boot_id` is meant."""
    if boot_id not in (None, bookie.boot_id):
        respond(grpc.StatusCode.FAILED_PRECONDITION)
        return
    if not bookie.serving:
        respond(grpc.StatusCode.UNAVAILABLE)
        return
    _HANDLERS[method](bookie, request, respond)


def _answer(respond: Respond, message: Message) -> None:
    respond((message.SerializeToString(),))


# Calls that the core knows


def _call(
    bookie: SimBookie, request: Any, call: Call, answer: Callable[[Any], Message], respond: Respond
) -> None:
    """Carry out `call`, and put what comes of it into a message."""
    key = getattr(request, "key", "")
    bookie.serve(call, request.ledger_id, key, lambda event: _answer(respond, answer(event)))


def _read(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.ReadRequest.FromString(data)
    span = request.first_entry, request.last_entry, request.bytes_max
    call = fx.SendRead(bookie.name, _SENTINEL, *span, fence=request.fence)
    bookie.serve(call, request.ledger_id, request.key, partial(_have_read, request.ledger_id, respond))


def _have_read(ledger_id: LedgerId, respond: Respond, answer: ReadAnswered) -> None:
    header = ReadHeader(
        answer.code,
        answer.through,
        answer.last_add_confirmed,
        answer.length_at_lac,
        answer.limbo,
        tuple((entry, entry) for entry in answer.damaged),
    )
    frames = [_frame(ledger_id, run) for run in _runs(answer.entries)]
    respond((encode_read(header, list(frames)),))


def _runs(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Consecutive entries, as the frames of a writer hold them."""
    listed = list(entries)
    runs = [listed[:1]] if listed else []
    for before, entry in pairwise(listed):
        if entry.entry_id == before.entry_id + 1:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _frame(ledger_id: LedgerId, run: list[Entry]) -> bytes:
    ids: list[EntryId] = [entry.entry_id for entry in run]
    payloads = [entry.data for entry in run]
    return encode_frame(ledger_id, ids[0], payloads, entry_crcs(ledger_id, ids, payloads))


def _read_lac(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.ReadLacRequest.FromString(data)
    wait_ms = max(1, request.timeout_ms // SCALE) if request.timeout_ms else 0
    call = fx.SendLacRead(bookie.name, _SENTINEL, request.known_lac, request.known_fenced, wait_ms)
    _call(bookie, request, call, partial(_copied, pb.ReadLacResponse), respond)


def _fence(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    call = fx.SendFence(bookie.name, _SENTINEL)
    _call(bookie, pb.FenceRequest.FromString(data), call, partial(_copied, pb.FenceResponse), respond)


def _recover(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    """Each question as by a call of its own; the answer leaves with the last of them."""
    request = pb.RecoverRequest.FromString(data)
    asked = [*((_fence, each) for each in request.fences), *((_read, each) for each in request.reads)]
    answers: dict[int, tuple[bytes, ...]] = {}

    def answered(number: int, payload: Payload) -> None:
        assert isinstance(payload, tuple)
        answers[number] = payload
        if len(answers) == len(asked):
            parts = [answers[i] for i in range(len(asked))]
            fences = [pb.FenceResponse.FromString(fence) for (fence,) in parts[: len(request.fences)]]
            reads = [pb.RecoveryRead(messages=read) for read in parts[len(request.fences) :]]
            _answer(respond, pb.RecoverResponse(fences=fences, reads=reads))

    for number, (ask, each) in enumerate(asked):
        ask(bookie, each.SerializeToString(), partial(answered, number))


def _force(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    call = fx.SendForce(bookie.name, _SENTINEL)
    _call(bookie, pb.ForceRequest.FromString(data), call, partial(_copied, pb.ForceResponse), respond)


def _clear_limbo(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.ClearLimboRequest.FromString(data)
    call = fx.ClearLimbo(bookie.name, _SENTINEL, request.nonce)
    _call(bookie, request, call, partial(_copied, pb.ClearLimboResponse), respond)


def _copied(kind: Callable[..., Message], event: Any) -> Message:
    """A message of `kind` with the fields of the event that have its names."""
    names = set(kind.DESCRIPTOR.fields_by_name) & {field.name for field in fields(event)}  # type: ignore[attr-defined] # of a message class
    return kind(**{name: getattr(event, name) for name in names})


# What is here


def _get_info(bookie: SimBookie, _data: bytes, respond: Respond) -> None:
    info = pb.GetInfoResponse(
        bookie_id=bookie.name, boot_id=bookie.boot_id, writable=not (bookie.read_only or bookie.retired)
    )
    _answer(respond, info)


def _entry_intervals(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.EntryIntervalsRequest.FromString(data)

    def reply(_name: BookieId, entries: frozenset[EntryId], lac: LacAnswer) -> None:
        held = IntervalSet()
        held.add_ids(sorted(entry for entry in entries if entry >= request.from_entry))
        _answer(
            respond,
            pb.EntryIntervalsResponse(
                code=Code.OK,
                intervals=[
                    pb.EntryInterval(
                        first_entry=first,
                        last_entry=last,
                        stripe_period=stripe.period,
                        stripe_mask=stripe.mask,
                    )
                    for first, last, stripe in held
                ],
                limbo=lac.limbo,
                last_add_confirmed=lac.last_add_confirmed,
                length_at_lac=lac.length_at_lac,
            ),
        )

    unavailable = pb.EntryIntervalsResponse(code=Code.UNAVAILABLE)
    bookie.listing(request.ledger_id, reply, partial(_answer, respond, unavailable))


def _list_limbo(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.ListLimboRequest.FromString(data)
    marks = [
        pb.LimboLedger(ledger_id=ledger_id, nonce=nonce)
        for ledger_id in bookie.known_ids()
        if ledger_id > request.after_ledger and (nonce := bookie.limbo_nonce(ledger_id)) is not None
    ]
    page = marks[: request.limit]
    _answer(respond, pb.ListLimboResponse(ledgers=page, more=len(page) < len(marks)))


# What an operator asks for


def _set_read_only(bookie: SimBookie, data: bytes, respond: Respond) -> None:
    request = pb.SetReadOnlyRequest.FromString(data)
    bookie.retire(retired=request.read_only)
    answer = pb.SetReadOnlyResponse(writable=not (bookie.read_only or bookie.retired))
    _answer(respond, answer)


_HANDLERS: Final[dict[str, Callable[[SimBookie, bytes, Respond], None]]] = {
    READ: _read,
    "ReadLac": _read_lac,
    "Fence": _fence,
    "Recover": _recover,
    "Force": _force,
    "GetInfo": _get_info,
    "EntryIntervals": _entry_intervals,
    "ListLimbo": _list_limbo,
    "ClearLimbo": _clear_limbo,
    "SetReadOnly": _set_read_only,
}
