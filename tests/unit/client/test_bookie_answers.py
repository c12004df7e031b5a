"""Answers that are no answers: each becomes exactly one event, and none proves anything (rule 6)."""

import pytest

from daybook.client.transport.calls import BookieCalls, ReadKey
from daybook.core.effects import ReadLimbo, SendLacRead, SendRead
from daybook.core.errors import Code
from daybook.core.events import ReadAnswered
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import open_aio_channel
from daybook.wire.messages import ReadHeader, encode_read
from tests.unit.client.scripted_bookie import ScriptedBookie
from tests.unit.client.scripted_stream import frame

KEY = ReadKey(1, "h")


async def read(*answer: bytes | Exception, first: int = 0, last: int = 9) -> ReadAnswered:
    """What a read amounts to that is answered with these messages."""
    async with ScriptedBookie(read=answer) as bookie, open_aio_channel(bookie.address) as channel:
        return await BookieCalls("b0", channel).read(KEY, SendRead("b0", 7, first, last, 1 << 20))


async def test_rule_06_a_read_that_breaks_off_after_some_messages_proves_nothing() -> None:
    begun = encode_read(ReadHeader(Code.OK, through=4), [frame(0, [b"a"] * 5)])
    answered = await read(begun, RuntimeError("the disk is gone"))
    assert (answered.code, answered.entries, answered.request_id) == (Code.CONNECTION_LOST, (), 7)
    nothing = await read()
    assert nothing.code is not Code.OK


@pytest.mark.parametrize(
    "frames",
    [
        [frame(3), frame(0, [b"x"] * 3)],
        [frame(0, [b"x"] * 3), frame(2)],
        [frame(0), frame(1), frame(1), frame(2)],
        [frame(0, [b"x"] * 4, ids=[0, 5, 2, 7])],
        [frame(0, [b"x"] * 3, ids=[0, 5, 5])],
    ],
)
async def test_entries_out_of_order_or_twice_are_no_answer(frames: list[bytes]) -> None:
    answered = await read(encode_read(ReadHeader(Code.OK, through=9), list(frames)))
    assert (answered.code, answered.entries) == (Code.IO_ERROR, ())


async def test_limbo_in_any_message_is_limbo_for_the_whole_answer() -> None:
    begun = encode_read(ReadHeader(Code.OK, through=4, limbo=True), [frame(1)])
    end = encode_read(ReadHeader(Code.OK, through=9), [frame(7)])
    answered = await read(begun, end)
    assert (answered.code, answered.limbo, answered.through) == (Code.OK, True, 9)


async def test_a_code_of_another_release_proves_nothing() -> None:
    unary = {
        "Fence": pb.FenceResponse(code=99, last_add_confirmed=5),
        "ReadLac": pb.ReadLacResponse(code=99, last_add_confirmed=5),
        "Force": pb.ForceResponse(code=99),
    }
    async with ScriptedBookie(unary=unary) as bookie, open_aio_channel(bookie.address) as channel:
        calls = BookieCalls("b0", channel)
        assert (await calls.fence(KEY, 1)).code is Code.UNAVAILABLE
        assert (await calls.force(KEY, 1)).code is Code.UNAVAILABLE
        assert (await calls.read_lac(KEY, SendLacRead("b0", 1))).code is Code.UNAVAILABLE


@pytest.mark.parametrize("told_by", ["ListLimbo", "GetInfo"])
async def test_a_limbo_mark_comes_with_the_boot_id_whichever_call_of_which_release_tells_it(
    told_by: str,
) -> None:
    """An older bookie gives the next mark, of whichever ledger, and its boot id elsewhere."""
    is_older = told_by == "GetInfo"
    found = pb.LimboLedger(ledger_id=KEY.ledger_id + is_older, nonce="n")
    answers = {
        "ListLimbo": pb.ListLimboResponse(ledgers=[found], boot_id="" if is_older else "boot"),
        "GetInfo": pb.GetInfoResponse(boot_id="boot" if is_older else "asked for nothing"),
    }
    async with ScriptedBookie(unary=answers) as bookie, open_aio_channel(bookie.address) as channel:
        answer = await BookieCalls("b0", channel).read_limbo(KEY, ReadLimbo("b0", 3))
    assert (answer.code, answer.nonce, answer.boot_id) == (Code.OK, None if is_older else "n", "boot")
