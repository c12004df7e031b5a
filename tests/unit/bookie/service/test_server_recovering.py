"""Recover: the fences and recovery reads of many ledgers in one call, each as good as one of its own."""

from concurrent.futures import Future, ThreadPoolExecutor, wait

import grpc
import pytest
from daybook_bookie.service import recovering

from daybook.core.errors import Code
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import split_message
from daybook.core.ids import MESSAGE_BYTES_MAX
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import ReadHeader, decode_read
from daybook.wire.service import RECOVER_MAX
from tests.unit.bookie.server_kit import OVER_BOTH, RunningBookie, StalledJournal, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S

pytestmark = OVER_BOTH

MIB = 1024 * 1024


def fence_of(ledger_id: int, key: str = KEY) -> pb.FenceRequest:
    return pb.FenceRequest(ledger_id=ledger_id, key=key)


def read_of(ledger_id: int, first: int = 0, last: int = 9, key: str = KEY) -> pb.ReadRequest:
    """It does not say that it fences: within Recover each read does."""
    return pb.ReadRequest(ledger_id=ledger_id, first_entry=first, last_entry=last, bytes_max=4 * MIB, key=key)


def recover(
    bookie: RunningBookie,
    *,
    fences: list[pb.FenceRequest] | None = None,
    reads: list[pb.ReadRequest] | None = None,
) -> pb.RecoverResponse:
    answer: pb.RecoverResponse = bookie.stub.recover(
        pb.RecoverRequest(fences=fences or [], reads=reads or []), timeout=WAIT_S
    )
    return answer


def found(answer: pb.RecoveryRead) -> tuple[ReadHeader, list[tuple[int, bytes]]]:
    """The last header, and the entries."""
    header, entries = ReadHeader(Code.UNAVAILABLE), []
    for message in answer.messages:
        header, frames = decode_read(message)
        for frame, offset in split_message(frames):
            good, _ = decode_entries(frames, frame, offset)
            entries += [(entry.entry_id, bytes(entry.data)) for entry in good]
    return header, entries


def write_to(bookie: RunningBookie, *ledger_ids: int, payload: bytes = b"a") -> None:
    stream = bookie.open_stream()
    for ledger_id in ledger_ids:
        assert stream.attach(ledger_id) is Code.OK
        assert stream.add(frame_of(ledger_id, 0, [payload])) == {}
    stream.close()


def late(bookie: RunningBookie, ledger_id: int) -> dict[int, Code]:
    """What becomes of another entry of the writer."""
    stream = bookie.open_stream()
    stream.attach(ledger_id)
    outcome = stream.add(frame_of(ledger_id, 1, [b"late"]))
    stream.close()
    return outcome


def test_rule_03_each_ledger_of_the_call_is_fenced_known_or_not(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    write_to(bookie, 1)
    answer = recover(bookie, fences=[fence_of(1), fence_of(2), fence_of(9)])
    assert [(Code(each.code), each.last_add_confirmed, each.limbo) for each in answer.fences] == [
        (Code.OK, -1, False)
    ] * 3
    for _ in range(2):
        assert [late(bookie, ledger_id) for ledger_id in (1, 2)] == [{0: Code.FENCED}] * 2
        assert bookie.flush()
        bookie.restart()


def test_rule_02_each_read_of_the_call_fences(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    write_to(bookie, 1, 2)
    answer = recover(bookie, reads=[read_of(1), read_of(2, 1, 1)])
    first, second = map(found, answer.reads)
    assert (first[0].code, first[0].through, first[1]) == (Code.OK, 9, [(0, b"a")])
    assert (second[0].code, second[0].through, second[1]) == (Code.OK, 1, [])
    assert [late(bookie, ledger_id) for ledger_id in (1, 2)] == [{0: Code.FENCED}] * 2


def test_rule_04_the_call_is_answered_only_when_all_its_fences_are_durable(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    write_to(bookie, 1, 2)
    with ThreadPoolExecutor(1) as callers:
        with StalledJournal(bookie) as stalled:
            call: Future[pb.RecoverResponse] = callers.submit(
                recover, bookie, fences=[fence_of(1)], reads=[read_of(2)]
            )
            assert stalled.reached.wait(WAIT_S)
            assert not wait([call], timeout=0.3).done
            assert late(bookie, 1) == {0: Code.FENCED}, "in memory it holds at once"
        assert Code(call.result(WAIT_S).fences[0].code) is Code.OK


def test_a_refusal_concerns_its_ledger_alone(bookie: RunningBookie) -> None:
    bookie.create_ledger(2)
    write_to(bookie, 1, 2)
    answer = recover(
        bookie,
        fences=[fence_of(1, "00$made up"), fence_of(2), fence_of(-1), fence_of(1, "x" * 300)],
        reads=[read_of(1, 5, 4), read_of(1, key="00$made up"), read_of(2), read_of(-1)],
    )
    codes = [Code(each.code) for each in answer.fences]
    assert codes == [Code.UNAUTHORIZED, Code.OK, Code.BAD_FRAME, Code.UNAUTHORIZED]
    headers = [found(each)[0].code for each in answer.reads]
    assert headers == [Code.BAD_FRAME, Code.UNAUTHORIZED, Code.OK, Code.BAD_FRAME]
    assert late(bookie, 1) == {}, "nothing fenced it"


def test_an_answer_is_bounded_and_names_what_is_to_be_asked_for_alone(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.create_ledger(3)
    write_to(bookie, 1, 2, 3, payload=bytes(MIB))
    answer = recover(bookie, reads=[read_of(1), read_of(2), read_of(3)])
    assert [len(each.messages) for each in answer.reads] == [1, 0, 0]
    assert answer.ByteSize() < MESSAGE_BYTES_MAX
    assert late(bookie, 3) == {0: Code.FENCED}, "it is fenced all the same"
    monkeypatch.setattr(recovering, "ANSWER_BYTES_MAX", 4 * MIB)
    assert [len(found(each)[1]) for each in recover(bookie, reads=[read_of(2), read_of(3)]).reads] == [1, 1]


def test_a_read_that_fails_is_to_be_asked_for_alone(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    bookie.create_ledger(2)
    write_to(bookie, 1, 2)
    reads, read = bookie.bookie.reads, bookie.bookie.reads.answer

    def fail(request: pb.ReadRequest, code: Code) -> object:
        if request.ledger_id == 1:
            msg = "out of memory"
            raise OSError(msg)
        return read(request, code)

    monkeypatch.setattr(reads, "answer", fail)
    first, second = recover(bookie, reads=[read_of(1), read_of(2)]).reads
    assert not first.messages
    assert found(second)[1] == [(0, b"a")]


def test_a_call_of_too_many_is_refused_and_fences_nothing(bookie: RunningBookie) -> None:
    write_to(bookie, 1)
    with pytest.raises(grpc.RpcError, match=f"at most {RECOVER_MAX}"):
        recover(bookie, fences=[fence_of(1)] * RECOVER_MAX, reads=[read_of(1)])
    assert late(bookie, 1) == {}
